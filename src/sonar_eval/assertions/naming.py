"""Names that are nearly right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(wanted: str, known: Iterable[str]) -> str:
    """Ask "did you mean …?" when one of the names comes close; else say nothing."""
    near = get_close_matches(str(wanted), list(dict.fromkeys(known)), n=1)
    return f"did you mean {near[0]}?" if near else ""
