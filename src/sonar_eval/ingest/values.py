"""Attribute values made plain: redaction markers opened, JSON read, cuts noticed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

_MARKER = "__sonar_redacted__"
_CUT = "...[sonar:truncated]"


@dataclass(frozen=True)
class Plain:
    """A value as it was meant, with what was done to it on its way."""

    value: Any
    redaction: dict[str, Any] | None = None
    """mode, bytes and, with a salt, sha256 of what was withheld."""
    cut: bool = False


def plain(raw: Any) -> Plain:
    """Open a redaction marker, note a cut, and read JSON out of a string; any other text stays text."""
    if not isinstance(raw, str):
        return Plain(raw)
    if raw.endswith(_CUT):
        return Plain(raw, cut=True)
    parsed = _json(raw)
    if not (isinstance(parsed, dict) and _MARKER in parsed):
        return Plain(raw if parsed is None else parsed)
    size, preview = parsed.get("bytes"), parsed.get("preview")
    redaction = {"mode": parsed[_MARKER], "bytes": size, "sha256": parsed.get("sha256")}
    cut = not isinstance(preview, str) or len(preview.encode(errors="replace")) < _whole(size)
    inner = _json(preview) if isinstance(preview, str) and not cut else None
    return Plain(preview if inner is None else inner, redaction, cut)


def plain_result(raw: Any) -> Plain:
    """Make a tool's result plain; a list of one text, as Strands writes it, is that text."""
    opened = plain(raw)
    match opened.value:
        case [{"text": str(text), **rest}] if not rest:
            return replace(opened, value=plain(text).value)
    return opened


def _json(text: str) -> Any:
    """Read text that looks like a JSON object or list; None for any other."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        # What is read here is told on, as strict JSON.
        return json.loads(text, parse_constant=str, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _whole(size: Any) -> int:
    return size if isinstance(size, int) else 0
