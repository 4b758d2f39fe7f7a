"""The JSON that the harness and a bot's own process speak; read and written by both ends.

`POST   {base}/trials`               a setup, answered `{"conversation_id": …}`
`POST   {base}/trials/{id}/turns`    a turn, answered with what was delivered
`DELETE {base}/trials/{id}`          tear down; the bot flushes its spans before it answers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..conversation import Delivered, Form, FormField, FormSubmission
from ..interceptor import FaultSpec, deserialize_faults, serialize_faults
from .contract import TrialContext, Variant

DEFAULT_PREFIX = "/sonar-eval"
KEY_HEADER = "x-sonar-eval-key"
KEY_VARIABLE = "SONAR_EVAL_BOT_KEY"


@dataclass(frozen=True)
class TrialSetup:
    """What a bot's process is told before the first turn."""

    conversation_id: str
    index: int = 0
    random_seed: int = 0
    seed: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    variant: Variant = field(default_factory=Variant)
    faults: FaultSpec = field(default_factory=FaultSpec)
    tenant: str | None = None


def write_setup(ctx: TrialContext) -> dict[str, Any]:
    """Write a trial's setup; raises `ValueError` on a fault that cannot cross a process border."""
    return {
        "conversation_id": ctx.conversation_id,
        "index": ctx.index,
        "random_seed": ctx.random_seed,
        "seed": ctx.seed.data,
        "params": ctx.params,
        "variant": asdict(ctx.variant),
        "faults": serialize_faults(ctx.faults),
        "tenant": ctx.tenant,
    }


def read_setup(body: Mapping[str, Any]) -> TrialSetup:
    """Read a trial's setup; raises `ValueError` naming what is missing or of the wrong kind."""
    conversation_id = body.get("conversation_id")
    if not isinstance(conversation_id, str) or not conversation_id:
        raise ValueError(f"conversation_id: expected a non-empty string, got {conversation_id!r}")
    variant = body.get("variant") or {}
    return TrialSetup(
        conversation_id,
        index=int(body.get("index", 0)),
        random_seed=int(body.get("random_seed", 0)),
        seed=dict(body.get("seed") or {}),
        params=dict(body.get("params") or {}),
        variant=Variant(**{key: value for key, value in variant.items() if key in Variant.__annotations__}),
        faults=deserialize_faults(body.get("faults") or ()),
        tenant=body.get("tenant"),
    )


def write_turn(text: str, submission: FormSubmission | None) -> dict[str, Any]:
    """Write one user turn."""
    return {"text": text, "submission": asdict(submission) if submission else None}


def read_turn(body: Mapping[str, Any]) -> tuple[str, FormSubmission | None]:
    """Read one user turn: its text, and the form with it if there was one."""
    text, form = body.get("text"), body.get("submission")
    if not isinstance(text, str):
        raise ValueError(f"text: expected a string, got {text!r}")
    return text, FormSubmission(form["form"], dict(form.get("values") or {})) if form else None


def write_delivered(delivered: Delivered) -> dict[str, Any]:
    """Write what the user sees; `media` must be plain JSON values."""
    return {
        "messages": list(delivered.messages),
        "forms": [asdict(form) for form in delivered.forms],
        "media": list(delivered.media),
    }


def read_delivered(body: Mapping[str, Any]) -> Delivered:
    """Read what the user sees; raises `ValueError` when it is not of this form."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, str) for message in messages):
        raise ValueError(f"messages: expected a list of strings, got {messages!r}")
    return Delivered(
        tuple(messages),
        tuple(body.get("media") or ()),
        tuple(read_form(form) for form in body.get("forms") or ()),
    )


def read_form(row: Mapping[str, Any]) -> Form:
    """Read one form."""
    fields = tuple(
        FormField(
            str(entry["name"]),
            str(entry.get("type", "text")),
            bool(entry.get("required", False)),
            tuple(entry.get("options") or ()),
        )
        for entry in row.get("fields") or ()
    )
    return Form(str(row["name"]), str(row.get("title", "")), fields)
