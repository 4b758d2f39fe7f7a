"""The answer to "what happened in this conversation?": rows that the ingest writes and the harness reads.

`GET /v1/conversations/{id}?tenant=T` is answered with `runs`, `spans` and `content`. Unknown keys are left
alone by readers, so that either end may be newer.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict
from urllib.parse import quote

TRACES_PATH = "/v1/traces"
DEFAULT_KEY_HEADER = "x-sonar-api-key"
DEFAULT_PORT = 4319

# The last span of a trial, made by the bot's process: how many spans it made for the conversation.
MARKER_NAME = "sonar.eval.trial.end"
MARKER_STARTED = "sonar.eval.end.started"
MARKER_ENDED = "sonar.eval.end.ended"
MARKER_XOR = "sonar.eval.end.xor"
MARKER_PROCESS = "sonar.eval.end.process"


class RunRow(TypedDict):
    """One trace of the conversation, usually one turn of the bot."""

    trace_id: str
    head_span_id: str
    name: str
    started_at: str | None
    duration_ms: float | None
    status: str
    error_type: str | None
    input_tokens: int | None
    """None where nothing tells, or a model call does not tell what it took."""
    output_tokens: int | None
    input_tokens_at_least: NotRequired[int]
    """What the other model calls took, where one does not tell."""
    output_tokens_at_least: NotRequired[int]
    tokens_basis: str | None
    model: str | None
    framework: str | None
    scopes: list[str]
    cached_tokens: NotRequired[int]
    """The part of the input that came from a provider's cache, where that is known and more than nothing."""


class SpanRow(TypedDict):
    """One span, under the meaning its convention gives it."""

    span_id: str
    trace_id: str
    parent_span_id: str | None
    kind: str
    name: str
    tool_name: str | None
    tool_success: bool | None
    success_basis: str | None
    soft_error: bool
    error_type: str | None
    error_message: str | None
    started_at: str | None
    duration_ms: float | None
    call_id: str | None
    source: str
    conflict: bool
    late: bool
    fault: NotRequired[dict[str, Any] | None]
    """The injected fault the bot marked the span with: action, rule, call_index."""


class ContentRow(TypedDict):
    """One piece of text: a message, or the arguments or result of a tool."""

    span_id: str
    trace_id: str
    seq: int
    role: str | None
    type: str
    name: str | None
    call_id: str | None
    value: Any
    redaction: dict[str, Any] | None
    cut: bool


class Answer(TypedDict):
    """The whole answer."""

    conversation_id: str
    tenant: str
    runs: list[RunRow]
    spans: list[SpanRow]
    content: list[ContentRow]


DIGESTS_PATH = "/v1/digests"
"""Answers `{"digests": {id: digest}}` for the conversations named by `id`, up to `MOST_DIGESTS` at once."""
MOST_DIGESTS = 100


def conversation_path(conversation_id: str) -> str:
    """Return the path of one conversation; any text may be an id."""
    segment = quote(conversation_id, safe="")
    # Clients take the dots of "." and ".." for a way up the path.
    return "/v1/conversations/" + (segment if segment.strip(".") else segment.replace(".", "%2E"))


def read_rows(body: Any, key: str) -> list[dict[str, Any]]:
    """Take one list of rows out of an answer; raises `ValueError` when it is not one."""
    rows = body.get(key, []) if isinstance(body, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"expected an object with a list of objects in {key!r}")
    return rows
