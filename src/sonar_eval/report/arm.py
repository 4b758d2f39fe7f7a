"""One side of a comparison: its trial records, cell by cell, and how they count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from .divergence import signature

Record = Mapping[str, Any]
NO_FAULT = "none"


class CellKey(NamedTuple):
    """What pairs a cell with its counterpart in another arm."""

    scenario: str
    fault: str = NO_FAULT
    also: str = ""
    """What else an arm varies, spelled out; empty for most."""

    def __str__(self) -> str:
        return " ".join(part for part in self if part)


@dataclass(frozen=True)
class CellTrials:
    """The trials of one cell."""

    records: tuple[Record, ...]
    """The last record of each index, in order."""
    asked: int = 0
    stopped_early: bool = False
    """Whether the cell stopped at a failure: its rate is biased and must not be compared."""
    error: str | None = None
    """Why the cell failed as a whole."""

    @cached_property
    def counted(self) -> tuple[Record, ...]:
        """List the trials of which it is known whether they passed, copies once."""
        return independent([record for record in self.records if measured(record)])

    @cached_property
    def copies(self) -> int:
        """Count the trials left out as copies of another."""
        return sum(map(measured, self.records)) - len(self.counted)

    def treated(self, treat: Callable[[Record], Record]) -> CellTrials:
        """Return the cell with its records changed for the eye; what counts stays what counted."""
        changed = [treat(record) for record in self.records]
        counting = {id(record) for record in self.counted}
        cell = replace(self, records=tuple(changed))
        pairs = zip(self.records, changed, strict=True)
        vars(cell)["counted"] = tuple(after for before, after in pairs if id(before) in counting)
        return cell

    @property
    def n(self) -> int:
        """Count what the rates rest on."""
        return len(self.counted)

    @property
    def passes(self) -> int:
        """Count the passed ones among these."""
        return sum(bool(record["passed"]) for record in self.counted)

    @property
    def not_measured(self) -> int:
        """Count the trials asked for of which nothing is known: errored, undecided, or never recorded."""
        return max(self.asked, len(self.records)) - sum(map(measured, self.records))

    @property
    def why_not_measured(self) -> str:
        """Say what became of the trials of a cell of which none tells anything."""
        errored = sum(record["outcome"] == "errored" for record in self.records)
        doubtful = sum(has_doubt(record) for record in self.records if not measured(record))
        asked = max(self.asked, len(self.records))
        others = {
            "undecided": doubtful,
            "errored": errored,
            "checked by nothing": len(self.records) - errored - doubtful,
            "never recorded": asked - len(self.records),
        }
        told = ", ".join(f"{count} {word}" for word, count in others.items() if count)
        if doubtful:
            return f"no trial was decided (evidence missing): {told} of {asked}"
        return f"no trial completed: {told} of {asked}"

    @property
    def requested(self) -> int:
        """Count what would have been there without errors, copies once."""
        return self.n + self.not_measured

    @property
    def stopped(self) -> bool:
        """Tell whether the cell, or a trial in it, was stopped early."""
        return self.stopped_early or any(record.get("stopped_early") for record in self.records)

    @property
    def held(self) -> bool:
        """Tell whether every trial asked for is known to have passed."""
        return self.n > 0 and not self.not_measured and self.passes == self.n


def measured(record: Record) -> bool:
    """Tell whether a trial says if the bot did what it should: it was judged, and by something."""
    if record["outcome"] == "errored":
        return False
    if record["passed"]:
        return bool(record["assertions"] or record.get("judge_asked"))
    return record["outcome"] == "bot_failure" or not _undecided(record)


def _undecided(record: Record) -> bool:
    """Tell whether nothing failed but evidence is missing."""
    rows = record["assertions"]
    if any(not row["passed"] and not row.get("unknown") for row in rows):
        return False
    return has_doubt(record) or not (rows or record.get("judge_asked"))


def has_doubt(record: Record) -> bool:
    """Tell whether an assertion, or the judge, could not say: what a trial that errored leaves is none."""
    if record["outcome"] == "errored":
        return False
    ungraded = record.get("judge_asked") and record.get("grader") is None
    return bool(ungraded) or any(row.get("unknown") for row in record["assertions"])


def independent(records: Sequence[Record]) -> tuple[Record, ...]:
    """Leave copies out: trials that could not have differed are one observation.

    Copies are trials alike in every word and call, when the whole cell is alike or they had the same random seed.
    Likeness alone does not make one: a good bot passes in the same words again and again but fails in many ways, and
    to count its passes once would make its rate worse than it is.
    """
    written = [(signature(record), bool(record["passed"])) for record in records]
    if len(records) > 1 and written[0][0] is not None and len(set(written)) == 1:
        return (records[0],)
    kept: dict[Any, Record] = {}
    for position, (record, (words, passed)) in enumerate(zip(records, written, strict=True)):
        seed = record.get("random_seed")
        kept.setdefault(position if words is None or not seed else (words, passed, seed), record)
    return tuple(kept.values())


@dataclass(frozen=True)
class Arm:
    """One model, prompt or version, as its cells tell."""

    name: str
    cells: Mapping[CellKey, CellTrials] = field(default_factory=dict)

    def records(self) -> Iterator[Record]:
        """Yield every trial record."""
        for cell in self.cells.values():
            yield from cell.records

    @classmethod
    def of(cls, name: str, records: Mapping[tuple[str, ...], Sequence[Record]], *, asked: int | None = None) -> Arm:
        """Make an arm of trial records by (scenario, fault); of several records of an index the last one counts."""
        return cls(name, {CellKey(*key): cell_of(rows, asked or 0) for key, rows in records.items()})


def cell_of(
    records: Sequence[Record], asked: int = 0, *, stopped_early: bool = False, error: str | None = None
) -> CellTrials:
    """Make a cell of its records as they were written; of several of an index the last one counts."""
    latest = {record["index"]: record for record in records}
    ordered = tuple(latest[index] for index in sorted(latest))
    return CellTrials(ordered, max(asked, len(ordered)), stopped_early, error)
