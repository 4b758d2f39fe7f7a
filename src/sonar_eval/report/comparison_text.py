"""A comparison for people to read: on a terminal, and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .comparison import Comparison, Contrast, Estimate, Flip, RankedArm, Row
from .table import aligned, escaped, table
from .visible import in_markdown, in_one_line
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

_COLUMNS = (
    "arm",
    "pass rate [95% CI]",
    "vs baseline [95% CI]",
    "verdict",
    "held every time",
    "safety",
    "errors",
    "latency",
    "cost",
)
_STATISTICS = (
    "candidate",
    "p",
    "p (Holm)",
    "across scenarios [95% CI]",
    "rho",
    "n_eff",
    "detectable",
    "trials needed",
)


def render_text(comparison: Comparison, *, stats: bool = False) -> str:
    """Render for a terminal."""
    parts = [comparison_heading(comparison), aligned([_COLUMNS, *_rows(comparison)])]
    parts.append("\n".join(map(in_one_line, _sentences(comparison))))
    if stats:
        parts.append(aligned(statistics_table(comparison)))
    for title, lines in _sections(comparison):
        parts.append("\n".join([in_one_line(title), *(f"  {in_one_line(line)}" for line in lines)]))
    return "\n\n".join(parts)


def render_markdown(comparison: Comparison, *, stats: bool = False) -> str:
    """Render as Markdown, the verdict first."""
    said = "\n".join(f"- {in_markdown(line)}" for line in _sentences(comparison))
    parts = ["## Comparison", said, comparison_heading(comparison)]
    parts.append(table([_COLUMNS, *_rows(comparison)]))
    if stats:
        parts.append(table(statistics_table(comparison)))
    for title, lines in _sections(comparison):
        listed = "\n".join(f"- {escaped(line)}" for line in lines)
        parts.append(f"<details><summary>{in_markdown(title)}</summary>\n\n{listed}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def comparison_heading(comparison: Comparison) -> str:
    """Say how much was compared, and what the intervals are about."""
    first = comparison.arms[0]
    per_cell = f"{first.asked / first.cells:g}" if first.cells else "0"
    if first.cells == first.scenarios:
        return f"{first.scenarios} scenarios x {per_cell} trials, intervals: these {first.scenarios} scenarios"
    return f"{first.scenarios} scenarios in {first.cells} cells x {per_cell} trials, intervals: these cells"


def _sentences(comparison: Comparison) -> Iterator[str]:
    for contrast in comparison.contrasts:
        sentence = verdict_sentence(contrast)
        named = sentence if contrast.candidate in sentence else f"{contrast.candidate}: {sentence}"
        yield named
    for row in comparison.unpaired:
        yield f"Left out: {' '.join(filter(None, (row.scenario, row.fault, row.also)))} ({row.arm}: {row.reason})"
    yield from (f"Warning: {line}" for line in comparison.warnings)


def _rows(comparison: Comparison) -> Iterator[Sequence[str]]:
    contrasts: list[Contrast | None] = [None, *comparison.contrasts]
    for arm, contrast in zip(comparison.arms, contrasts, strict=True):
        name = f"{arm.name} (baseline)" if contrast is None else arm.name
        compared = ("-", "-") if contrast is None else (points_in_brackets(contrast.suite), verdict_word(contrast))
        ratios = ("-", "-") if contrast is None else (times(contrast.latency), times(contrast.cost))
        errors = f"{arm.not_measured}/{arm.asked}"
        held = f"{arm.held}/{arm.cells}"
        yield (name, rate_in_brackets(arm.pass_rate), *compared, held, safety_words(arm.safety), errors, *ratios)


def statistics_table(comparison: Comparison) -> list[Sequence[str]]:
    """Lay out the numbers behind the verdicts, their names first."""
    return [_STATISTICS, *_statistics(comparison)]


def _statistics(comparison: Comparison) -> Iterator[Sequence[str]]:
    for contrast, arm in zip(comparison.contrasts, comparison.arms[1:], strict=True):
        yield (
            contrast.candidate,
            _number(contrast.p, "{:.4f}"),
            _number(contrast.p_holm, "{:.4f}"),
            points_in_brackets(contrast.population),
            _number(arm.rho, "{:.2f}"),
            _number(arm.n_eff, "{:.0f}"),
            _number(contrast.mde and contrast.mde * 100, "{:.0f} pts"),
            _number(contrast.trials_needed, f"{{}} for {contrast.margin * 100:g} pts"),
        )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _sections(comparison: Comparison) -> Iterator[tuple[str, list[str]]]:
    for contrast in comparison.contrasts:
        looked = [_look(row) for row in contrast.drill_down if row.worth_a_look]
        if looked:
            yield f"Worth a look ({contrast.candidate})", looked
        if contrast.judge is not None:
            told = f"judge's mean {contrast.judge.mean_a:.2f} -> {contrast.judge.mean_b:.2f}"
            yield f"Judge ({contrast.candidate})", [f"{told}, {_scores(contrast.judge.suite)}"]
        if contrast.flips:
            yield f"Changed outcomes ({contrast.candidate})", [_flip(flip) for flip in contrast.flips]
    if comparison.ranking:
        yield (
            "Ranking, and what other scenarios like these leave open (95%)",
            [_rank(arm) for arm in comparison.ranking],
        )
    if comparison.resilience:
        lines = [
            f"{delta.arm}, {delta.fault}: {points_with_interval(delta.loss, '95% CI ')} lost, {delta.scenarios} cells"
            for delta in comparison.resilience
        ]
        yield "Resilience: loss under each fault against the same scenarios without it", lines
    if any(point.cost_usd is not None or point.latency_s is not None for point in comparison.pareto):
        front = [point.arm for point in comparison.pareto if point.on_front]
        yield "Best trade-offs of pass rate, cost and latency", front


def _rank(arm: RankedArm) -> str:
    among = f"rank {arm.rank}" if arm.rank is not None else f"somewhere in {arm.rank_low}-{arm.rank_high}"
    return f"{arm.arm}: {arm.rate:.1%}, {among}, P(best) {arm.p_best:.2f}"


def _look(row: Row) -> str:
    return f"{row.kind} {row.name}: {row.rate_a:.0%} -> {row.rate_b:.0%} ({points(row.diff)} pts)"


def _scores(estimate: Estimate) -> str:
    if estimate.value is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:+.2f}"
    return f"{estimate.value:+.2f} (95% CI {estimate.low:+.2f} to {estimate.high:+.2f})"


def _flip(flip: Flip) -> str:
    name = " ".join(filter(None, (flip.scenario, flip.fault, flip.also)))
    trials = ", ".join(str(trial.index + 1) for trial in flip.trials)
    return f"{name}: {flip.passes_a}/{flip.n_a} -> {flip.passes_b}/{flip.n_b} (trials {trials})"
