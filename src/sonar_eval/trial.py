"""The story of one conversation, from setup to verdict; each step under its border."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from .accounting import metered, metered_grader, note_bot
from .adapter import BotAdapter, Seed, Session, TrialContext, Variant, take_snapshot
from .assertions import AssertionEngine, AssertionResult
from .brake import Shelter
from .config import ScenarioConfig, TaskConfig
from .conversation import ConversationLog, EndReason
from .errors import (
    BoundaryError,
    EmptyTranscriptError,
    HarnessError,
    IngestError,
    Owner,
    SimulatorError,
    border_error,
    boundary,
    crossed,
)
from .grader import Grader
from .interceptor import FaultLedger, Fidelity, ProxyInterceptor, RuleReport, rule_reports
from .limits import Deadline, job_deadline, job_over, until, within
from .llm import LLMClient, LLMConfig
from .results import GraderResult, Outcome, TrialFailure, TrialResult
from .simulator import UserSimulator
from .threshold import meets
from .transcript import Expectation, Transcript, carry_marks, mark_faults
from .usage import Role

GraderFactory = Callable[[ScenarioConfig], Grader]


class TranscriptSource(Protocol):
    """Whatever can be asked for a conversation's trace."""

    async def pull(self, conversation_id: str) -> Transcript:
        """Return the trace once it is whole."""
        ...


class Judging(Protocol):
    """Whatever says who judges."""

    @property
    def grader_factory(self) -> GraderFactory | None:
        """Return what makes a judge; None when nobody judges."""
        ...


@dataclass(frozen=True)
class Parts:
    """What every trial of a run shares."""

    task: TaskConfig
    adapter: BotAdapter
    llm: LLMClient
    ingest: TranscriptSource
    grader_factory: GraderFactory | None = None
    shelter: Shelter = field(default_factory=Shelter)


@dataclass
class _Story:
    """What is known of a trial so far; whatever happens next, this is not lost."""

    context: TrialContext
    log: ConversationLog
    transcript: Transcript | None = None
    failure: BoundaryError | None = None
    began: float = field(default_factory=time.monotonic)
    warnings: list[str] = field(default_factory=list)
    deadlines: tuple[Deadline | None, ...] = ()


async def run_trial(
    parts: Parts,
    scenario: ScenarioConfig,
    *,
    index: int,
    random_seed: int,
    conversation_id: str,
) -> TrialResult:
    """Hold one conversation and judge it; never raises for what fails on the way.

    `scenario` must be resolved. To be run in a task of its own: a cancellation by the shelter passes through, after
    teardown, and any other is the failure of whoever was at work. Where the trial's own time limit passes, it ends
    with the error of whoever is at work then, and where the job's does, with the harness's; torn down as ever. A job
    whose time is over runs nothing more.
    """
    started_at, started = datetime.now(UTC).isoformat(), time.perf_counter()
    story = _Story(_context(parts, scenario, index, random_seed, conversation_id), ConversationLog(conversation_id))
    story.deadlines = (Deadline.after(parts.task.trial_timeout_s, "trial's"), job_deadline())
    try:
        await _take_place(parts, scenario, story)
    except BoundaryError as error:
        story.failure = error
        story.transcript = await _salvage(parts, story.log)
    except asyncio.CancelledError as error:
        if parts.shelter.has_asked():
            raise
        # Nothing is awaited from here on: whatever cancelled the task may do so again.
        owner, step = crossed(error) or (Owner.HARNESS, "trial")
        story.failure = border_error(owner, "CancelledError: it cancelled the task of its trial", step=step)
    ledger = story.context.faults.ledger
    if ledger is not None and ledger.mistakes:
        # Whatever came of the call: the rule is not the bot's.
        story.failure = HarnessError("; ".join(ledger.mistakes), step="fault rule")
    story.warnings += [*map(str, story.log.role_breaks), *story.log.unfilled()]
    result = await _judge(parts, scenario, story)
    result.started_at, result.duration_s = started_at, time.perf_counter() - started
    return result


async def _take_place(parts: Parts, scenario: ScenarioConfig, story: _Story) -> None:
    if job_over():
        raise HarnessError("not run: the job's time limit was reached", step="job")
    await _converse(parts, scenario, story)
    async with until(*story.deadlines):
        story.transcript = await _pull(parts, scenario, story)


def _context(
    parts: Parts, scenario: ScenarioConfig, index: int, random_seed: int, conversation_id: str
) -> TrialContext:
    faults = replace(scenario.faults, ledger=FaultLedger(), seed=random_seed)
    variant = parts.task.variant
    return TrialContext(
        conversation_id,
        Seed(copy.deepcopy(scenario.seed)),
        faults,
        scenario.fidelity,
        index=index,
        random_seed=random_seed,
        variant=replace(variant, model_params=copy.deepcopy(variant.model_params)),
        params=copy.deepcopy(scenario.params),
        interceptor=ProxyInterceptor(faults),
        tenant=parts.task.tenant,
    )


