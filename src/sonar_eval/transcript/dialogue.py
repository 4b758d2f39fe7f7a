"""What user and bot said to each other, as far as the trace tells: models are sent the conversation so far."""

from __future__ import annotations

import json
from typing import Any

from ..conversation import Turn
from .view import Transcript


def turns_of(transcript: Transcript) -> list[Turn] | None:
    """Read the turns from the input and output of the last model call; None where they are not all there.

    There must be a user message for each trace of the conversation, and none of the messages withheld.
    """
    asked = [row for row in transcript.content if row.get("role") == "user" and row.get("type") == "message"]
    if not asked:
        return None
    last = (asked[-1].get("trace_id"), asked[-1].get("span_id"))
    rows = [
        row
        for row in transcript.content
        if (row.get("trace_id"), row.get("span_id")) == last and row.get("type") == "message"
    ]
    spoken = [row for row in sorted(rows, key=_place) if row.get("role") in ("user", "assistant")]
    if any(row.get("redaction") or row.get("cut") or row.get("value") is None for row in spoken):
        return None
    turns: list[Turn] = []
    for row in spoken:
        said = _text(row["value"])
        if row["role"] == "user":
            turns.append(Turn(said, ()))
        elif turns:
            turns[-1].delivered += (said,)
    return turns if len(turns) >= len(transcript.runs) else None


def _place(row: dict[str, Any]) -> int:
    return int(row.get("seq") or 0)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
