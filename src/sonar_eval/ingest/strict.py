"""Answers as strict JSON, of bounded size, whatever bots put into their spans."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from ..transcript.wire import ContentRow

MAX_VALUE_CHARS = 64 * 1024
"""What is shown of one message, argument or result; the store keeps all of it."""
_MAX_DEPTH = 100


def strict_json(body: Any) -> bytes:
    """Write JSON that every parser takes: no NaN, no half characters; what JSON has no word for becomes text."""
    try:
        return orjson.dumps(body, default=str)
    except TypeError:
        # Integers beyond 64 bits, half characters, keys that are no text, or too deep: all of it can be in a
        # bot's own JSON, which was read out of an attribute.
        return json.dumps(_plain(body, 0), ensure_ascii=False, allow_nan=False).encode()


def _plain(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return "[nested too deep]"
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int():
            return value
        case Mapping():
            return {_plain(str(key), depth): _plain(entry, depth + 1) for key, entry in value.items()}
        case list() | tuple():
            return [_plain(entry, depth + 1) for entry in value]
    return _plain(str(value), depth)


def cut_content(rows: Iterable[ContentRow]) -> None:
    """Cut what is too long to be shown, and mark it."""
    for row in rows:
        value = row["value"]
        written = value if isinstance(value, str) else _written(value)
        if len(written) > MAX_VALUE_CHARS:
            row["value"], row["cut"] = written[:MAX_VALUE_CHARS], True


def _written(value: Any) -> str:
    if not isinstance(value, list | dict):
        return ""
    return strict_json(value).decode()
