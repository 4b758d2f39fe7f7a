"""Hand-written stand-ins at the designed seams: a bot, an ingest, and the pieces of a scenario."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from sonar_eval import (
    Assertion,
    AssertionEngine,
    AssertionResult,
    BaseBotAdapter,
    ConversationLog,
    Delivered,
    EndReason,
    Grader,
    LLMConfig,
    Orchestrator,
    Outcome,
    Owner,
    ScenarioConfig,
    ScenarioReport,
    ScriptedClient,
    Session,
    Severity,
    TaskConfig,
    Transcript,
    TrialContext,
    TrialFailure,
    TrialResult,
    Turn,
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


class ToolBot(RecordingBot):
    """Call `tools` at each message, through the trial's interceptor; try a call that fails up to `attempts` times.

    What it did stands in `spans`, by conversation; `BotIngest` hands that out as the trace.
    """

    name = "tool user"

    def __init__(self, *tools: str, attempts: int = 1) -> None:
        super().__init__()
        self.tools = tools
        self.attempts = attempts
        self.spans: dict[str, list[dict[str, Any]]] = {}

    async def setup_trial(self, ctx: TrialContext) -> Session:
        session = await super().setup_trial(ctx)
        session.handle = ctx.interceptor
        return session

    async def send(self, session: Session, user_msg: str, media: Any = None, **extra: Any) -> Delivered:
        for tool in self.tools:
            await self.use(session, tool)
        return await super().send(session, user_msg, media, **extra)

    async def use(self, session: Session, tool: str) -> None:
        spans = self.spans.setdefault(session.conversation_id, [])
        for _ in range(self.attempts):
            place = str(len(spans))
            try:
                await session.handle.run(tool, {}, lambda: "done")
            except Exception as error:
                spans.append(tool_span(tool, span_id=place, success=False, error_type=type(error).__name__))
            else:
                spans.append(tool_span(tool, span_id=place))
                return


class BotIngest:
    """Answer a pull with what the bot says it did."""

    def __init__(self, bot: ToolBot) -> None:
        self.bot = bot

    async def pull(self, conversation_id: str) -> Transcript:
        return Transcript(conversation_id, [{"trace_id": "t1"}], self.bot.spans.get(conversation_id, []))


def judge_check(
    check: Any,
    transcript: Transcript,
    log: ConversationLog | None = None,
    severity: Severity = Severity.SAFETY_CRITICAL,
) -> AssertionResult:
    """Evaluate one check by the engine."""
    log = log or ConversationLog("c", [Turn("hi", ("ok",))], True, EndReason.USER)
    (result,) = AssertionEngine([Assertion("it", severity, check)]).evaluate(transcript, log)
    return result


def trace_of(*spans: dict[str, Any], **changes: Any) -> Transcript:
    """Make a trace of one run; whether it is whole nobody says."""
    return Transcript("c", runs=[{"trace_id": "t1"}], spans=list(spans), **changes)


class MemoryStore:
    """Keep records in lists."""

    def __init__(self) -> None:
        self.trials: list[dict[str, Any]] = []
        self.scenarios: list[dict[str, Any]] = []

    def save_trial(self, record: dict[str, Any]) -> None:
        self.trials.append(record)

    def save_scenario(self, record: dict[str, Any]) -> None:
        self.scenarios.append(record)


def evaluate(
    scenario: ScenarioConfig,
    *,
    bot: BaseBotAdapter | None = None,
    ingest: Any = None,
    model: Any = None,
    judge: Any = None,
    store: Any = None,
    **task: Any,
) -> ScenarioReport:
    """Run a scenario to its report; `judge` is the model, or the replies of one, behind the grader."""

    def make_grader(resolved: ScenarioConfig) -> Grader:
        client = judge if hasattr(judge, "complete") else ScriptedClient(judge)
        return Grader(client, LLMConfig("judge"), resolved.grader_rubric or "")

    orchestrator = Orchestrator(
        make_task(**task),
        bot or RecordingBot(),
        model or ScriptedClient(["hello", "[[END]]"]),
        grader_factory=make_grader if judge is not None else None,
        store=store,
        ingest_client=ingest or FixedIngest(),
    )
    return run(orchestrator.run_scenario(scenario))


def verdict(score: Any, reasoning: str = "because") -> str:
    """Write a judge's answer."""
    return json.dumps({"score": score, "reasoning": reasoning})


def judged_trial(index: int = 0, *held: bool | None, **changes: Any) -> TrialResult:
    """Make a judged trial of one turn; assertion `a0`, `a1`, … held, did not, or (None) is unknown."""
    results = [
        AssertionResult(f"a{place}", Severity.SAFETY_CRITICAL, bool(holds), unknown=holds is None)
        for place, holds in enumerate(held)
    ]
    log = ConversationLog(f"c{index}", [Turn("hi", ("ok",))], True, EndReason.USER)
    return replace(TrialResult(f"c{index}", results, None, log, index=index), **changes)


def errored_trial(index: int = 0, owner: Owner = Owner.INGEST) -> TrialResult:
    """Make a trial that says nothing about the bot."""
    failure = TrialFailure(owner, "pull", "IngestError", "no answer")
    return judged_trial(index, outcome=Outcome.ERRORED, failure=failure)


class BiasedJudge:
    """Judge as `says` does, a function of the prompt and of how often that very prompt was asked before."""

    def __init__(self, says: Callable[[str, int], str]) -> None:
        self.says = says
        self.asked: list[str] = []

    async def complete(self, config: LLMConfig, system: str, messages: list[Any]) -> str:
        prompt = messages[-1].content
        self.asked.append(prompt)
        return self.says(prompt, self.asked.count(prompt) - 1)


class PlantedJudge:
    """A judge of stored trials that asks `client`; `digest` tells it from others."""

    def __init__(
        self, client: Any, *, name: str = "planted", repeats: int = 1, digest: str = "d", threshold: float = 0.7
    ):
        self.client = client
        self.name = name
        self.repeats = repeats
        self.digest = digest

    def grader(self, round_number: int) -> Grader:
        return Grader(self.client, LLMConfig("planted"), "Was it right?", repeats=self.repeats)
