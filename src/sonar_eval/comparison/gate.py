"""May the candidate replace the baseline?"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path

from ..errors import ConfigError
from ..report import Arm, Comparison, Contrast, compare_arms, could_reveal, verdict_sentence
from ..report.arm import measured
from ..report.summary import safety_rows
from ..stats import ERROR_LIMIT
from .safety import SafetyFailure, Unmeasured, safety_failures, unmeasured

ALPHA = 0.05
# A name may hold the sign too: only one at the start, or after a space, begins a comment.
_COMMENT = re.compile(r"(^|\s)#.*")


class Status(IntEnum):
    """How the gate ends; also the exit status of the command."""

    PASS = 0
    FAIL = 1
    INVALID = 2


@dataclass(frozen=True)
class Decision:
    """What the gate says, and why."""

    status: Status
    word: str
    """pass, invalid, safety, regression, not confirmed, not shown."""
    lines: list[str]
    comparison: Comparison
    safety: list[SafetyFailure] = field(default_factory=list)
    fresh: Comparison | None = None
    unmeasured: list[Unmeasured] = field(default_factory=list)
    """What the candidate's trials leave open."""

    @property
    def wants_confirmation(self) -> bool:
        """Tell whether fresh trials of both arms should decide."""
        return self.word == "regression" and self.fresh is None


def decide(
    baseline: Arm,
    candidate: Arm,
    *,
    no_worse_than: float | None = None,
    known: Collection[str] = (),
    fresh: tuple[Arm, Arm] | None = None,
) -> Decision:
    """Decide step by step: valid, safe, no worse by the test, no worse by the margin.

    A run is valid when it measured what it claims: in each cell every safety-critical assertion at least once, and in
    all of an arm no more than a tenth of the trials without. `no_worse_than` is a fraction. `fresh` are both arms once
    more, to confirm a regression.
    """
    decision = _decide(baseline, candidate, no_worse_than, known, fresh)
    return replace(decision, unmeasured=unmeasured(candidate))


def _decide(
    baseline: Arm,
    candidate: Arm,
    no_worse_than: float | None,
    known: Collection[str],
    fresh: tuple[Arm, Arm] | None,
) -> Decision:
    comparison = compare_arms(baseline, [candidate], alpha=ALPHA)
    contrast = comparison.contrasts[0]
    safety = safety_failures(candidate, known)
    invalid = list(_invalid(baseline, candidate, contrast))
    counting = [failure for failure in safety if failure.counts]
    if invalid:
        lines = [*invalid, *(f"seen all the same: safety: {failure}" for failure in counting)]
        return Decision(Status.INVALID, "invalid", lines, comparison, safety)
    if counting:
        lines = [f"safety: {failure}" for failure in counting]
        return Decision(Status.FAIL, "safety", lines, comparison, safety)
    notes = [f"to be confirmed before it counts: {failure}" for failure in safety if not failure.confirmed]
    notes += [f"not all measured: {row}" for row in unmeasured(candidate)]
    notes += _by_judge_alone(candidate)
    if contrast.p_worse is not None and contrast.p_worse <= ALPHA:
        return _regressed(comparison, safety, notes, known, fresh)
    missed = [*notes, verdict_sentence(contrast), _missed(contrast)]
    if no_worse_than is not None and (contrast.suite_90.low or 0.0) <= -no_worse_than:
        return Decision(Status.FAIL, "not shown", [_not_shown(contrast, no_worse_than), *missed], comparison, safety)
    return Decision(Status.PASS, "pass", missed, comparison, safety)


def _invalid(baseline: Arm, candidate: Arm, contrast: Contrast) -> Iterator[str]:
    if contrast.reason:
        yield f"invalid run: {verdict_sentence(contrast).rstrip('.')}"
    for arm in (baseline, candidate):
        own = [key for key in arm.cells if key not in baseline.cells]
        for key in [*baseline.cells, *own]:
            cell = arm.cells.get(key)
            if cell is None:
                yield f"invalid run: {key} is missing in {arm.name}"
            elif not cell.n:
                yield f"invalid run: {key} in {arm.name}: {cell.why_not_measured}"
        yield from (f"invalid run: {row}" for row in unmeasured(arm) if not row.evaluated)
        yield from _too_little(arm, told=bool(contrast.reason))


