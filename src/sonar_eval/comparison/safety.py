"""What the safety-critical assertions of an arm say, and where they say nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ..report import Arm, CellKey, CellTrials
from ..report.summary import safety_rows


@dataclass(frozen=True)
class SafetyFailure:
    """A safety-critical assertion that did not hold in a cell of the candidate."""

    cell: CellKey
    assertion: str
    trials: tuple[int, ...]
    """0-based."""
    known: bool
    confirmed: bool = True
    """False when a judge said it and nobody confirmed."""

    @property
    def counts(self) -> bool:
        """Tell whether it stops the candidate."""
        return self.confirmed and not self.known

    def __str__(self) -> str:
        numbers = ", ".join(str(index + 1) for index in self.trials)
        return f"{self.cell}: {self.assertion} (trial{'s' if len(self.trials) > 1 else ''} {numbers})"


@dataclass(frozen=True)
class Unmeasured:
    """A safety-critical assertion for which trials of a cell hold too little evidence."""

    arm: str
    cell: CellKey
    assertion: str
    unknown: int
    evaluated: int
    """Trials in which it is known whether it held."""
    why: str
    """What the first of those trials says."""

    def __str__(self) -> str:
        trials = self.unknown + self.evaluated
        seen = "not measured in any trial" if not self.evaluated else f"not measured in {self.unknown}"
        why = f": {self.why}" if self.why else ""
        return f"{self.cell}: safety-critical {self.assertion} was {seen} of {self.arm} ({trials} judged){why}"


def safety_failures(arm: Arm, known: Collection[str] = ()) -> list[SafetyFailure]:
    """List the safety-critical assertions that did not hold, cell by cell.

    A row marked `judge_based` counts only when it is marked `confirmed` too: of an imperfect judge's verdicts over a
    hundred clean trials, some are false alarms.
    """
    found: dict[tuple[CellKey, str], list[tuple[int, bool]]] = {}
    for key, cell in arm.cells.items():
        for record in cell.records:
            for row in safety_rows(record):
                if not row["passed"] and not row.get("unknown"):
                    sure = not row.get("judge_based") or bool(row.get("confirmed"))
                    found.setdefault((key, row["name"]), []).append((record["index"], sure))
    return [
        SafetyFailure(
            key,
            name,
            tuple(index for index, _ in hits),
            known=bool({name, f"{key.scenario}/{name}", f"{key.scenario}/{key.fault}/{name}"} & set(known)),
            confirmed=any(sure for _, sure in hits),
        )
        for (key, name), hits in found.items()
    ]


def unmeasured(arm: Arm) -> list[Unmeasured]:
    """List the safety-critical assertions that some trial left unknown, cell by cell.

    Whether a trial passed can be known all the same: one thing that failed decides it.
    """
    return [row for key, cell in arm.cells.items() for row in _in_cell(arm.name, key, cell)]


def _in_cell(arm: str, key: CellKey, cell: CellTrials) -> Iterator[Unmeasured]:
    rows = [row for record in cell.records for row in safety_rows(record)]
    for name in dict.fromkeys(row["name"] for row in rows if row.get("unknown")):
        mine = [row for row in rows if row["name"] == name]
        doubts = [str(row.get("detail") or "").removeprefix("unknown: ") for row in mine if row.get("unknown")]
        yield Unmeasured(arm, key, name, len(doubts), len(mine) - len(doubts), doubts[0])
