"""The command `sonar-eval`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable

import click

from .comparison.command import compare, gate, plan
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
@click.option("--uri", default="sqlite:///mlflow.db", show_default=True, help="The MLflow store to show.")
@click.option("--port", default=5000, show_default=True)
def ui(uri: str, port: int) -> None:
    """Open the MLflow UI, with one worker and without the jobs that nobody needs here."""
    if uri.startswith("sqlite:///") and not os.path.isfile(uri.removeprefix("sqlite:///")):
        raise click.ClickException(f"there is no store {uri}; run a sweep first, or name one with --uri")
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    click.echo(f"MLflow on http://127.0.0.1:{port} in about ten seconds; Ctrl-C ends it", err=True)
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    os.execv(sys.executable, [*command, "--backend-store-uri", uri, "--host", "127.0.0.1", "--port", str(port)])


for command in (compare, gate, plan, judge_check):
    main.add_command(command)


if __name__ == "__main__":
    main()
