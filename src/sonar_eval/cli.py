"""The command `sonar-eval`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from .comparison.command import compare, gate, plan
from .errors import ConfigError
from .judging.command import judge_check
from .version import __version__

_PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@click.group()
@click.version_option(__version__, prog_name="sonar-eval")
def main() -> None:
    """Evaluate agentic chatbots."""


@main.command(context_settings=_PASS_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def sweep(arguments: tuple[str, ...]) -> None:
    """Run k trials for every combination of model, prompt, scenario and fault."""
    sys.argv = ["sonar-eval sweep", *arguments]
    from .sweep.app import main as run

    run()


@main.command(context_settings=_PASS_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def ingest(arguments: tuple[str, ...]) -> None:
    """Take spans in and answer what a conversation did."""
    from .ingest.__main__ import main as serve

    serve(list(arguments), prog_name="sonar-eval ingest")


_STORE = click.option("--uri", default="sqlite:///mlflow.db", show_default=True, help="The MLflow store of a run id.")
_OVERRIDES = click.argument("overrides", nargs=-1)


@main.command()
@click.argument("where")
@_OVERRIDES
@_STORE
def rejudge(where: str, overrides: tuple[str, ...], uri: str) -> None:
    """Judge stored trials again, with other assertions or another rubric, without calling the bot.

    WHERE is a cell's or a sweep's folder, a trials.jsonl, or the id of an MLflow run; OVERRIDES are what to change,
    e.g. grader=local or scenario.rubric=…. Records are written beside the old ones.
    """
    from .sweep import afterwards

    _tell(lambda: afterwards.rejudge(where, overrides, uri=uri))


@main.command()
@click.argument("conversation_id")
@_OVERRIDES
@click.option("--out", default="judged", show_default=True, help="Folder for the record and the transcript.")
def judge(conversation_id: str, overrides: tuple[str, ...], out: str) -> None:
    """Judge a conversation that the bot had with somebody else, by its trace.

    OVERRIDES say by what and where it is, e.g. scenario=refund ingest.base_url=http://ingest:4319.
    """
    from .sweep import afterwards

    _tell(lambda: afterwards.judge(conversation_id, overrides, out=out))


@main.command()
@click.argument("where")
@click.argument("trial", type=click.IntRange(min=1))
@_OVERRIDES
@_STORE
def rerun(where: str, trial: int, overrides: tuple[str, ...], uri: str) -> None:
    """Repeat one trial with its seed, and show the old and the new conversation side by side.

    WHERE is a cell's folder or the id of its MLflow run, TRIAL a number as in the name of its transcript.
    """
    from .sweep import afterwards

    _tell(lambda: afterwards.rerun(where, trial, overrides, uri=uri))


def _tell(make: Callable[[], Iterable[str]]) -> None:
    """Print lines as they come; what is wrong becomes one line and exit status 2."""
    from .errors import SonarEvalError

    try:
        for line in make():
            click.echo(line)
    except SonarEvalError as error:
        raise _Mistake(" ".join(str(error).split())) from error


class _Mistake(click.ClickException):
    exit_code = 2


@main.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--uri", default="sqlite:///mlflow.db", show_default=True, help="The MLflow store to show.")
@click.option("--port", default=5000, show_default=True)
def ui(folder: Path | None, uri: str, port: int) -> None:
    """Open the MLflow UI over a store, or over the mlflow.db in FOLDER; of an example, over a copy."""
    from .tracking.viewer import Store, serve_command

    try:
        store = Store.in_folder(folder) if folder is not None else Store.at(uri)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if store.note:
        click.echo(store.note, err=True)
    click.echo(f"MLflow on http://127.0.0.1:{port} in about ten seconds; Ctrl-C ends it", err=True)
    command, variables = serve_command(store, port)
    os.environ.update(variables)
    os.execv(command[0], command)


@main.group()
def tracking() -> None:
    """Bring MLflow up to date with what is on disk."""


@tracking.command()
@click.argument("sweep_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--uri", help="The MLflow store; by default the one the sweep was to be tracked in.")
@click.option("--experiment", help="The experiment; by default the sweep's own.")
def publish(sweep_dir: Path, uri: str | None, experiment: str | None) -> None:
    """Publish a sweep's folder, or that of one cell judged again; what MLflow has already is left alone."""
    from .sweep.publish import COMPARISON, publish_sweep, tracker_of

    try:
        tracker = tracker_of(sweep_dir, uri, experiment)
        done = publish_sweep(sweep_dir.resolve(), tracker)
    except ConfigError as error:
        click.echo(f"sonar-eval: {error}", err=True)
        sys.exit(2)
    failed = [cell for cell in done if cell.run_id is None]
    for cell in failed:
        click.echo(f"not published: {cell.name}: {cell.reason}", err=True)
    cells = [cell for cell in done if cell.name != COMPARISON]
    there = sum(cell.run_id is not None for cell in cells)
    click.echo(f"{there} of {len(cells)} cells are in MLflow. {tracker.how_to_look()}")
    sys.exit(1 if failed else 0)


@tracking.command()
@click.option("--uri", default="sqlite:///mlflow.db", show_default=True, help="The MLflow store.")
@click.option("--silent-hours", default=24.0, show_default=True, help="How long another host may show no life.")
def reconcile(uri: str, silent_hours: float) -> None:
    """Close the runs that a killed process left open."""
    from .tracking.mlflow import absolute_uri, sqlite_path
    from .tracking.mlflow import reconcile as close_open_runs

    address = absolute_uri(uri, Path.cwd())
    path = sqlite_path(address)
    if path is not None and not path.is_file():
        raise click.ClickException(f"there is no store {uri}; name one with --uri")
    try:
        closed = close_open_runs(address, silent_for_s=silent_hours * 3600)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    for run in closed:
        click.echo(f"KILLED {run.name}: {run.reason}")
    click.echo(f"{len(closed)} runs closed")


for command in (compare, gate, plan, judge_check):
    main.add_command(command)


if __name__ == "__main__":
    main()
