"""Arms by what the command line names: a folder, a run, or a part of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..errors import ConfigError
from ..report import Arm, CellKey, CellTrials
from .found import Found, FoundCell, find, matching

_PAIRED_BY = ("scenario", "fault")
COMPARED = ("model", "prompt")
_JUDGED = "judged"
"""Tells judgings of the same trials apart; no two of different trials belong together by its number."""


@dataclass(frozen=True)
class Source:
    """Where an arm comes from."""

    place: str
    wanted: tuple[tuple[str, str], ...]
    command: tuple[str, ...] | None
    left_out: int = 0
    """Cells of earlier configurations at that place."""

    def again(self, place: str) -> str:
        """Name the same part of another sweep."""
        return f"{place}@{','.join(f'{key}={value}' for key, value in self.wanted)}" if self.wanted else place


@dataclass(frozen=True)
class SourcedArm:
    """An arm, and where it comes from."""

    arm: Arm
    source: Source


def load_arms(
    specs: Sequence[str], *, by: str | None = None, tracking_uri: str = "sqlite:///mlflow.db"
) -> list[SourcedArm]:
    """Load what `specs` name, in their order.

    A spec is a folder or an MLflow run id, `@key=value,…` behind it to take a part of it; or `key=value,…` alone for a
    part of the place named before, which then is no arm itself. With `by`, each place falls into an arm per value.
    """
    found: dict[str, Found] = {}
    arms: list[SourcedArm] = []
    for place, wanted in _split(specs):
        if place not in found:
            found[place] = find(place, tracking_uri)
        arms += _arms(place, found[place], wanted, by)
    told_apart = _named(arms, lambda one: found[one.source.place].name)
    return _named(told_apart, lambda one: one.source.place)


def _named(arms: list[SourcedArm], further: Callable[[SourcedArm], str]) -> list[SourcedArm]:
    """Give each arm a further name, should there be two of one name."""
    if len({one.arm.name for one in arms}) == len(arms):
        return arms
    return [SourcedArm(Arm(f"{one.arm.name} ({further(one)})", one.arm.cells), one.source) for one in arms]


def arms_by(cells: Sequence[FoundCell], by: str) -> list[Arm]:
    """Make an arm of the cells of each value of `by`, in the order of the values; what else varies pairs the cells."""
    also = tuple(axis for axis in COMPARED if axis != by and len(_values(cells, axis)) > 1)
    return [Arm(value, _keyed(matching(cells, {by: value}), also)) for value in _values(cells, by)]


Wanted = tuple[tuple[str, str], ...]


def _split(specs: Sequence[str]) -> list[tuple[str, Wanted]]:
    split: list[tuple[str, Wanted]] = []
    followed = {
        position for position, spec in enumerate(specs[1:]) if _is_filter(spec) and not _is_filter(specs[position])
    }
    place = ""
    for position, spec in enumerate(specs):
        if _is_filter(spec):
            if not place:
                raise ConfigError(f"{spec!r} is a part of what? Name the folder of a sweep before it")
            split.append((place, _wanted(spec)))
            continue
        place, _, part = spec.rpartition("@") if "@" in spec and "=" in spec.rpartition("@")[2] else (spec, "", "")
        if position not in followed or part:
            split.append((place, _wanted(part)))
    return split


def _is_filter(spec: str) -> bool:
    return "=" in spec and "@" not in spec and "/" not in spec


def _wanted(part: str) -> Wanted:
    pairs = [piece.partition("=") for piece in part.split(",") if piece]
    for key, equals, value in pairs:
        if not (key and equals and value):
            raise ConfigError(f"expected key=value, e.g. model=offline-careful, got {key + equals + value!r}")
    return tuple((key, value) for key, _, value in pairs)


def _arms(place: str, found: Found, wanted: Wanted, by: str | None) -> list[SourcedArm]:
    cells = _of_one_judging(matching(found.cells, dict(wanted)))
    if not cells:
        named = ",".join(f"{key}={value}" for key, value in wanted)
        raise ConfigError(f"{place} has no cell with {named}; it has {_held(found.cells)}")
    name = ",".join(value for _, value in wanted)
    if by is None:
        _require_one_arm(place, cells)
        source = Source(place, wanted, found.command, found.left_out)
        return [SourcedArm(Arm(name or _name(found, cells), _keyed(cells, ())), source)]
    return [
        SourcedArm(arm, Source(place, (*wanted, (by, arm.name)), found.command, found.left_out))
        for arm in arms_by(cells, by)
    ]


def _of_one_judging(cells: list[FoundCell]) -> list[FoundCell]:
    """Leave out what was judged again, where the first judging is there too: it is an arm of its own."""
    return [cell for cell in cells if _JUDGED not in cell.varies] or cells


def _name(found: Found, cells: Sequence[FoundCell]) -> str:
    model, prompt = (cells[0].choices.get(axis) for axis in COMPARED)
    return " ".join(part for part in (model, prompt) if part) or found.name


def _require_one_arm(place: str, cells: Sequence[FoundCell]) -> None:
    for axis in COMPARED:
        values = _values(cells, axis)
        if len(values) > 1:
            raise ConfigError(
                f"{place} holds several values of {axis}: {', '.join(values)}; compare them with --by {axis}, "
                f"or name one: {place}@{axis}={values[0]}"
            )


def _values(cells: Iterable[FoundCell], axis: str) -> list[str]:
    return list(dict.fromkeys(cell.choices.get(axis, "-") for cell in cells))


def _held(cells: Iterable[FoundCell]) -> str:
    listed = list(cells)
    return "; ".join(f"{axis}: {', '.join(_values(listed, axis))}" for axis in (*COMPARED, *_PAIRED_BY))


def _keyed(cells: Iterable[FoundCell], also: Sequence[str]) -> dict[CellKey, CellTrials]:
    """Key cells by what pairs them; what else the sweep varied is part of the key."""
    keyed: dict[CellKey, CellTrials] = {}
    for cell in cells:
        further = {axis: cell.choices.get(axis, "-") for axis in also}
        further |= {key: value for key, value in cell.varies.items() if key not in (*_PAIRED_BY, *COMPARED, _JUDGED)}
        key = CellKey(
            str(cell.choices.get("scenario", "-")),
            str(cell.choices.get("fault", "none")),
            " ".join(f"{name}={value}" for name, value in further.items()),
        )
        if key in keyed:
            raise ConfigError(f"two cells are both {key}; name a part that tells them apart, with @key=value")
        keyed[key] = cell.trials
    return keyed
