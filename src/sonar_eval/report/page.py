"""A comparison as one HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..version import __version__
from .arm import Arm, CellKey
from .charts import difference_chart, rate_chart, resilience_chart, shape_of, tone_of, trade_offs
from .comparison import Comparison, Contrast, Flip, Row
from .comparison_text import comparison_heading, statistics_table
from .dialogue import Dialogue, dialogue
from .heatmap import heat_map
from .visible import visible
from .wording import (
    points,
    points_in_brackets,
    points_with_interval,
    rate_in_brackets,
    safety_words,
    times,
    verdict_sentence,
    verdict_word,
)

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATE = "comparison.html.j2"
MOST_DIALOGUE = 2_000_000
"""Bytes of conversations on a page; further ones are named and left out."""
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")


def render_html(comparison: Comparison, arms: Sequence[Arm] = (), *, stats: bool = False) -> str:
    """Render as one self-contained page.

    `arms` are those that were compared, the baseline first: without them the page has no heat map and no conversations.
    """
    template = _environment().get_template(TEMPLATE)
    markup: str = template.render(
        title=_title(comparison),
        comparison=comparison,
        verdicts=[_verdict(contrast) for contrast in comparison.contrasts],
        heading=comparison_heading(comparison),
        rows=list(zip(comparison.arms, [None, *comparison.contrasts], strict=True)),
        statistics=statistics_table(comparison) if stats else None,
        rates=rate_chart(comparison),
        differences=difference_chart(comparison),
        heat=heat_map(arms) if arms else None,
        resilience=resilience_chart(comparison),
        trade_offs=trade_offs(comparison),
        looks=[_look(contrast) for contrast in comparison.contrasts if contrast.drill_down],
        caveats=_caveats(comparison),
        flips=_flips(comparison, arms),
        version=__version__,
    )
    return markup.lstrip()


def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "points": points,
        "points_in_brackets": points_in_brackets,
        "points_with_interval": points_with_interval,
        "rate_in_brackets": rate_in_brackets,
        "safety": safety_words,
        "times": times,
        "verdict_word": verdict_word,
        "tone": tone_of,
        "shape": shape_of,
        "minus": _with_minus,
        "named": _named,
        "halves": _halves,
    }
    return environment


def _shown(value: Any) -> Any:
    """Make every value that the template prints safe to look at; what is markup already was."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _with_minus(text: str) -> str:
    """Write negative numbers with the sign that is as wide as a plus."""
    return _MINUS.sub("−", text)


def _halves(text: str) -> tuple[str, str]:
    """Part a number from the interval behind it."""
    place = max(text.find(" ["), text.find(" ("))
    return (text, "") if place < 0 else (text[:place], text[place + 1 :])


def _named(row: Any) -> str:
    return " ".join(filter(None, (row.scenario, row.fault, row.also)))


def _title(comparison: Comparison) -> str:
    candidates = ", ".join(contrast.candidate for contrast in comparison.contrasts)
    return f"{candidates} against {comparison.baseline}"


@dataclass(frozen=True)
class Verdict:
    """What is read first."""

    contrast: Contrast
    tone: str
    found: str
    interval: str
    more: str


def _verdict(contrast: Contrast) -> Verdict:
    """Cut the verdict where its size is told: what was found, and what is to be known of it."""
    said = verdict_sentence(contrast)
    for written in (points_with_interval(contrast.suite, "95% CI "), points_with_interval(contrast.suite)):
        if contrast.diff is not None and written in said:
            found, _, more = said.partition(written)
            size, _, interval = written.partition(" (")
            return Verdict(contrast, tone_of(contrast), found + size, f"({interval}", _capital(more.lstrip(".; ")))
    return Verdict(contrast, tone_of(contrast), said, "", "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _look(contrast: Contrast) -> tuple[Contrast, dict[str, list[Row]], list[Row]]:
    """Sort the drill-down by size: all of it by kind, and what is worth a look."""
    kinds: dict[str, list[Row]] = {}
    rows = sorted(contrast.drill_down, key=lambda row: -abs(row.diff))
    for row in sorted(rows, key=lambda row: not row.worth_a_look):
        kinds.setdefault(row.kind, []).append(row)
    in_order = {kind: kinds[kind] for kind in dict.fromkeys(row.kind for row in contrast.drill_down)}
    return contrast, in_order, [row for row in rows if row.worth_a_look]


def _caveats(comparison: Comparison) -> list[str]:
    """List what a reader must know before believing the numbers; the cells that were left out have their own list."""
    missing = [
        f"{arm.name}: {arm.not_measured} of {arm.asked} trials errored or were not measured"
        + ("" if arm.pass_rate_errors_fail is None else f"; counted as failures: {arm.pass_rate_errors_fail:.1%}")
        for arm in comparison.arms
        if arm.not_measured
    ]
    return [*missing, *comparison.warnings]


@dataclass(frozen=True)
class FlipView:
    """A cell whose outcome changed, and as many of its conversations as the page has room for."""

    flip: Flip
    shown: list[Dialogue]

    @property
    def hidden(self) -> list[int]:
        """List the trials whose conversations are not shown."""
        seen = {one.index for one in self.shown}
        return [trial.index for trial in self.flip.trials if trial.index not in seen]


def _flips(comparison: Comparison, arms: Sequence[Arm]) -> list[tuple[Contrast, list[FlipView]]]:
    by_name = {arm.name: arm for arm in arms}
    room = MOST_DIALOGUE
    found = []
    for contrast in comparison.contrasts:
        views = []
        for flip in contrast.flips:
            shown = []
            for one in _dialogues(flip, by_name.get(contrast.baseline), by_name.get(contrast.candidate)):
                if one.size <= room:
                    room -= one.size
                    shown.append(one)
            views.append(FlipView(flip, shown))
        if views:
            found.append((contrast, views))
    return found


def _dialogues(flip: Flip, a: Arm | None, b: Arm | None) -> list[Dialogue]:
    if a is None or b is None:
        return []
    key = CellKey(flip.scenario, flip.fault, flip.also)
    mine, theirs = _by_index(a, key), _by_index(b, key)
    return [
        dialogue(trial, mine[trial.index], theirs[trial.index])
        for trial in flip.trials
        if trial.index in mine and trial.index in theirs
    ]


def _by_index(arm: Arm, key: CellKey) -> dict[int, Mapping[str, Any]]:
    cell = arm.cells.get(key)
    return {record["index"]: record for record in cell.counted} if cell else {}
