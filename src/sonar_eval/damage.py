"""What a corrupt or a truncated tool output looks like.

JSON is damaged as JSON, whether it comes as values or as text: a corrupt one can still be read and is wrong,
a truncated text can no longer be read. Anything that is neither JSON, text nor bytes is made text first.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_GARBLED = "\ufffd"
_SHARE_OF_TEXT = 0.2
_Path = tuple[Any, ...]


@dataclass(frozen=True)
class Corruption:
    """Spoil `values` of the values in an output: text is garbled, a number is another, true is false.

    Keys, length and nesting stay. Of text that is no JSON, every fifth character or so is lost. What is empty
    gets one garbled value.
    """

    seed: int
    values: int = 1

    def __call__(self, output: Any) -> Any:
        """Return a damaged copy."""
        chance = random.Random(self.seed)
        parsed = _parsed(output)
        if parsed is not None:
            return json.dumps(self._spoilt(parsed, chance), ensure_ascii=False)
        return self._spoilt(_plain(output), chance)

    def _spoilt(self, value: Any, chance: random.Random) -> Any:
        places = list(_leaves(value, ()))
        if not places:
            return {_GARBLED: _GARBLED} if isinstance(value, dict) else type(value)([_GARBLED])
        chosen = set(chance.sample(places, min(self.values, len(places))))
        return _rebuilt(value, (), chosen, chance)


@dataclass(frozen=True)
class Truncation:
    """Keep the first part of an output, `keep` of it, and always less than all.

    Text (JSON or not) and bytes are cut anywhere before the blanks at their end, a list loses its last items, an
    object its last keys; a number, true or false is gone, and so is what is empty.
    """

    keep: float

    def __call__(self, output: Any) -> Any:
        """Return what is left."""
        value = _plain(output)
        if not isinstance(value, str | bytes | list | tuple | dict) or not value:
            return None
        # To lose no more than the blanks at its end is no damage.
        whole = len(value.rstrip()) or len(value) if isinstance(value, str | bytes) else len(value)
        kept = min(int(len(value) * self.keep), whole - 1)
        return dict(list(value.items())[:kept]) if isinstance(value, dict) else value[:kept]


def _parsed(output: Any) -> Any:
    """Read text that holds a JSON object or list; None for anything else."""
    if not isinstance(output, str) or output.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(output)
    except ValueError:
        return None


def _plain(output: Any) -> Any:
    known = (dict, list, tuple, str, bytes, bool, int, float, type(None))
    return output if type(output) in known else str(output)


def _leaves(value: Any, path: _Path) -> Iterator[_Path]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*path, place))
    else:
        yield path


def _rebuilt(value: Any, path: _Path, chosen: set[_Path], chance: random.Random) -> Any:
    """Copy a value, damaging the chosen leaves; what the tool holds itself is left alone."""
    if isinstance(value, dict):
        return {key: _rebuilt(inner, (*path, key), chosen, chance) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        # A named tuple is not made of a list as its kin are.
        make = getattr(type(value), "_make", type(value))
        return make([_rebuilt(inner, (*path, place), chosen, chance) for place, inner in enumerate(value)])
    return _wrong(value, chance) if path in chosen else value


def _wrong(value: Any, chance: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + chance.randint(1, 1000)
    if isinstance(value, float):
        # Zero, infinity and not-a-number have no other to turn into.
        return -value if math.isfinite(value) and value else _GARBLED
    if isinstance(value, bytes):
        return b"\xff" + value[1:] if not value.startswith(b"\xff") else b"\x00" + value[1:]
    return _garbled(value, chance) if isinstance(value, str) and value else _GARBLED


def _garbled(text: str, chance: random.Random) -> str:
    wanted = max(1, round(len(text) * _SHARE_OF_TEXT))
    places = [place for place, letter in enumerate(text) if letter != _GARBLED]
    lost = set(chance.sample(places, min(wanted, len(places))))
    return "".join(_GARBLED if place in lost else letter for place, letter in enumerate(text)) if lost else ""
