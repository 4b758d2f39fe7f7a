"""`sonar-eval compare`, `sonar-eval gate` and `sonar-eval plan`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..report import Arm, Comparison
    from .arms import SourcedArm
    from .gate import Decision

_STORE = "sqlite:///mlflow.db"
_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
F = TypeVar("F", bound=Callable[..., Any])


def _tracking(function: F) -> F:
    option = click.option("--tracking-uri", default=_STORE, show_default=True, help="The MLflow store of run ids.")
    return option(function)


@contextmanager
def _one_line() -> Iterator[None]:
    """Tell a mistake in one line, and end with status 2."""
    try:
        yield
    except ConfigError as error:
        click.echo(f"sonar-eval: {error}", err=True)
        sys.exit(2)


@click.command()
@click.argument("arms", nargs=-1, required=True, metavar="BASELINE CANDIDATE…")
@click.option("--by", type=click.Choice(["model", "prompt"]), help="Compare the models, or prompts, of one sweep.")
@_tracking
@click.option("--margin", default=5.0, show_default=True, help="Points within which arms count as equivalent.")
@click.option("--stats", is_flag=True, help="Show p-values, the interval across scenarios, and what was detectable.")
@click.option("--json", "json_file", type=_FILE, help="Write everything to this file.")
@click.option("--markdown", "markdown_file", type=_FILE, help="Write the comparison as Markdown, for a pull request.")
@click.option(
    "--html", "html_file", type=_FILE, help="Write a report to this file: charts, and conversations side by side."
)
@click.option(
    "--png", "png_folder", type=_FOLDER, help="Draw intervals.png, heatmap.png and resilience.png in this folder."
)
def compare(
    arms: tuple[str, ...],
    by: str | None,
    tracking_uri: str,
    margin: float,
    stats: bool,
    json_file: Path | None,
    markdown_file: Path | None,
    html_file: Path | None,
    png_folder: Path | None,
) -> None:
    """Say whether candidates are better than a baseline.

    An arm is the folder of a sweep or of a cell, the id of an MLflow run, or a part of one of these:
    FOLDER@model=offline-careful. The first is the baseline. Exits 2 when no candidate can be compared with it.
    """
    from ..report import compare_arms, render_html, render_markdown, render_text
    from .arms import load_arms
    from .noise import checked_variance

    with _one_line():
        found = load_arms(arms, by=by, tracking_uri=tracking_uri)
        _tell_left_out(found)
        loaded = [one.arm for one in found]
        if len(loaded) < 2:
            raise ConfigError("a comparison needs two arms: name a second one, or use --by model or --by prompt")
        noise = checked_variance(one.source.place for one in found)
        comparison = compare_arms(loaded[0], loaded[1:], margin=margin / 100, judge_variance=noise)
        click.echo(render_text(comparison, stats=stats))
        _write(json_file, json.dumps(comparison.to_dict(), ensure_ascii=False, indent=1))
        _write(markdown_file, render_markdown(comparison, stats=stats))
        if html_file is not None:
            _write(html_file, render_html(comparison, loaded, stats=stats))
        if png_folder is not None:
            _draw(comparison, loaded, png_folder)
    if not any(contrast.diff is not None for contrast in comparison.contrasts):
        sys.exit(2)


@click.command()
@click.option("--baseline", required=True, help="A folder, a run id, or a part of one (FOLDER@model=…).")
@click.option("--candidate", required=True, help="The same, of what may replace it.")
@click.option("--no-worse-than", type=click.FloatRange(0, 100), help="Want proof: fail unless worse by fewer points.")
@click.option("--confirm", is_flag=True, help="Run both arms once more before a regression counts.")
@click.option("--known-failures", type=_FILE, help="Safety assertions known to fail, one a line.")
@click.option("--junit", "junit_file", type=_FILE, help="Write JUnit XML to this file.")
@click.option("--markdown", "markdown_file", type=_FILE, help="Write a summary to this file.")
@_tracking
def gate(
    baseline: str,
    candidate: str,
    no_worse_than: float | None,
    confirm: bool,
    known_failures: Path | None,
    junit_file: Path | None,
    markdown_file: Path | None,
    tracking_uri: str,
) -> None:
    """Exit 0 when the candidate may replace the baseline, 1 when not, 2 when the runs do not tell."""
    from ..report import in_one_line
    from .arms import load_arms
    from .gate import decide, read_known
    from .junit import gate_markdown, junit_xml

    with _one_line():
        arms = load_arms([baseline, candidate], tracking_uri=tracking_uri)
        _tell_left_out(arms)
        if len(arms) != 2:
            raise ConfigError("the gate compares exactly two arms")
        known = read_known(known_failures)
        margin = None if no_worse_than is None else no_worse_than / 100
        decision = decide(arms[0].arm, arms[1].arm, no_worse_than=margin, known=known)
        if confirm and decision.wants_confirmation:
            decision = _confirmed(arms, decision, margin, known)
        for line in decision.lines:
            click.echo(in_one_line(line))
        click.echo(f"gate: {decision.status.name.lower()} ({decision.word})")
        _write(junit_file, junit_xml(decision, arms[1].arm))
        _write(markdown_file, gate_markdown(decision))
    sys.exit(int(decision.status))


def _tell_left_out(arms: Sequence[SourcedArm]) -> None:
    for place, cells in {one.source.place: one.source.left_out for one in arms}.items():
        if cells:
            told = f"{cells} cell{'s' if cells > 1 else ''} of earlier configurations left out"
            click.echo(f"{place}: {told}", err=True)


def _confirmed(arms: list[SourcedArm], decision: Decision, margin: float | None, known: list[str]) -> Decision:
    """Let fresh trials of both arms decide; when they cannot be had, the regression stands."""
    import tempfile

    from .gate import decide
    from .rerun import run_again

    folder = Path(tempfile.mkdtemp(prefix="gate-", dir=_beside(arms[1])))
    click.echo(f"worse at first sight; running both arms once more in {folder}", err=True)
    try:
        fresh = run_again(arms, folder)
    except ConfigError as error:
        click.echo(f"not confirmed: {error}", err=True)
        return decision
    return decide(arms[0].arm, arms[1].arm, no_worse_than=margin, known=known, fresh=(fresh[0], fresh[1]))


def _beside(one: SourcedArm) -> Path:
    place = Path(one.source.place)
    return place.resolve().parent if place.is_dir() else Path.cwd()


@click.command()
@click.option("--scenarios", type=click.IntRange(1), required=True, help="How many scenarios there are.")
@click.option("--detect", type=click.FloatRange(0, 100, min_open=True), required=True, help="Points to reveal.")
@click.option("--rate", type=click.FloatRange(0, 100), help="Pass rate in percent. [default: 80, or that of --from]")
@click.option(
    "--rho", type=click.FloatRange(0, 1), help="Correlation within scenarios. [default: 0.5, or that of --from]"
)
@click.option("--from", "earlier", help="An earlier sweep, for rates and costs: a folder, a run id, or a part of one.")
@_tracking
def plan(
    scenarios: int, detect: float, rate: float | None, rho: float | None, earlier: str | None, tracking_uri: str
) -> None:
    """Say how many trials and scenarios a question needs, and what they cost."""
    from ..report import make_plan
    from .arms import load_arms

    with _one_line():
        found = load_arms([earlier], tracking_uri=tracking_uri) if earlier else []
        _tell_left_out(found)
        arm = found[0].arm if found else None
        share = None if rate is None else rate / 100
        for line in make_plan(scenarios, detect / 100, rate=share, rho=rho, earlier=arm).lines():
            click.echo(line)


def _draw(comparison: Comparison, arms: Sequence[Arm], folder: Path) -> None:
    from ..report import draw_plots

    try:
        draw_plots(comparison, arms, folder)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from error


def _write(path: Path | None, text: str) -> None:
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Halves of characters, which records may hold, cannot be written as they are.
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
