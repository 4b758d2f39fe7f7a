"""k trials of a scenario: at most C at a time, each kept as it finishes, then rolled up."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from .adapter import BotAdapter, Seed, TrialContext, validate_bot_adapter
from .assertions import AssertionEngine, AssertionResult
from .config import ScenarioConfig, TaskConfig
from .conversation import ConversationLog
from .errors import ConfigError, EmptyTranscriptError, Owner, describe
from .grader import Grader
from .limits import job_limit, job_over
from .llm import LLMClient
from .metrics import ScenarioReport, roll_up, summarize
from .records import scenario_record, trial_record
from .results import GraderResult, Outcome, TrialFailure, TrialResult
from .simulator import UserSimulator
from .store import NullStore, ResultStore
from .transcript import IngestClient
from .trial import GraderFactory, Parts, TranscriptSource, rejudge, run_trial
from .usage import Spend

# The parts a run is made of were always importable from here, and still are.
__all__ = [
    "AssertionEngine",
    "AssertionResult",
    "BotAdapter",
    "ConversationLog",
    "EmptyTranscriptError",
    "Grader",
    "GraderResult",
    "IngestClient",
    "LLMClient",
    "NullStore",
    "Orchestrator",
    "ResultStore",
    "ScenarioConfig",
    "ScenarioReport",
    "Seed",
    "TaskConfig",
    "TrialContext",
    "TrialResult",
    "UserSimulator",
    "summarize",
    "trial_seed",
]

log = logging.getLogger(__name__)

TrialListener = Callable[[TrialResult], None]


def trial_seed(base: int, scenario: str, index: int) -> int:
    """Derive a trial's random seed (0..2**63-1) from the run's, the scenario's name and the trial's index.

    Model, prompt and fault are left out on purpose: trial i of A and of B meet the same user.
    """
    digest = hashlib.sha256(f"{base}\x00{scenario}\x00{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class Orchestrator:
    """Run the scenarios of `task` against one bot.

    `llm` plays the user. `grader_factory` makes a judge for a scenario that has a rubric. `on_trial` is told
    of each trial once its record is kept. `finished` holds, by scenario name, trials of an earlier run: those
    that say something about the bot are taken over by their index and not run again. Raises `TypeError` for
    something that is no adapter.
    """

    def __init__(
        self,
        task: TaskConfig,
        adapter: BotAdapter,
        llm: LLMClient,
        *,
        grader_factory: GraderFactory | None = None,
        store: ResultStore | None = None,
        ingest_client: TranscriptSource | None = None,
        on_trial: TrialListener | None = None,
        finished: Mapping[str, Iterable[TrialResult]] | None = None,
    ) -> None:
        validate_bot_adapter(adapter)
        self._task = task
        self._store = NullStore() if store is None else store
        self._on_trial = on_trial
        self._finished = {
            name: {trial.index: trial for trial in trials if trial.counted} for name, trials in (finished or {}).items()
        }
        ingest = ingest_client
        if ingest is None:
            ingest = IngestClient(
                task.ingest_base_url, task.tenant, api_key=task.api_key, api_key_header=task.api_key_header
            )
        self._parts = Parts(task, adapter, llm, ingest, grader_factory)

    async def run_all(self) -> list[ScenarioReport]:
        """Run every scenario of the task, in order; a mistake in any is told before the first trial."""
        resolved = [self._task.resolve(scenario) for scenario in self._task.scenarios]
        names = [scenario.name for scenario in resolved]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ConfigError(f"two scenarios are named {', '.join(map(repr, doubled))}; give each a name of its own")
        return [await self._run(scenario) for scenario in resolved]

    async def run_scenario(self, scenario: ScenarioConfig) -> ScenarioReport:
        """Run k trials and roll them up; raises `ConfigError` for a scenario that cannot be run."""
        return await self._run(self._task.resolve(scenario))

    async def _run(self, scenario: ScenarioConfig) -> ScenarioReport:
        async with AsyncExitStack() as stack:
            if isinstance(self._parts.ingest, AbstractAsyncContextManager):
                await stack.enter_async_context(self._parts.ingest)
            return await self._run_trials(scenario)

    async def _run_trials(self, scenario: ScenarioConfig) -> ScenarioReport:
        assert scenario.k is not None
        # One queue and C workers, so that what is in memory depends on C and not on k.
        done = self._finished.get(scenario.name, {})
        missing = [index for index in range(scenario.k) if index not in done]
        trials = [done[index] for index in range(scenario.k) if index in done]
        fresh: list[TrialResult] = []
        places = iter(missing)
        try:
            async with job_limit(self._task.job_timeout_s), asyncio.TaskGroup() as group:
                for _ in range(min(self._task.concurrency, len(missing))):
                    group.create_task(self._work(scenario, places, fresh))
        except ExceptionGroup as errors:
            # Only a store or a listener can raise here; the first says it all.
            raise errors.exceptions[0] from errors
        await self._recheck(scenario, fresh)
        report = roll_up(
            scenario.name,
            [*trials, *fresh],
            k=scenario.k,
            grader_required=self._task.grader_required,
            grader_threshold=self._task.grader_threshold,
            strict_faults=scenario.strict_faults,
        )
        await self._keep(self._store.save_scenario, scenario_record(report))
        return report

    async def _work(self, scenario: ScenarioConfig, places: Iterator[int], trials: list[TrialResult]) -> None:
        for index in places:
            trial = await self._run_trial(scenario, index)
            trials.append(trial)
            await self._save(scenario, trial)
            trial.pack()
            if self._on_trial is not None:
                self._on_trial(trial)

    async def _recheck(self, scenario: ScenarioConfig, trials: list[TrialResult]) -> None:
        """Look once more at what was graded: a span that came later counts, and is told."""
        digests, fetch = (getattr(self._parts.ingest, name, None) for name in ("digests", "fetch"))
        sealed = [trial for trial in trials if trial.digest is not None and trial.counted]
        if digests is None or fetch is None or not sealed:
            return
        try:
            later = await digests([trial.conversation_id for trial in sealed])
        except Exception as error:
            for trial in sealed:
                trial.warnings.append(f"not looked at again after grading: {describe(error)}")
            return
        for trial in sealed:
            if later.get(trial.conversation_id) in (None, trial.digest):
                continue
            try:
                await rejudge(scenario, trial, await fetch(trial.conversation_id), self._task.variant)
            except Exception as error:
                trial.warnings.append(f"not looked at again after grading: {describe(error)}")
                continue
            await self._save(scenario, trial)
            trial.pack()

    async def _save(self, scenario: ScenarioConfig, trial: TrialResult) -> None:
        record = trial_record(scenario.name, trial, grader_required=self._task.grader_required)
        await self._keep(self._store.save_trial, record)

    async def _run_trial(self, scenario: ScenarioConfig, index: int = 0) -> TrialResult:
        """Run one trial, again within the budget while somebody else than the bot fails."""
        earlier: list[TrialFailure] = []
        spent: dict[str, Spend] = {}
        while True:
            trial = await self._attempt(scenario, index)
            trial.earlier_failures, trial.earlier_spent = list(earlier), spent
            if trial.failure is None or trial.counted or len(earlier) >= self._task.retries or job_over():
                return trial
            log.warning("%s trial %d: tried again after %s", scenario.name, index, trial.failure)
            earlier.append(trial.failure)
            spent = trial.spent

    async def _attempt(self, scenario: ScenarioConfig, index: int) -> TrialResult:
        import sonar_tracing

        conversation_id = sonar_tracing.new_conversation()
        seed = trial_seed(self._task.seed, scenario.name, index)
        try:
            return await run_trial(
                self._parts, scenario, index=index, random_seed=seed, conversation_id=conversation_id
            )
        except Exception as error:
            # A fault of our own must not cost the trials beside this one.
            log.exception("%s trial %d: the harness failed", scenario.name, index)
            failure = TrialFailure(Owner.HARNESS, "trial", type(error).__name__, describe(error))
            return TrialResult(
                conversation_id,
                [],
                None,
                ConversationLog(conversation_id),
                index=index,
                outcome=Outcome.ERRORED,
                failure=failure,
                random_seed=seed,
            )

    async def _keep(self, save: Callable[[dict[str, Any]], None], record: dict[str, Any]) -> None:
        # Writing and syncing takes milliseconds that would stall every other trial on this loop.
        await asyncio.to_thread(save, record)
