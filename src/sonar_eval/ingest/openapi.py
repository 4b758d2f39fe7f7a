"""The GET side, described in OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from ..transcript.wire import DIGESTS_PATH, MOST_DIGESTS
from ..version import __version__
from .question import MAX_LEVEL, MAX_PAGE, MAX_WAIT_S, QUIET_S, VIEWS

_ERROR = {
    "description": "What is wrong",
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
        }
    },
}
_OBJECT = {"type": "object"}
_ROWS = {"type": "array", "items": _OBJECT}


def description(key_header: str) -> dict[str, Any]:
    """Describe the queries and their answers."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "sonar-eval ingest", "version": __version__},
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": key_header}}},
        "security": [{"key": []}],
        "paths": {
            "/v1/conversations": {"get": _list()},
            "/v1/conversations/{conversation_id}": {"get": _conversation()},
            DIGESTS_PATH: {"get": _digests()},
            "/healthz": {"get": {**_plain("The process lives"), "security": []}},
            "/readyz": {"get": {**_plain("The database answers", "503"), "security": []}},
        },
    }


def _list() -> dict[str, Any]:
    body = {
        "type": "object",
        "required": ["tenant", "conversations", "next_before"],
        "properties": {
            "tenant": {"type": "string"},
            "conversations": _ROWS,
            "next_before": {"type": ["integer", "null"]},
        },
    }
    parameters = [
        _tenant(),
        _query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}),
        _query("before", {"type": "integer", "minimum": 0, "maximum": 2**62}),
    ]
    return {
        "summary": "List conversations, the one that grew last first",
        "parameters": parameters,
        "responses": _answers(body, "400", "401", "404", "503"),
    }


def _conversation() -> dict[str, Any]:
    number = {"type": "number", "minimum": 0, "maximum": 1_000_000_000}
    body = {"oneOf": [_shown(), _digest()]}
    parameters = [
        {"name": "conversation_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
        _tenant(),
        _query("wait", number, f"Seconds to wait for the conversation to be complete; {MAX_WAIT_S:g} at most"),
        _query("first", number, "Of these, how many to wait for its first span"),
        _query("min_level", {"type": "integer", "minimum": 0, "maximum": MAX_LEVEL}, "The level that is waited for"),
        _query("turns", {"type": "integer", "minimum": 0, "maximum": 1_000_000_000}, "How many turns the user took"),
        _query("traces", {"type": "string"}, "Traces that must be there, by id, with commas between"),
        _query("since", number, "How many seconds ago the conversation began"),
        _query("quiet", number, f"Seconds without a span that mean that no more will come; {QUIET_S:g} if not said"),
        _query("seal", {"type": "string"}, "The trial that is graded by the answer; what comes later is marked late"),
        _query("view", {"type": "string", "enum": list(VIEWS)}, "The conversation, or its digest only"),
    ]
    return {
        "summary": "Show what a conversation did",
        "parameters": parameters,
        "responses": _answers(body, "400", "401", "404", "409", "413", "503"),
    }


def _shown() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["conversation_id", "tenant", "runs", "spans", "content", "completeness"],
        "properties": {
            "conversation_id": {"type": "string"},
            "tenant": {"type": "string"},
            "runs": _ROWS,
            "spans": _ROWS,
            "content": _ROWS,
            "completeness": _OBJECT,
        },
    }


def _digest() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["conversation_id", "digest"],
        "properties": {"conversation_id": {"type": "string"}, "digest": {"type": "string"}},
    }


def _digests() -> dict[str, Any]:
    ids = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_DIGESTS}
    body = {
        "type": "object",
        "required": ["tenant", "digests"],
        "properties": {
            "tenant": {"type": "string"},
            "digests": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    return {
        "summary": "Tell the present states of conversations from any other",
        "parameters": [_tenant(), {**_query("id", ids, "A conversation; may be repeated"), "required": True}],
        "responses": _answers(body, "400", "401", "404", "503"),
    }


def _plain(summary: str, *errors: str) -> dict[str, Any]:
    return {"summary": summary, "responses": _answers(_OBJECT, *errors)}


def _tenant() -> dict[str, Any]:
    return {"name": "tenant", "in": "query", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query(name: str, schema: dict[str, Any], said: str = "") -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, **({"description": said} if said else {})}


def _answers(body: dict[str, Any], *errors: str) -> dict[str, Any]:
    good = {"description": "As asked", "content": {"application/json": {"schema": body}}}
    return {"200": good, **dict.fromkeys(errors, _ERROR)}
