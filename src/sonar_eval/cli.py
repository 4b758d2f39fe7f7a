"""The command `sonar-eval`."""

from __future__ import annotations

import os
import sys

import click

from .comparison.command import compare, gate, plan
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


for command in (compare, gate, plan):
    main.add_command(command)


if __name__ == "__main__":
    main()
