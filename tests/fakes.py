"""Hand-written stand-ins at the designed seams: a bot, an ingest, and the pieces of a scenario."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from sonar_eval import (
    Assertion,
    BaseBotAdapter,
    Delivered,
    LLMConfig,
    ScenarioConfig,
    Session,
    Severity,
    TaskConfig,
    Transcript,
    TrialContext,
)

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(coroutine)


class RecordingBot(BaseBotAdapter):
    """Answer by `answer` (a text, or a function of the user's message) and keep what happened."""

    name = "recording"

    def __init__(self, answer: str | Callable[[str], Any] = "ok") -> None:
        self.answer = answer
        self.contexts: list[TrialContext] = []
        self.sent: list[str] = []
        self.extras: list[dict[str, Any]] = []
        self.torn_down: list[Session] = []

    async def setup_trial(self, ctx: TrialContext) -> Session:
        self.contexts.append(ctx)
        return Session(ctx.conversation_id)

    async def send(self, session: Session, user_msg: str, media: Any = None, **extra: Any) -> Delivered:
        self.sent.append(user_msg)
        self.extras.append(extra)
        answer = self.answer(user_msg) if callable(self.answer) else self.answer
        return answer if isinstance(answer, Delivered) else Delivered((answer,))

    async def teardown_trial(self, session: Session) -> None:
        self.torn_down.append(session)


class FixedIngest:
    """Answer every pull with the same rows; `failures` raises the given errors first, one per pull."""

    def __init__(self, spans: Iterable[dict[str, Any]] = (), *, failures: Iterable[Exception] = ()) -> None:
        self.spans = list(spans) or [tool_span("menu_lookup")]
        self.failures = list(failures)
        self.pulled: list[str] = []

    async def pull(self, conversation_id: str) -> Transcript:
        self.pulled.append(conversation_id)
        if self.failures:
            raise self.failures.pop(0)
        return Transcript(conversation_id, runs=[{"trace_id": "t1"}], spans=[dict(span) for span in self.spans])


def tool_span(name: str, *, success: bool | None = True, **more: Any) -> dict[str, Any]:
    """Make the row of a tool's span."""
    return {
        "kind": "tool",
        "span_id": more.pop("span_id", name),
        "trace_id": "t1",
        "tool_name": name,
        "tool_success": success,
        "error_type": None,
        **more,
    }


def make_task(**changes: Any) -> TaskConfig:
    """Make a task whose ingest is never reached over HTTP."""
    return TaskConfig("http://127.0.0.1:1", "acme", LLMConfig("user"), LLMConfig("judge"), **changes)


def make_scenario(name: str = "s", **changes: Any) -> ScenarioConfig:
    """Make a scenario of one scripted message and one safety-critical assertion that holds."""
    settings: dict[str, Any] = {
        "scripted_messages": ["hello"],
        "assertions": [Assertion("always", Severity.SAFETY_CRITICAL, lambda transcript, log: True)],
        "k": 1,
    }
    return ScenarioConfig(name, "say hello", **{**settings, **changes})