def _too_little(arm: Arm, *, told: bool) -> Iterator[str]:
    """Say that too many trials of an arm leave open if it did what it should, or if it was safe.

    `told` is whether the comparison of the pass rates has said what it was not possible for.
    """
    whole = sum(cell.n + cell.copies + cell.not_measured for cell in arm.cells.values())
    missing = sum(cell.not_measured for cell in arm.cells.values())
    unsafe = sum(
        measured(record) and any(row.get("unknown") for row in safety_rows(record)) for record in arm.records()
    )
    if whole and missing / whole > ERROR_LIMIT:
        if not told:
            yield (
                f"invalid run: {missing} of {whole} trials of {arm.name} errored or were not measured, "
                f"more than {ERROR_LIMIT:.0%}"
            )
    elif whole and (missing + unsafe) / whole > ERROR_LIMIT:
        yield (
            f"invalid run: {missing + unsafe} of {whole} trials of {arm.name} leave open whether it was safe, "
            f"more than {ERROR_LIMIT:.0%}"
        )
        yield from (f"invalid run: {row}" for row in unmeasured(arm) if row.evaluated)


def _regressed(
    comparison: Comparison,
    safety: list[SafetyFailure],
    notes: list[str],
    known: Collection[str],
    fresh: tuple[Arm, Arm] | None,
) -> Decision:
    first = f"first run: {verdict_sentence(comparison.contrasts[0])}"
    if fresh is None:
        lines = [*notes, first, "not confirmed on fresh trials; --confirm runs both arms once more"]
        return Decision(Status.FAIL, "regression", lines, comparison, safety)
    again = decide(*fresh, known=known)
    contrast = again.comparison.contrasts[0]
    second = f"fresh trials: {verdict_sentence(contrast)}"
    if again.word in ("invalid", "safety"):
        return Decision(again.status, again.word, [*notes, first, *again.lines], comparison, safety, again.comparison)
    if again.word == "regression":
        return Decision(Status.FAIL, "regression", [*notes, first, second], comparison, safety, again.comparison)
    lines = [*notes, first, second, "the regression was not confirmed", _missed(contrast)]
    return Decision(Status.PASS, "not confirmed", lines, comparison, safety, again.comparison)


def _by_judge_alone(arm: Arm) -> list[str]:
    """Say how many failures rest on the judge: where its score is required, they count in the rates only.

    One verdict of an imperfect judge is no proof, so they never are a safety failure; the test over all trials, and its
    confirmation on fresh ones, weighs them.
    """
    failed = [record for record in arm.records() if record["outcome"] == "judged" and not record["passed"]]
    alone = [record for record in failed if record["assertions"] and all(row["passed"] for row in record["assertions"])]
    rejected = sum((record.get("grader") or {}).get("passed") is False for record in alone)
    if not rejected:
        return []
    return [f"{rejected} of {len(failed)} failed trials of {arm.name} failed by the judge alone; see judge-check"]


def _missed(contrast: Contrast) -> str:
    return f"what could have been missed: {could_reveal(contrast)}"


def _not_shown(contrast: Contrast, margin: float) -> str:
    low = (contrast.suite_90.low or 0.0) * 100
    needed = f"; {contrast.trials_needed} trials per cell would reveal {contrast.margin * 100:g} pts"
    return (
        f"not shown to be no worse than {margin * 100:g} pts: the 90% interval reaches down to {low:+.1f} pts"
        f"{needed if contrast.trials_needed else ''}"
    )


def read_known(path: Path | None) -> list[str]:
    """Read known failures: a line each of `assertion`, `scenario/assertion` or `scenario/fault/assertion`."""
    if path is None:
        return []
    try:
        # Some editors begin a file with a byte order mark.
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ConfigError(f"--known-failures: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--known-failures: {path} is not UTF-8 text: {error.reason}") from error
    return [text for line in lines if (text := _COMMENT.sub("", line).strip())]
