"""Where two conversations part ways: words first, then tool calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Divergence:
    """The first place at which two conversations differ, 0-based; None where they never do."""

    turn: int | None
    tool_call: int | None


def first_divergence(a: Record, b: Record) -> Divergence:
    """Compare two trials turn by turn and call by call; ids and times do not matter."""
    return Divergence(_first_difference(words(a), words(b)), _first_difference(tool_calls(a), tool_calls(b)))


def _first_difference(a: Sequence[str], b: Sequence[str]) -> int | None:
    for place, (mine, theirs) in enumerate(zip(a, b, strict=False)):
        if mine != theirs:
            return place
    return None if len(a) == len(b) else min(len(a), len(b))


def words(record: Record) -> list[str]:
    """Write each turn down: what the user and the bot said, and the media and forms between them."""
    return [
        _written(
            [turn["user"], list(turn["delivered"]), _submitted(turn), turn.get("forms") or [], turn.get("media") or []]
        )
        for turn in record.get("conversation") or []
    ]


def _submitted(turn: Mapping[str, Any]) -> Any:
    submission = turn.get("submission")
    return [submission["form"], submission["values"]] if submission else None


def tool_calls(record: Record) -> list[str]:
    """Write each tool call down, in order: its name, its arguments, and whether it succeeded."""
    transcript = record.get("transcript") or {}
    arguments = {
        (row.get("trace_id"), row["span_id"]): row["value"]
        for row in transcript.get("content") or []
        if row["type"] == "tool_arguments"
    }
    return [
        _written([span.get("tool_name"), arguments.get((span.get("trace_id"), span.get("span_id"))), outcome])
        for span in transcript.get("spans") or []
        if span.get("kind") == "tool"
        for outcome in (span.get("tool_success"),)
    ]


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def signature(record: Record) -> tuple[str, ...] | None:
    """Write down everything that was said and called; None when nothing was said."""
    said = words(record)
    return (*said, "", *tool_calls(record)) if said else None
