"""Attribute values made plain: redaction markers opened, JSON and Python literals read, cuts noticed.

What comes out is strict JSON, however odd the attribute was.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

_MARKER = "__sonar_redacted__"
_CUT = "...[sonar:truncated]"
# What is nested deeper is kept as text: readers of JSON stop somewhere, and nobody reads that far.
_MAX_DEPTH = 60
_MAX_LITERAL = 100_000
# Python never writes such an escape, and would warn of it when reading.
_NO_PYTHON_ESCAPE = re.compile(r"""(?<!\\)(?:\\\\)*\\[^\\'"abfnrtvxuUN0-7\n]""")
_BETWEEN = re.compile(r"[,\s]*")
# What Python shows and JSON lacks.
_PYTHON = re.compile(r"^\s*\(|'|\b(?:None|True|False)\b")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Plain:
    """A value as it was meant, with what was done to it on its way."""

    value: Any
    redaction: dict[str, Any] | None = None
    """mode, bytes and, with a salt, sha256 of what was withheld."""
    cut: bool = False


def plain(raw: Any) -> Plain:
    """Open redaction markers, note cuts, and read JSON or a Python literal out of a string; other text stays text."""
    if not isinstance(raw, str):
        return _walked(raw)
    opened = _opened(raw)
    if opened.cut or not isinstance(opened.value, str):
        return opened
    structure = read_structure(opened.value)
    if isinstance(structure, str):
        return replace(opened, value=structure)
    inner = _walked(structure)
    return Plain(inner.value, opened.redaction or inner.redaction, inner.cut)


def plain_text(raw: Any) -> Plain:
    """Open redaction markers and note cuts; what somebody said stays as it was said, JSON or not."""
    return _opened(raw) if isinstance(raw, str) else _walked(raw)


def label(raw: Any) -> str | None:
    """Return a name, a role or an id, out of its redaction marker; None when there is none."""
    if raw is None:
        return None
    if isinstance(raw, str):
        opened = _opened(raw).value if _MARKER in raw else raw
        return opened or None
    return str(raw) if isinstance(raw, (int, float)) and not isinstance(raw, bool) else None


def count(raw: Any) -> int | None:
    """Return a number of tokens; whole floats and digits count, anything else is no number."""
    if isinstance(raw, str) and raw.isascii() and raw.isdecimal() and len(raw) < 20:
        return int(raw)
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < 2**63 else None


def items(raw: Any) -> tuple[list[Any], Plain]:
    """Return the entries of a list, however it was written, and the whole of it; of a cut list those still whole."""
    opened = _opened(raw) if isinstance(raw, str) else Plain(raw)
    value = opened.value
    if isinstance(value, str):
        value = _leading_entries(value) if opened.cut else read_structure(value)
    if isinstance(value, dict):
        return [value], opened
    return (list(value) if isinstance(value, (list, tuple)) else []), opened


def leading_text(text: str, key: str) -> str | None:
    """Return the string under the first key of a JSON object that was cut somewhere behind it."""
    start = re.match(rf'\s*{{\s*"{key}"\s*:\s*', text)
    try:
        found, _ = _DECODER.raw_decode(text, start.end()) if start else (None, 0)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def read_structure(text: str) -> Any:
    """Read an object or list out of text, written in JSON or as Python shows it; the text itself when it is neither."""
    head = text.lstrip()[:1]
    if head == '"':
        # A text that was written as JSON before it became an attribute.
        inner = _json(text)
        return read_structure(inner) if isinstance(inner, str) and inner != text else text
    if head not in ("{", "[", "("):
        return text
    found = _json(text)
    if found is None:
        found = _literal(text)
    return text if found is None else found


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _literal(text: str) -> Any:
    if len(text) > _MAX_LITERAL or not _PYTHON.search(text) or _NO_PYTHON_ESCAPE.search(text):
        return None
    try:
        found = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, (dict, list, tuple)) else None


def _leading_entries(text: str) -> list[Any]:
    found: list[Any] = []
    place = text.find("[") + 1 if text.lstrip().startswith("[") else len(text)
    while place < len(text):
        try:
            entry, place = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            break
        found.append(entry)
        between = _BETWEEN.match(text, place)
        place = between.end() if between else place
    return found


def _opened(text: str) -> Plain:
    """Take what a redaction marker left, as text."""
    if text.endswith(_CUT):
        return Plain(text, cut=True)
    marker = _json(text) if _MARKER in text else None
    return _from_marker(marker) if isinstance(marker, dict) and _MARKER in marker else Plain(text)


def _from_marker(marker: Mapping[str, Any]) -> Plain:
    size, preview, digest = count(marker.get("bytes")), marker.get("preview"), marker.get("sha256")
    redaction = {
        "mode": str(marker[_MARKER]),
        "bytes": size,
        "sha256": digest if isinstance(digest, str) else None,
    }
    if not isinstance(preview, str):
        return Plain(None, redaction, cut=True)
    return Plain(preview, redaction, len(preview.encode("utf-8", "replace")) < (size or 0))


def _walked(value: Any) -> Plain:
    """Go through a structure: strict JSON comes out, and no marker stays closed."""
    found: list[Plain] = []
    walked = _walk(value, _MAX_DEPTH, found)
    redaction = next((leaf.redaction for leaf in found if leaf.redaction), None)
    return Plain(walked, redaction, any(leaf.cut for leaf in found))


def _walk(value: Any, depth: int, found: list[Plain]) -> Any:
    if isinstance(value, str):
        if _MARKER not in value and not value.endswith(_CUT):
            return value
        leaf = _opened(value)
        found.append(leaf)
        return leaf.value
    if value is None or isinstance(value, int):
        # Python refuses to write a number of thousands of digits.
        return hex(value) if value is not None and value.bit_length() > 4096 else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        if _MARKER in value:
            found.append(_from_marker(value))
            return found[-1].value
        return {str(key): _walk(entry, depth - 1, found) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_walk(entry, depth - 1, found) for entry in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
