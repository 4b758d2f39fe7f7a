"""What the user saw: messages, media, forms and their answers, turn by turn.

Nothing here knows of tools, traces or verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .usage import Spend


@dataclass(frozen=True)
class FormField:
    """One field of a form the bot sends."""

    name: str
    type: str = "text"
    required: bool = False
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Form:
    """A form the bot asks the user to fill in."""

    name: str
    title: str = ""
    fields: tuple[FormField, ...] = ()


@dataclass(frozen=True)
class FormSubmission:
    """What the user entered into the form called `form`."""

    form: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Delivered:
    """What one `send` put in front of the user, and nothing else."""

    messages: tuple[str, ...] = ()
    media: tuple[Any, ...] = ()
    forms: tuple[Form, ...] = ()


@dataclass
class Turn:
    """One message of the user and what the bot delivered in answer."""

    user: str
    delivered: tuple[str, ...]
    submission: FormSubmission | None = None
    forms: tuple[Form, ...] = ()
    latency_s: float | None = field(default=None, compare=False)
    """Seconds between handing the message over and having the answer, without waits for a provider's rate limit."""
    media: tuple[str, ...] = ()
    """The files and pictures the bot sent, by what it calls them."""


@dataclass(frozen=True)
class RoleBreak:
    """A message in which the simulated user spoke as if it were the chatbot."""

    turn: int
    """1-based."""
    reason: str
    text: str

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= 200 else f"{self.text[:200]}…"
        return f"turn {self.turn}: the simulated user fell out of its role ({self.reason}): {shown!r}"


class EndReason(StrEnum):
    """Why a conversation ended."""

    USER = "user"
    """The user gave the end signal."""
    SCRIPT = "script"
    """The scripted messages were used up."""
    TURN_LIMIT = "turn_limit"
    """Cut off: the user had not finished."""
    SILENT_USER = "silent_user"
    """The simulator said nothing, twice; an error of the simulator."""


@dataclass
class ConversationLog:
    """The conversation as the user lived it."""

    conversation_id: str
    turns: list[Turn] = field(default_factory=list)
    terminated: bool = False
    """Whether the user ended it; false when it was cut off or broke."""
    ended_by: EndReason | None = None
    final_state: Any = None
    """What the adapter's `snapshot` gave before teardown; None without one."""
    spent: dict[str, Spend] = field(default_factory=dict)
    """What the models of the trial used up, by role."""
    role_breaks: list[RoleBreak] = field(default_factory=list)
    """Where the simulated user spoke as the chatbot; says nothing about the bot."""

    @property
    def turns_taken(self) -> int:
        """Count the turns in which the bot was sent something."""
        return len(self.turns)

    @property
    def cut_off(self) -> bool:
        """Tell whether the turn limit ended it."""
        return self.ended_by is EndReason.TURN_LIMIT

    def unfilled(self) -> list[str]:
        """Say which required fields of a form were handed in empty."""
        shown: dict[str, Form] = {}
        notes = []
        for number, turn in enumerate(self.turns, 1):
            form = shown.get(turn.submission.form) if turn.submission else None
            if form is not None and turn.submission is not None:
                values = turn.submission.values
                missing = [
                    field.name for field in form.fields if field.required and values.get(field.name) in (None, "")
                ]
                notes += (
                    [f"turn {number}: form {form.name} was handed in without {', '.join(missing)}"] if missing else []
                )
            shown |= {form.name: form for form in turn.forms}
        return notes

    def bot_said(self) -> str:
        """Join everything the bot delivered, in order."""
        return "\n".join(message for turn in self.turns for message in turn.delivered)
