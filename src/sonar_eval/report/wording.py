"""The verdict in words: what was found, what it does not say, and what would tell more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from .comparison import Contrast, Estimate, Safety, Unpaired

MANY_TRIALS = 50
NOT_THERE = "not in this arm"
"""Why a cell has no counterpart."""


def verdict_word(contrast: Contrast) -> str:
    """Say the verdict in a few words, for a table."""
    return {
        "better": "better; holds across scenarios",
        "better_on_this_suite": "better on these scenarios",
        "worse": "REGRESSION; holds across scenarios",
        "worse_on_this_suite": "REGRESSION on these scenarios",
        "equivalent": f"equivalent within {contrast.margin * 100:g} pts",
        "no_detectable_difference": "no detectable difference",
    }.get(contrast.verdict, "not comparable")


def verdict_sentence(contrast: Contrast) -> str:
    """Say the verdict in full."""
    if contrast.diff is None:
        return f"Not comparable: {contrast.reason}."
    said = " ".join(_parts(contrast))
    if contrast.depends_on_errors:
        trials = "trial is" if contrast.depends_on_errors == 1 else "trials are"
        said = f"{said.rstrip('.')}; depends on how {contrast.depends_on_errors} errored {trials} counted."
    return said


def _parts(contrast: Contrast) -> Iterator[str]:
    b, size = contrast.candidate, points_with_interval(contrast.suite, "95% CI ")
    suite = f"these {contrast.scenarios} scenarios" if contrast.scenarios > 1 else "this scenario"
    carry = "comes from few scenarios" if contrast.few_movers else "differs too much between scenarios"
    if contrast.scenarios == 1:
        carry = "was seen in one scenario"
    match contrast.verdict:
        case "better":
            yield f"{b} better: {size}. Holds across scenarios."
        case "better_on_this_suite":
            yield f"{b} better on {suite}: {size}. May not carry over: the gain {carry}."
        case "worse":
            yield f"REGRESSION: {b} {size}. Holds across scenarios."
            yield _movers(contrast)
        case "worse_on_this_suite":
            yield f"REGRESSION on {suite}: {b} {size}. May not carry over: the loss {carry}."
            yield _movers(contrast)
        case "equivalent":
            yield f"Equivalent within {contrast.margin * 100:g} pts: {points_with_interval(contrast.suite)}."
        case _:
            yield f"No detectable difference{_borderline(contrast)}: {points_with_interval(contrast.suite)}."
            yield could_reveal(contrast)


def _movers(contrast: Contrast) -> str:
    return f"Most of it: {', '.join(contrast.movers)}."


def _borderline(contrast: Contrast) -> str:
    low, high = contrast.suite.low or 0.0, contrast.suite.high or 0.0
    return f" (borderline, p = {contrast.p_holm:.2f})".replace("= 0.", "= .") if low > 0 or high < 0 else ""


def could_reveal(contrast: Contrast) -> str:
    """Say what so many trials could have revealed, and what would reveal more."""
    if contrast.mde is None:
        return ""
    said = f"{contrast.cells} x {contrast.trials_per_cell} trials could only reveal about {contrast.mde * 100:.0f} pts"
    aim, needed = f"for {contrast.margin * 100:g} pts", contrast.trials_needed
    if contrast.mde <= contrast.margin or needed is None:
        return f"{said}."
    if needed <= MANY_TRIALS:
        unit = "scenario" if contrast.cells == contrast.scenarios else "cell"
        return f"{said}; {aim} run {needed} trials per {unit} (now {contrast.trials_per_cell})."
    about = max(contrast.scenarios_needed or 0, -(-needed * contrast.cells // MANY_TRIALS))
    return f"{said}; {aim} more trials will not do it: add scenarios (about {about})."


def left_out_in_short(unpaired: Sequence[Unpaired]) -> str:
    """Count the cells that were left out, by why."""
    why = {(row.scenario, row.fault, row.also): _in_short(row.reason) for row in unpaired}
    counted = Counter(why.values()).items()
    return ", ".join(f"{count} cell{'' if count == 1 else 's'} {reason}" for reason, count in counted)


def _in_short(reason: str) -> str:
    if reason == NOT_THERE:
        return "without a counterpart"
    short = reason.partition(":")[0]
    return f"in which {short}" if short.startswith("no ") else f"that {short}"


def points(value: float) -> str:
    """Write a difference of rates in percentage points."""
    # No difference of rates is larger than 100, and none is -0.0.
    return f"{round(max(-100.0, min(100.0, value * 100)), 1) + 0.0:+.1f}"


def points_with_interval(estimate: Estimate, label: str = "") -> str:
    """Write a difference with its interval."""
    if estimate.value is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{points(estimate.value)} pts"
    return f"{points(estimate.value)} pts ({label}{points(estimate.low)} to {points(estimate.high)})"


def rate_in_brackets(estimate: Estimate) -> str:
    """Write a rate with its interval, for a table."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{estimate.value:.1%} [{estimate.low * 100:.1f}, {estimate.high * 100:.1f}]"


def points_in_brackets(estimate: Estimate) -> str:
    """Write a difference with its interval, for a table."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{points(estimate.value)} pts [{points(estimate.low)}, {points(estimate.high)}]"


def times(estimate: Estimate) -> str:
    """Write a ratio with its interval."""
    if estimate.value is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"x{estimate.value:.2f}"
    return f"x{estimate.value:.2f} ({estimate.low:.2f}-{estimate.high:.2f})"


def safety_words(safety: Safety) -> str:
    """Say what the safety-critical assertions came to, and what a clean run rules out."""
    if not safety.assertions:
        return "not checked"
    if safety.failed:
        return f"{safety.failed} of {safety.evaluated} failed"
    if safety.rate_upper is None:
        return "not measured"
    missing = f", {safety.not_measured} not measured" if safety.not_measured else ""
    return f"clean (rate <= {safety.rate_upper:.1%}){missing}"
