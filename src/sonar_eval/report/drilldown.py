"""Where a difference comes from: per assertion, scenario and fault, and trial by trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..stats import benjamini_hochberg, compare
from .arm import Arm, CellKey, CellTrials
from .comparison import Delta, Estimate, Flip, FlippedTrial, Row
from .divergence import first_divergence

WORTH_A_LOOK = 0.10
Tally = tuple[int, int]
"""Passes, trials."""


def drill_down(a: Arm, b: Arm, keys: Sequence[CellKey]) -> list[Row]:
    """List the differences per assertion, per scenario and per fault, each list adjusted for its own length."""
    return [
        *_rows("assertion", _by_assertion(a, b, keys)),
        *_rows("scenario", _several(_grouped(a, b, keys, lambda key: key.scenario))),
        *_rows("fault", _several(_grouped(a, b, keys, lambda key: key.fault))),
    ]


Strata = dict[str, list[tuple[Tally, Tally]]]


def _several(strata: Strata) -> Strata:
    """Leave a list of one out: it only repeats the whole."""
    return strata if len(strata) > 1 else {}


def _grouped(a: Arm, b: Arm, keys: Sequence[CellKey], group: Callable[[CellKey], str]) -> Strata:
    strata: Strata = {}
    for key in keys:
        one, other = a.cells[key], b.cells[key]
        strata.setdefault(group(key), []).append(((one.passes, one.n), (other.passes, other.n)))
    return strata


def _by_assertion(a: Arm, b: Arm, keys: Sequence[CellKey]) -> Strata:
    strata: Strata = {}
    for key in keys:
        one, other = _assertions(a.cells[key]), _assertions(b.cells[key])
        for name in one.keys() & other.keys():
            strata.setdefault(name, []).append((one[name], other[name]))
    return dict(sorted(strata.items()))


def _assertions(cell: CellTrials) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {}
    for record in cell.counted:
        for row in record["assertions"]:
            if not row.get("unknown"):
                passes, n = tallies.get(row["name"], (0, 0))
                tallies[row["name"]] = (passes + bool(row["passed"]), n + 1)
    return tallies


def _rows(kind: str, strata: Strata) -> list[Row]:
    found = []
    for name, pairs in strata.items():
        numbers = compare_tallies(pairs)
        if numbers is not None:
            found.append((name, pairs, numbers))
    adjusted = benjamini_hochberg([numbers["p_two_sided"] for _, _, numbers in found])
    return [
        Row(
            kind,
            name,
            numbers["rate_a"],
            numbers["rate_b"],
            numbers["diff"],
            sum(one[1] for one, _ in pairs),
            sum(other[1] for _, other in pairs),
            numbers["p_two_sided"],
            q,
            q <= WORTH_A_LOOK,
        )
        for (name, pairs, numbers), q in zip(found, adjusted, strict=True)
    ]


def compare_tallies(pairs: Sequence[tuple[Tally, Tally]]) -> dict[str, Any] | None:
    """Compare tallies stratum by stratum; strata that lack trials in an arm are left out."""
    both = [(one, other) for one, other in pairs if one[1] and other[1]]
    if not both:
        return None
    return compare(
        [one[0] for one, _ in both],
        [one[1] for one, _ in both],
        [other[0] for _, other in both],
        [other[1] for _, other in both],
    )


def flips(a: Arm, b: Arm, keys: Sequence[CellKey]) -> list[Flip]:
    """List the cells in which a trial of one index came out otherwise, the largest change first."""
    found = []
    for key in keys:
        one, other = a.cells[key], b.cells[key]
        trials = _flipped(one, other)
        if trials:
            found.append(Flip(*key, one.passes, one.n, other.passes, other.n, trials))
    return sorted(found, key=lambda flip: -abs(flip.passes_b / flip.n_b - flip.passes_a / flip.n_a))


def _flipped(a: CellTrials, b: CellTrials) -> list[FlippedTrial]:
    theirs: Mapping[int, Any] = {record["index"]: record for record in b.counted}
    pairs = [(mine, theirs[mine["index"]]) for mine in a.counted if mine["index"] in theirs]
    return [_parted(one, other) for one, other in pairs if bool(one["passed"]) != bool(other["passed"])]


def _parted(one: Mapping[str, Any], other: Mapping[str, Any]) -> FlippedTrial:
    parted = first_divergence(one, other)
    return FlippedTrial(
        one["index"],
        bool(one["passed"]),
        bool(other["passed"]),
        one["conversation_id"],
        other["conversation_id"],
        parted.turn,
        parted.tool_call,
    )


def resilience(arm: Arm, no_fault: str) -> list[Delta]:
    """State what each fault costs an arm, scenario by scenario against the same scenario without it."""
    without = {(key.scenario, key.also): cell for key, cell in arm.cells.items() if key.fault == no_fault and cell.n}
    pairs: dict[str, list[tuple[Tally, Tally]]] = {}
    for key, cell in arm.cells.items():
        plain = without.get((key.scenario, key.also))
        if key.fault != no_fault and plain is not None and cell.n and not cell.stopped and not plain.stopped:
            pairs.setdefault(key.fault, []).append(((plain.passes, plain.n), (cell.passes, cell.n)))
    deltas = []
    for fault, tallies in pairs.items():
        numbers = compare_tallies(tallies)
        if numbers is not None:
            low, high = numbers["suite_ci"]
            loss = Estimate(-numbers["diff"], -high, -low)
            deltas.append(
                Delta(
                    arm.name,
                    fault,
                    len(tallies),
                    numbers["rate_a"],
                    numbers["rate_b"],
                    loss,
                    numbers["p_two_sided"],
                )
            )
    return deltas
