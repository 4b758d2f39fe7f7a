"""Pass rates cell by cell: scenarios down, faults and arms across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .arm import Arm, CellKey, CellTrials

STRONGEST = 5


@dataclass(frozen=True)
class HeatCell:
    """One number on its shade."""

    passes: int
    n: int
    not_measured: int

    @property
    def rate(self) -> float | None:
        """Return the pass rate; None when nothing was measured."""
        return self.passes / self.n if self.n else None

    @property
    def shade(self) -> int:
        """Return its shade, 0 to `STRONGEST`: the more trials failed, the stronger; never 0 when one failed."""
        return -(-STRONGEST * (self.n - self.passes) // self.n) if self.n else 0


@dataclass(frozen=True)
class HeatMap:
    """A table of cells; None where an arm has no such cell."""

    faults: list[str]
    arms: list[str]
    rows: list[tuple[str, list[HeatCell | None]]]
    """A scenario, and for each fault the cells of all arms."""

    @property
    def incomplete(self) -> bool:
        """Tell whether a trial is missing somewhere."""
        return any(cell is not None and cell.not_measured for _, cells in self.rows for cell in cells)


def heat_map(arms: Sequence[Arm]) -> HeatMap:
    """Lay out the cells of all arms, in the order in which they come."""
    keys = list(dict.fromkeys(key for arm in arms for key in arm.cells))
    faults = list(dict.fromkeys(key.fault for key in keys))
    names = list(dict.fromkeys((key.scenario, key.also) for key in keys))
    rows = [
        (
            " ".join(filter(None, (scenario, also))),
            [_cell(arm.cells.get(CellKey(scenario, fault, also))) for fault in faults for arm in arms],
        )
        for scenario, also in names
    ]
    return HeatMap(faults, [arm.name for arm in arms], rows)


def _cell(cell: CellTrials | None) -> HeatCell | None:
    return None if cell is None else HeatCell(cell.passes, cell.n, cell.not_measured)