async def _converse(parts: Parts, scenario: ScenarioConfig, story: _Story) -> None:
    session = Session(story.context.conversation_id)
    try:
        async with until(*story.deadlines):
            with boundary(Owner.HARNESS, "setup"):
                session = await _set_up(parts, story.context)
            await _simulate(parts, scenario, story, session)
    finally:
        with parts.shelter.closing():
            await _tear_down(parts, story, session)


async def _set_up(parts: Parts, context: TrialContext) -> Session:
    async with within(parts.task.setup_timeout_s, "setup did not end within"):
        return await parts.adapter.setup_trial(context)


async def _simulate(parts: Parts, scenario: ScenarioConfig, story: _Story, session: Session) -> None:
    assert scenario.user_llm is not None, "the scenario was not resolved"
    config = _seeded(scenario.user_llm, story.context.random_seed)
    with metered(parts.llm, Role.SIMULATOR, story.log) as meter, boundary(Owner.SIMULATOR, "conversation"):
        simulator = UserSimulator(
            meter,
            config,
            scenario,
            turn_timeout_s=parts.task.turn_timeout_s,
            user_timeout_s=parts.task.user_timeout_s,
        )
        await simulator.run(parts.adapter, session, story.log)
    if story.log.ended_by is EndReason.SILENT_USER:
        raise SimulatorError("the simulated user said nothing, twice in a row", step="user model")
    if not story.log.turns:
        raise SimulatorError("the simulated user ended the conversation before its first message", step="user model")
    await _keep_state(parts, story, session)


async def _keep_state(parts: Parts, story: _Story, session: Session) -> None:
    """Keep the state that the adapter shows before teardown; what it cannot show is a note, and unknown to checks."""
    try:
        async with asyncio.timeout(parts.task.teardown_timeout_s):
            with boundary(Owner.HARNESS, "snapshot"):
                story.log.final_state = await take_snapshot(parts.adapter, session)
    except TimeoutError:
        story.warnings.append(f"the snapshot did not end within {parts.task.teardown_timeout_s:g} s")
    except BoundaryError as error:
        story.warnings.append(f"the snapshot failed: {error}")


async def _tear_down(parts: Parts, story: _Story, session: Session) -> None:
    """Release the trial; what goes wrong here is a note beside the verdict, never in its place."""
    try:
        async with asyncio.timeout(parts.task.teardown_timeout_s):
            with boundary(Owner.HARNESS, "teardown"):
                await parts.adapter.teardown_trial(session)
    except TimeoutError:
        story.warnings.append(f"teardown did not end within {parts.task.teardown_timeout_s:g} s")
    except BoundaryError as error:
        story.warnings.append(f"teardown failed: {error}")


async def _pull(parts: Parts, scenario: ScenarioConfig, story: _Story) -> Transcript:
    conversation_id = story.context.conversation_id
    expect = getattr(parts.ingest, "expect", None)
    if expect is not None:
        expect(conversation_id, Expectation(story.log.turns_taken, conversation_id, story.began))
    with boundary(Owner.INGEST, "pull"):
        transcript = await parts.ingest.pull(conversation_id)
        if transcript.is_empty:
            raise EmptyTranscriptError(f"no transcript: nothing is in the trace of conversation {conversation_id}")
        require_whole(transcript, scenario)
    return transcript


def require_whole(transcript: Transcript, scenario: ScenarioConfig) -> None:
    """Raise `IngestError` for a trace that is not whole, or not known to be as far as the scenario wants it."""
    level = (transcript.completeness or {}).get("level")
    too_low = level is not None and level < scenario.min_level
    if transcript.incomplete or too_low:
        reasons = "; ".join((transcript.completeness or {}).get("reasons") or ["no reason given"])
        wanted = f" (known to level {level}, {scenario.min_level} wanted)" if too_low else ""
        raise IngestError(f"incomplete transcript{wanted}: {reasons}", step="pull")


async def _salvage(parts: Parts, log: ConversationLog) -> Transcript | None:
    """Fetch what there is of a trial that failed, for whoever wants to know why."""
    fetch = getattr(parts.ingest, "fetch", None)
    if fetch is None or not log.turns:
        return None
    try:
        transcript: Transcript = await fetch(log.conversation_id)
    except Exception:
        return None
    return None if transcript.is_empty else transcript


async def _judge(parts: Parts, scenario: ScenarioConfig, story: _Story) -> TrialResult:
    _mark_faults(story)
    result = TrialResult(
        story.context.conversation_id,
        [],
        None,
        story.log,
        index=story.context.index,
        transcript=story.transcript,
        faults=_faults(story),
        random_seed=story.context.random_seed,
        warnings=story.warnings,
        digest=((story.transcript and story.transcript.completeness) or {}).get("digest"),
    )
    note_bot(story.log, story.transcript, story.context.variant)
    if story.failure is not None:
        result.failure = TrialFailure.of(story.failure)
        by_bot = story.failure.owner is Owner.BOT
        result.outcome = Outcome.BOT_FAILURE if by_bot else Outcome.ERRORED
        result.assertions = not_held(scenario, result.failure) if by_bot else []
        return result
    assert story.transcript is not None
    if story.transcript.redacted:
        story.warnings.append("the trace is redacted: checks and judge did not see all content")
    # A check may be slow; other trials share this loop.
    engine = AssertionEngine(scenario.assertions)
    result.assertions = await asyncio.to_thread(engine.evaluate, story.transcript, story.log)
    await grade(parts, scenario, story.transcript, result, story.deadlines)
    result.grader = _gated(parts.task, result.grader)
    return result


