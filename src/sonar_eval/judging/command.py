"""`sonar-eval judge-check`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from ..errors import ConfigError


@click.command("judge-check")
@click.argument("runs", nargs=-1, required=True, metavar="RUN_OR_RECORDS…")
@click.option("--sample", type=click.IntRange(2), default=50, show_default=True, help="Trials to judge again.")
@click.option("--second-model", metavar="NAME", help="Another judge: a name in conf/grader or conf/model.")
@click.option("--labels", type=click.Path(dir_okay=False, path_type=Path), help="What people say: a CSV file.")
@click.option("--mlflow-feedback", is_flag=True, help="What people say: their feedback on traces in MLflow.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file, .json or .md.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Draws the sample.")
@click.option("--concurrency", type=click.IntRange(1), default=4, show_default=True, help="Judge calls at a time.")
@click.option("--tracking-uri", default="sqlite:///mlflow.db", show_default=True, help="The MLflow store.")
def judge_check(
    runs: tuple[str, ...],
    sample: int,
    second_model: str | None,
    labels: Path | None,
    mlflow_feedback: bool,
    out: Path | None,
    seed: int,
    concurrency: int,
    tracking_uri: str,
) -> None:
    """Find out how far the judge of earlier runs can be trusted.

    RUN_OR_RECORDS is the folder of a sweep or of a cell, a trials.jsonl, or the id of an MLflow run. A sample of its
    judged trials is judged twice more, and by a second judge where one is named; all judged trials are compared with
    what people say. Labels are rows of conversation_id,label[,criterion], label being pass or fail, or a score from 0
    to 1. Verdicts are kept in judge-check.jsonl beside the runs: the same command goes on from them.
    """
    try:
        if out is not None and out.suffix not in (".json", ".md"):
            raise ConfigError(f"--out: expected a file ending in .json or .md, got {out}")
        from ..report import judge_check_markdown, judge_check_text
        from .check import Settings, run_check

        settings = Settings(runs, tracking_uri, sample, second_model, labels, mlflow_feedback, seed, concurrency)
        found = run_check(settings, lambda line: click.echo(line, err=True))
        click.echo(judge_check_text(found))
        if out is not None:
            text = json.dumps(found.to_dict(), ensure_ascii=False, indent=1)
            _write(out, text if out.suffix == ".json" else judge_check_markdown(found))
    except ConfigError as error:
        click.echo(f"sonar-eval: {' '.join(str(error).split())}", err=True)
        sys.exit(2)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
