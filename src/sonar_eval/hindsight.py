"""Judging without calling the bot: a trial that is on disk, or a conversation it had with somebody else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .assertions import AssertionEngine
from .config import ScenarioConfig
from .conversation import ConversationLog, Turn
from .errors import Owner
from .results import Outcome, TrialFailure, TrialResult
from .transcript import Transcript, turns_of
from .trial import GraderFactory, grade, not_held, require_whole
from .usage import Role

_NOT_TOLD = "the trace does not tell {}"
_WORDS = _NOT_TOLD.format("what the user and the bot said to each other")
_NEVER_TRACED = {
    "terminated": _NOT_TOLD.format("who ended the conversation"),
    "ended_by": _NOT_TOLD.format("who ended the conversation"),
    "final_state": _NOT_TOLD.format("in what state the conversation left the world"),
    "spent": _NOT_TOLD.format("what the user's side used up"),
}


class TracedLog(ConversationLog):
    """A conversation read from its trace; asked for what `missing` names, it raises `LookupError` with the reason.

    A check that rests on it thereby becomes unknown, where a guess would have made it hold or fail.
    """

    def __init__(self, conversation_id: str, turns: list[Turn], missing: Mapping[str, str]) -> None:
        super().__init__(conversation_id, turns)
        self._missing = missing

    def __getattribute__(self, name: str) -> Any:
        """Return what the trace tells."""
        missing = object.__getattribute__(self, "__dict__").get("_missing", {})
        if name in missing:
            raise LookupError(missing[name])
        return super().__getattribute__(name)


@dataclass(frozen=True)
class _Judging:
    grader_factory: GraderFactory | None


async def judge_again(
    scenario: ScenarioConfig, trial: TrialResult, grader_factory: GraderFactory | None = None
) -> TrialResult:
    """Return `trial` with the verdicts that `scenario` (resolved) and its judge give over what is stored of it.

    What says nothing about the bot stays so, and a bot that failed holds none of the assertions.
    """
    again = replace(
        trial,
        assertions=[],
        grader=None,
        grader_failure=None,
        judge_asked=False,
        # The conversation cost what it did; only the judge is another.
        log=replace(trial.log, spent={role: spend for role, spend in trial.log.spent.items() if role != Role.JUDGE}),
        warnings=list(trial.warnings),
    )
    if trial.outcome is Outcome.BOT_FAILURE and trial.failure is not None:
        again.assertions = not_held(scenario, trial.failure)
    if trial.outcome is Outcome.JUDGED and trial.transcript is not None:
        await _judge(scenario, again, again.log, trial.transcript, grader_factory)
    return again


async def judge_conversation(
    scenario: ScenarioConfig, transcript: Transcript, grader_factory: GraderFactory | None = None
) -> TrialResult:
    """Judge a conversation the bot had with anybody by its trace, under `scenario` (resolved).

    What user and bot said is read from the messages in the trace; where they are not all there, and for what
    no trace holds, checks are unknown and no judge is asked. Raises `IngestError` when the trace is not whole.
    """
    require_whole(transcript, scenario)
    turns = turns_of(transcript)
    log = ConversationLog(transcript.conversation_id, turns or [])
    result = TrialResult(
        transcript.conversation_id,
        [],
        None,
        log,
        transcript=transcript,
        digest=(transcript.completeness or {}).get("digest"),
    )
    missing = _NEVER_TRACED if turns else {**_NEVER_TRACED, "turns": _WORDS}
    seen = TracedLog(transcript.conversation_id, turns or [], missing)
    if not turns:
        result.warnings.append(_WORDS)
    await _judge(scenario, result, seen, transcript, grader_factory)
    return result


async def _judge(
    scenario: ScenarioConfig,
    result: TrialResult,
    seen: ConversationLog,
    transcript: Transcript,
    grader_factory: GraderFactory | None,
) -> None:
    engine = AssertionEngine(scenario.assertions)
    result.assertions = await asyncio.to_thread(engine.evaluate, transcript, seen)
    if not result.log.turns and grader_factory is not None and scenario.grader_rubric:
        result.judge_asked = True
        result.grader_failure = TrialFailure(Owner.INGEST, "conversation", "LookupError", _WORDS)
        return
    await grade(_Judging(grader_factory), scenario, transcript, result)
