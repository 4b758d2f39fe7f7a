"""The human side of a conversation: played by a model, by a script, or one after the other.

Sees only what the bot delivered, never its tools or spans.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from .adapter import BotAdapter, Session
from .config import ScenarioConfig
from .conversation import ConversationLog, Delivered, EndReason, Form, FormSubmission, RoleBreak, Turn
from .errors import LLMSilenceError, Owner, boundary
from .limits import require_time, within
from .llm import LLMClient, LLMConfig, Message
from .utterance import EndSignal, Utterance, is_blank, role_break, spoken

__all__ = ["ConversationLog", "Turn", "UserSimulator"]

_OPENING = "(The chat is open. Write your first message.)"
_NOTHING_DELIVERED = "(The chatbot sent nothing.)"


class UserSimulator:
    """Talk to a bot as `scenario` says, until the end signal or the turn limit."""

    def __init__(
        self,
        client: LLMClient,
        config: LLMConfig,
        scenario: ScenarioConfig,
        *,
        turn_timeout_s: float | None = None,
        user_timeout_s: float | None = None,
    ) -> None:
        self._client = client
        self._config = config
        self._scenario = scenario
        self._turn_timeout_s = turn_timeout_s
        self._user_timeout_s = user_timeout_s
        self._system = _system_prompt(scenario)
        self._signal = EndSignal(scenario.termination_signal)
        script = scenario.scripted_messages
        self._scripted = script is not None
        self._words = [message for message in script or scenario.opening_messages or () if not is_blank(message)]

    async def run(self, adapter: BotAdapter, session: Session, log: ConversationLog | None = None) -> ConversationLog:
        """Hold the conversation and return it; a `log` given is filled as it goes, so that it outlives a failure.

        Raises `BotError` when the bot fails and `SimulatorError` when the model playing the user does. A
        model that stays silent twice ends it with `EndReason.SILENT_USER`.
        """
        log = ConversationLog(session.conversation_id) if log is None else log
        history = [Message("user", _OPENING)]
        forms: tuple[Form, ...] = ()
        while log.turns_taken < self._scenario.max_turns:
            said = await self._say(history, log)
            if said is None:
                return log
            if said.text:
                with boundary(Owner.BOT, f"turn {log.turns_taken + 1}"):
                    delivered = await self._send(adapter, session, said.text, forms, log)
                    shown = _shown(delivered)
                forms = delivered.forms or forms
                history += [Message("assistant", said.text), Message("user", shown)]
            if said.ends:
                log.terminated, log.ended_by = True, EndReason.USER
                return log
        if self._scripted and log.turns_taken == len(self._words):
            log.terminated, log.ended_by = True, EndReason.SCRIPT
        else:
            log.ended_by = EndReason.TURN_LIMIT
        return log

    async def _say(self, history: list[Message], log: ConversationLog) -> Utterance | None:
        """Return what the user says next; None when there is nothing, with the reason in the log."""
        if log.turns_taken < len(self._words):
            return self._signal.cut(self._words[log.turns_taken])
        if self._scripted:
            log.terminated, log.ended_by = True, EndReason.SCRIPT
            return None
        said = await self._write(history) or await self._write(self._reminded(history))
        if said is None:
            log.ended_by = EndReason.SILENT_USER
        else:
            self._watch(said, log)
        return said

    async def _write(self, history: list[Message]) -> Utterance | None:
        """Have the model write; None when it says nothing."""
        said = self._signal.cut(spoken(await self._next_message(history)))
        return said if said.text or said.ends else None

    def _watch(self, said: Utterance, log: ConversationLog) -> None:
        reason = role_break(said.text, log.turns[-1].delivered if log.turns else ())
        if reason is not None:
            log.role_breaks.append(RoleBreak(log.turns_taken + 1, reason, said.text))

    async def _next_message(self, history: list[Message]) -> str:
        with boundary(Owner.SIMULATOR, "user model"):
            try:
                async with within(self._user_timeout_s, "the model that plays the user said nothing within"):
                    said = await self._client.complete(self._config, self._system, list(history)) or ""
            except LLMSilenceError:
                said = ""
            require_time()
            return said

    def _reminded(self, history: list[Message]) -> list[Message]:
        reminder = (
            "\n(Your last message was empty. Write what you, the user, say next, "
            f"or {self._scenario.termination_signal} alone if you are done.)"
        )
        return [*history[:-1], replace(history[-1], content=history[-1].content + reminder)]

    async def _send(
        self,
        adapter: BotAdapter,
        session: Session,
        text: str,
        forms: tuple[Form, ...],
        log: ConversationLog,
    ) -> Delivered:
        submission = _parse_submission(text, forms)
        extra: dict[str, Any] = {"submission": submission} if submission else {}
        turn = Turn(text, (), submission)
        log.turns.append(turn)
        async with within(self._turn_timeout_s, "no answer within") as clock:
            try:
                delivered = await adapter.send(session, text, **extra)
            finally:
                turn.latency_s = clock.taken_s
            await _let_cancellation_in()
        require_time()
        sound = _read_once(delivered)
        turn.delivered, turn.media, turn.forms = sound.messages, sound.media, sound.forms
        return sound


async def _let_cancellation_in() -> None:
    """Have a bot that cancelled its task and went on meet that here, and nobody else later."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)


