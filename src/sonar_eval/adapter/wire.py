"""The JSON that the harness and a bot's own process speak; read and written by both ends.

`POST   {base}/trials`               a setup, answered `{"conversation_id": …}`
`POST   {base}/trials/{id}/turns`    a turn, answered with what was delivered
`GET    {base}/trials/{id}/snapshot` the bot's state, answered `{"state": …}`; 404 from a bot that shows none
`DELETE {base}/trials/{id}`          tear down; the bot flushes its spans before it answers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..conversation import Delivered, Form, FormField, FormSubmission
from ..errors import describe
from ..interceptor import FaultSpec, deserialize_faults, serialize_faults
from .contract import TrialContext, Variant

DEFAULT_PREFIX = "/sonar-eval"
KEY_HEADER = "x-sonar-eval-key"
KEY_VARIABLE = "SONAR_EVAL_BOT_KEY"
# In the answer to a turn that failed: not the bot did, but the provider of its model.
FAILED = "failed"
PROVIDER = "provider"


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
    variant = _table(body, "variant")
    return TrialSetup(
        conversation_id,
        index=_whole_number(body, "index"),
        random_seed=_whole_number(body, "random_seed"),
        seed=_table(body, "seed"),
        params=_table(body, "params"),
        variant=Variant(**{key: value for key, value in variant.items() if key in Variant.__annotations__}),
        faults=_read_faults(body.get("faults")),
        tenant=body.get("tenant"),
    )


def _table(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = row.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{key}: expected an object, got {value!r}")
    return dict(value or {})


def _whole_number(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key, 0)
    if not isinstance(value, int):
        raise ValueError(f"{key}: expected a whole number, got {value!r}")
    return value


def _read_faults(rows: Any) -> FaultSpec:
    try:
        return deserialize_faults(rows or ())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"faults: expected rows with a target and a known action: {describe(error)}") from error


def write_turn(text: str, submission: FormSubmission | None) -> dict[str, Any]:
    """Write one user turn."""
    return {"text": text, "submission": asdict(submission) if submission else None}


def read_turn(body: Mapping[str, Any]) -> tuple[str, FormSubmission | None]:
    """Read one user turn: its text, and the form with it if there was one."""
    text, form = body.get("text"), body.get("submission")
    if not isinstance(text, str):
        raise ValueError(f"text: expected a string, got {text!r}")
    if form is None:
        return text, None
    if not isinstance(form, Mapping) or not isinstance(form.get("form"), str):
        raise ValueError(f"submission: expected an object with the form's name in 'form', got {form!r}")
    return text, FormSubmission(form["form"], _table(form, "values"))


def write_delivered(delivered: Delivered) -> dict[str, Any]:
    """Write what the user sees; `media` must be plain JSON values."""
    return {
        "messages": list(delivered.messages),
        "forms": [asdict(form) for form in delivered.forms],
        "media": list(delivered.media),
    }


def read_delivered(body: Mapping[str, Any]) -> Delivered:
    """Read what the user sees; raises `ValueError` when it is not of this form."""
    if not isinstance(body, Mapping):
        raise ValueError(f"expected an object with messages, got {body!r}")
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, str) for message in messages):
        raise ValueError(f"messages: expected a list of strings, got {messages!r}")
    try:
        forms = tuple(read_form(form) for form in body.get("forms") or ())
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"forms: expected objects with a name and named fields: {describe(error)}") from error
    return Delivered(tuple(messages), tuple(body.get("media") or ()), forms)


def write_snapshot(state: Any) -> dict[str, Any]:
    """Write the state a bot is in; it must be plain JSON values."""
    return {"state": state}


def read_snapshot(body: Any) -> Any:
    """Read the state a bot is in; raises `ValueError` when it is not of this form."""
    if not isinstance(body, Mapping) or "state" not in body:
        raise ValueError(f"expected an object with the state in 'state', got {body!r}")
    return body["state"]


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