def _gated(task: TaskConfig, verdict: GraderResult | None) -> GraderResult | None:
    # A judge of a lower threshold must not pass a trial that fails the mean.
    if not task.grader_required or verdict is None or verdict.score is None:
        return verdict
    return verdict if meets(verdict.score, task.grader_threshold) else replace(verdict, passed=False)


async def rejudge(
    scenario: ScenarioConfig, trial: TrialResult, transcript: Transcript, variant: Variant | None = None
) -> None:
    """Evaluate the assertions of a trial over a trace that grew after it was graded, and say so."""
    transcript = carry_marks(trial.transcript, transcript)
    if variant is not None:
        note_bot(trial.log, transcript, variant)
    trial.transcript, trial.changed_after_grading = transcript, True
    trial.warnings.append("changed after grading: spans came later; the assertions were evaluated again")
    if trial.outcome is Outcome.JUDGED:
        engine = AssertionEngine(scenario.assertions)
        trial.assertions = await asyncio.to_thread(engine.evaluate, transcript, trial.log)


def not_held(scenario: ScenarioConfig, failure: TrialFailure) -> list[AssertionResult]:
    """List every assertion as one that a bot which failed did not keep."""
    return [
        AssertionResult(assertion.name, assertion.severity, False, str(failure)) for assertion in scenario.assertions
    ]


async def grade(
    parts: Judging,
    scenario: ScenarioConfig,
    transcript: Transcript,
    result: TrialResult,
    deadlines: Iterable[Deadline | None] = (),
) -> None:
    """Put a conversation before the judge, if there is one and a rubric; never raises."""
    if parts.grader_factory is None or not scenario.grader_rubric:
        return
    result.judge_asked = True
    try:
        async with until(*deadlines):
            with (
                boundary(Owner.JUDGE, "grader"),
                metered_grader(parts.grader_factory(scenario), result.log) as grader,
            ):
                verdict = _sound(await grader.grade(transcript, result.log))
    except BoundaryError as error:
        result.grader_failure = TrialFailure.of(error)
        return
    if verdict.shortened:
        result.warnings.append("the judge saw a shortened conversation: it is longer than max_prompt_chars")
    if verdict.error is None:
        result.grader = verdict
        result.warnings += _judge_notes(verdict)
    else:
        said = f"{verdict.error}; the judge said: {verdict.reasoning[:500]}"
        result.grader_failure = TrialFailure(Owner.JUDGE, "verdict", "unreadable", said)


def _sound(verdict: Any) -> GraderResult:
    """Refuse what a judge of one's own may return and no mean could be taken of."""
    if not isinstance(verdict, GraderResult):
        raise TypeError(f"grade() must return a GraderResult, got {verdict!r}")
    score: Any = verdict.score
    number = isinstance(score, int | float) and not isinstance(score, bool)
    if verdict.error is None and not (number and 0 <= score <= 1):
        raise ValueError(f"grade() must give a score from 0 to 1, or an error, got {score!r}")
    return verdict


def _judge_notes(verdict: GraderResult) -> list[str]:
    lost = verdict.repeats - len(verdict.scores) if verdict.repeats > 1 else 0
    return [f"{lost} of {verdict.repeats} answers of the judge gave no score"] if lost > 0 else []


def _mark_faults(story: _Story) -> None:
    """Show checks and judge which calls our own interceptors hit, should the bot not have marked its spans."""
    ledger = story.context.faults.ledger
    if story.transcript is not None and ledger is not None:
        story.transcript = mark_faults(story.transcript, ledger.firings, ledger.calls_seen)


def _faults(story: _Story) -> list[RuleReport]:
    """Count what fired: by the interceptors in this process, or by the marks the bot left on its spans."""
    spec, ledger = story.context.faults, story.context.faults.ledger
    assert ledger is not None
    marked = story.transcript is not None and any(call.fault for call in story.transcript.tool_calls)
    # A bot in a process of its own applies the faults it is sent whatever it is told of their fidelity.
    if story.context.fidelity is Fidelity.MOCKED and (ledger.calls_seen or not marked):
        return rule_reports(spec, [(firing.rule, firing.call_index) for firing in ledger.firings], ledger.calls_seen)
    if story.transcript is None:
        # Without a trace nobody knows what the bot's own process did.
        return []
    calls = story.transcript.tool_calls
    # Marks are the bot's own words: one that names no rule counts for none.
    marks = [(call.fault.get("rule", -1), call.fault.get("call_index", 0)) for call in calls if call.fault]
    return rule_reports(spec, marks, Counter(call.name for call in calls))


def _seeded(config: LLMConfig, random_seed: int) -> LLMConfig:
    return replace(config, seed=random_seed) if config.seed is None else config
