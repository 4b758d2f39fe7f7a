"""Names of tools: which are none, and which are nearly right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from ..errors import ConfigError


def require_name(what: str, name: Any) -> None:
    """Raise `ConfigError` for what cannot be the name of a tool: no call would ever bear it."""
    if not is_name(name):
        raise ConfigError(f"{what} needs the name of one tool, got {name!r}")


def is_name(name: Any) -> bool:
    """Tell whether a tool could be called that."""
    return isinstance(name, str) and bool(name.strip())


def suggestion(wanted: str, known: Iterable[str]) -> str:
    """Ask "did you mean …?" when one of the names comes close; else say nothing."""
    near = get_close_matches(str(wanted), list(dict.fromkeys(known)), n=1)
    return f"did you mean {near[0]}?" if near else ""
