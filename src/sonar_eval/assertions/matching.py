"""Comparing what was with what was wanted: values as subsets, texts by regular expression."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import ConfigError

# Sums of money come out of floating-point arithmetic; ids may be large, and are told apart.
_CLOSE = 1e-12


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Name, by their path, the places where `found` lacks something of `wanted`.

    Objects may have more keys than wanted, on every level; lists must have as many entries. Numbers are equal as
    numbers: 5 and 5.0 are the same, true and 1 are not.
    """
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key, value in wanted.items():
            inner = f"{path}.{key}" if path else str(key)
            if key in found:
                yield from differences(value, found[key], inner)
            else:
                yield f"{inner}: wanted {shown(value)}, is missing"
    elif isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        if len(wanted) != len(found):
            yield f"{path or 'the list'}: wanted {len(wanted)} entries, found {len(found)}: {shown(found)}"
            return
        for place, (value, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(value, other, f"{path}[{place}]")
    elif not _equal(wanted, found):
        yield (
            f"{path}: wanted {shown(wanted)}, found {shown(found)}"
            if path
            else (f"wanted {shown(wanted)}, found {shown(found)}")
        )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if isinstance(one, float | int) and isinstance(other, float | int) and float in (type(one), type(other)):
        return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE)
    return bool(one == other)


def shown(value: Any, limit: int = 300) -> str:
    """Write a value as JSON, as far as it can be and not too long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[:limit]}…"


def compiled(pattern: str, *, case: bool = True) -> re.Pattern[str]:
    """Compile a pattern; raises `ConfigError` when it is no regular expression over texts."""
    if not isinstance(pattern, str | re.Pattern):
        raise ConfigError(f"{pattern!r} is no regular expression: it must be a text")
    try:
        found = re.compile(pattern, 0 if case else re.IGNORECASE)
        # Bytes make a pattern too, one that no text can be held against.
        found.search("")
        return found
    except (re.error, TypeError, ValueError) as error:
        raise ConfigError(f"{pattern!r} is no regular expression: {error}") from error
