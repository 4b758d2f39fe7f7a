"""What a convention can tell of a span."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..span import Span


@dataclass(frozen=True)
class MessageReading:
    """One message of a model's input or output."""

    role: str | None
    value: Any
    """As it was sent; redaction markers and JSON are still to be opened."""
    output: bool
    kind: str = "message"
    """message, tool_arguments (a call the model asks for), tool_result, or answer (to the user, in a call's form)."""
    name: str | None = None
    call_id: str | None = None


@dataclass
class Reading:
    """What one convention understood; None or empty where it has no opinion."""

    kind: str | None = None
    """tool, llm, agent, chain, retriever, embedding or other."""
    tool_name: str | None = None
    call_id: str | None = None
    arguments: Any = None
    """As they were sent, like `result`."""
    result: Any = None
    failure: str | None = None
    """What on the span says outright that the tool failed, beside the status that every span has."""
    unsettled: str | None = None
    """What on the span says that the tool neither worked nor failed: called off, postponed, handed over."""
    told_by_result: bool | None = None
    """Whether failures may be told in the result alone, so that a result that was cut off tells nothing."""
    success: bool | None = None
    success_basis: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """The part of the input that came from the provider's cache."""
    cumulative: bool | None = None
    """Whether the tokens of an agent include those of its earlier runs."""
    model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    fault: dict[str, Any] | None = None
    messages: list[MessageReading] = field(default_factory=list)

    def fill(self, other: Reading) -> None:
        """Take from `other` what is still missing here."""
        mine = vars(self)
        for name, value in vars(other).items():
            if value is not None and mine[name] is None:
                mine[name] = value


class Convention(Protocol):
    """One way of naming things on spans; whoever has nothing to say on a question leaves it as it is here."""

    kind_rank: int = 9
    """Whose word on the kind of a span counts first where several have one: the lowest."""
    roots: frozenset[str] | None = None
    """What the attributes it reads begin with, up to the first or second dot; it is asked only where one is there."""

    def kind(self, span: Span) -> str | None:
        """Say what kind of span this is; None when nothing of this convention tells."""
        return None

    def read(self, span: Span, kind: str) -> Reading | None:
        """Say what this convention understands of `span`, which is of that kind; messages come separately."""
        return None

    def messages(self, span: Span) -> Iterable[MessageReading]:
        """Read what went into a model and came out of it; asked of model spans only."""
        return ()


_FINISH = {
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use", "tool-calls", "function_call"), "tool_calls"),
    **dict.fromkeys(("stop", "end_turn", "completed"), "stop"),
    **dict.fromkeys(("length", "max_tokens"), "length"),
}


def finish_reason(reasons: list[Any]) -> str | None:
    """Return why a model stopped, under one name for all providers; that it wants tools outweighs the rest."""
    named = [_FINISH.get(reason.lower(), reason) for reason in reasons if isinstance(reason, str) and reason]
    return "tool_calls" if "tool_calls" in named else next(iter(named), None)