def _system_prompt(scenario: ScenarioConfig) -> str:
    persona = f"\nWho you are: {scenario.persona.instructions}\n" if scenario.persona else ""
    return f"""You play a person who writes to a chatbot. Stay in that role from first to last.
{persona}
What you are here for:
{scenario.user_instructions.strip()}

How to write:
- Only what the person would type: short, natural, one message at a time. Never answer as the chatbot.
- You see what the chatbot sends you and nothing else.
- A form arrives in square brackets with its fields. To hand it in, write one JSON object and nothing beside it:
  {{"form": "<name of the form>", "values": {{"<field>": <value>}}}}
  with a fitting value for every required field.
- When you have what you came for, or it is plain that you will not get it, write {scenario.termination_signal}.
"""


def _read_once(delivered: Any) -> Delivered:
    """Return what was delivered as tuples, its media as texts: an iterator gives what it holds only once."""
    if isinstance(delivered, type) or not all(hasattr(delivered, part) for part in ("messages", "media", "forms")):
        raise TypeError(f"send() must return Delivered(...), got {delivered!r}")
    return Delivered(
        _tuple_of(delivered.messages, "messages", "texts", str),
        tuple(map(_media_text, _tuple_of(delivered.media, "media", "names or addresses", object))),
        _tuple_of(delivered.forms, "forms", "Form", Form),
    )


def _tuple_of(parts: Any, name: str, wanted: str, kind: type) -> tuple[Any, ...]:
    if isinstance(parts, tuple) and not parts:
        return ()
    found = tuple(parts) if isinstance(parts, Iterable) and not isinstance(parts, str | bytes) else None
    if found is None or not all(isinstance(part, kind) for part in found):
        raise TypeError(f"send() must deliver its {name} as a tuple of {wanted}, got {found or parts!r}")
    return found


def _media_text(media: Any) -> str:
    return f"{len(media)} bytes" if isinstance(media, bytes | bytearray) else str(media)


def _shown(delivered: Delivered) -> str:
    parts = [*delivered.messages, *(_describe_form(form) for form in delivered.forms)]
    parts += [f"[The chatbot sent a file or picture: {media}]" for media in delivered.media]
    return "\n".join(part for part in parts if not is_blank(part)) or _NOTHING_DELIVERED


def _describe_form(form: Form) -> str:
    fields = "; ".join(
        f"{field.name} ({field.type}{', required' if field.required else ''}"
        + (f", one of: {', '.join(field.options)}" if field.options else "")
        + ")"
        for field in form.fields
    )
    titled = f" “{form.title}”" if form.title else ""
    return f"[The chatbot sent the form {form.name}{titled} to fill in. Fields: {fields}]"


def _parse_submission(text: str, forms: tuple[Form, ...]) -> FormSubmission | None:
    """Read a submission of one of the forms that are open; anything else is just a message."""
    start, end = text.find("{"), text.rfind("}")
    if not forms or start < 0 or end < start:
        return None
    try:
        body = json.loads(text[start : end + 1])
    except ValueError:
        return None
    values = body.get("values") if isinstance(body, dict) else None
    if not isinstance(values, dict):
        return None
    named = [form.name for form in forms if form.name == body.get("form")]
    # Where only one form is open nobody can mean another, whatever a model calls it.
    found = named or [form.name for form in forms if len(forms) == 1]
    return FormSubmission(found[0], values) if found else None
