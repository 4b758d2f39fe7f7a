"""k trials of a scenario: at most C at a time, each kept as it finishes, then rolled up."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from .adapter import BotAdapter, Seed, TrialContext, validate_bot_adapter
from .assertions import AssertionEngine, AssertionResult
from .brake import INTERRUPTED, Brake
from .budget import Budget
from .config import ScenarioConfig, TaskConfig
from .conversation import ConversationLog
from .errors import ConfigError, EmptyTranscriptError, Owner, describe
from .grader import Grader
from .limits import job_limit, job_over
from .llm import LLMClient
from .metrics import ScenarioReport, roll_up, summarize
from .recorder import Recorder
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
    digest = hashlib.sha256(f"{base}\x00{scenario}\x00{index}".encode("utf-8", "surrogatepass")).digest()
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
        validate_bot_adapter(adapter, nameless=True)
        _require_plain(store, on_trial)
        self._task = task
        self._recorder = Recorder(NullStore() if store is None else store)
        self._on_trial = on_trial
        earlier = {name: {trial.index: trial for trial in trials} for name, trials in (finished or {}).items()}
        self._finished = _where(earlier, lambda trial: trial.counted)
        self._spoilt = _where(earlier, lambda trial: not trial.counted)
        ingest = ingest_client
        if ingest is None:
            ingest = IngestClient(
                task.ingest_base_url, task.tenant, api_key=task.api_key, api_key_header=task.api_key_header
            )
        self._parts = Parts(task, adapter, llm, ingest, grader_factory)
        self._brakes: set[Brake] = set()
        self._trials: set[asyncio.Task[TrialResult]] = set()
        self._stopped = self._cancelled = False

    async def run_all(self) -> list[ScenarioReport]:
        """Run every scenario of the task, in order; a mistake in any is told before the first trial."""
        resolved = [self._resolve(scenario) for scenario in self._task.scenarios]
        names = [scenario.name for scenario in resolved]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ConfigError(f"two scenarios are named {', '.join(map(repr, doubled))}; give each a name of its own")
        budget = self._budget(resolved)
        return [await self._run(scenario, budget) for scenario in resolved]

    async def run_scenario(self, scenario: ScenarioConfig) -> ScenarioReport:
        """Run k trials and roll them up; raises `ConfigError` for a scenario that cannot be run."""
        resolved = self._resolve(scenario)
        return await self._run(resolved, self._budget([resolved]))

    async def run_trial(self, scenario: ScenarioConfig, index: int) -> TrialResult:
        """Run the trial of one index, with the seed it has among k, and keep its record; `finished` is not asked."""
        resolved = self._task.resolve(scenario)
        async with self._ingest():
            trial = await self._run_trial(resolved, index, Brake(Budget(None, 1)))
        await self._save(resolved, trial)
        return trial

    def stop(self, *, now: bool = False) -> None:
        """Let no further trial start; those under way are finished, or with `now` cancelled after their teardown.

        The report then comes as usual, of the trials that were finished, and says so. Safe to call from a signal
        handler and from any thread; an orchestrator that was stopped stays so.
        """
        self._stopped = True
        self._cancelled = self._cancelled or now
        for brake in tuple(self._brakes):
            brake.pull(INTERRUPTED)
        for task in tuple(self._trials) if now else ():
            task.get_loop().call_soon_threadsafe(self._parts.shelter.cancel, task)

    def _resolve(self, scenario: ScenarioConfig) -> ScenarioConfig:
        resolved = self._task.resolve(scenario)
        if self._task.grader_required and self._parts.grader_factory is None:
            raise ConfigError(
                "grader_required wants a judge, and there is none: give the orchestrator a grader_factory"
            )
        wanted = {assertion.name for assertion in resolved.assertions}
        for trial in self._taken_over(resolved):
            judged_by = {result.name for result in trial.assertions}
            if judged_by != wanted:
                named = ", ".join(map(repr, sorted(judged_by ^ wanted)))
                raise ConfigError(
                    f"scenario {resolved.name!r}: trial {trial.index + 1} was finished under other assertions "
                    f"({named}); judge it again with `rejudge`, or leave it out of `finished`"
                )
        return resolved

    def _budget(self, scenarios: Sequence[ScenarioConfig]) -> Budget:
        budget = Budget(self._task.max_cost_usd, sum(len(self._missing(scenario)) for scenario in scenarios))
        for scenario in scenarios:
            for trial in (*self._taken_over(scenario), *self._spoilt.get(scenario.name, {}).values()):
                budget.carry(trial.spent)
        return budget

    def _taken_over(self, scenario: ScenarioConfig) -> list[TrialResult]:
        done = self._finished.get(scenario.name, {})
        return [done[index] for index in range(scenario.k or 0) if index in done]

    def _missing(self, scenario: ScenarioConfig) -> list[int]:
        done = self._finished.get(scenario.name, {})
        return [index for index in range(scenario.k or 0) if index not in done]

    @asynccontextmanager
    async def _ingest(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if isinstance(self._parts.ingest, AbstractAsyncContextManager):
                await stack.enter_async_context(self._parts.ingest)
            yield

    async def _run(self, scenario: ScenarioConfig, budget: Budget) -> ScenarioReport:
        brake = Brake(budget, stop_early=self._task.stop_early)
        if self._stopped:
            brake.pull(INTERRUPTED)
        self._brakes.add(brake)
        try:
            async with self._ingest():
                return await self._run_trials(scenario, brake)
        finally:
            self._brakes.discard(brake)

    async def _run_trials(self, scenario: ScenarioConfig, brake: Brake) -> ScenarioReport:
        assert scenario.k is not None
        trials = self._taken_over(scenario)
        for trial in trials:
            brake.look(trial)
        fresh = await self._run_missing(scenario, brake)
        if not self._cancelled:
            await self._recheck(scenario, fresh)
        report = roll_up(
            scenario.name,
            [*trials, *fresh],
            k=scenario.k,
            grader_required=self._task.grader_required,
            grader_threshold=self._task.grader_threshold,
            strict_faults=scenario.strict_faults,
            stopped=brake.reason,
            decided=brake.decided,
        )
        report.warnings += brake.budget.warnings
        await self._recorder.keep_scenario(scenario_record(report))
        return report

    async def _run_missing(self, scenario: ScenarioConfig, brake: Brake) -> list[TrialResult]:
        # One queue and C workers, so that what is in memory depends on C and not on k.
        missing = self._missing(scenario)
        places, fresh = iter(missing), list[TrialResult]()
        try:
            async with job_limit(self._task.job_timeout_s), asyncio.TaskGroup() as group:
                for _ in range(min(self._task.concurrency, len(missing))):
                    group.create_task(self._work(scenario, places, fresh, brake))
        except ExceptionGroup as errors:
            # Only a store or a listener can raise here; the first says it all.
            raise errors.exceptions[0] from errors
        return fresh

    async def _work(
        self, scenario: ScenarioConfig, places: Iterator[int], trials: list[TrialResult], brake: Brake
    ) -> None:
        for index in places:
            if not brake.start():
                return
            try:
                trial = await self._run_trial(scenario, index, brake)
            finally:
                brake.end()
            trials.append(trial)
            brake.look(trial)
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
        await self._recorder.keep_trial(record)

    async def _run_trial(self, scenario: ScenarioConfig, index: int, brake: Brake) -> TrialResult:
        """Run one trial, again within the budget while somebody else than the bot fails."""
        earlier: list[TrialFailure] = []
        spent: dict[str, Spend] = {}
        spoilt = self._spoilt.get(scenario.name, {}).get(index)
        if spoilt is not None:
            earlier += [*spoilt.earlier_failures, *([spoilt.failure] if spoilt.failure else [])]
            spent = spoilt.spent
        retries = self._task.retries + len(earlier)
        while True:
            trial = await self._attempt(scenario, index)
            trial.earlier_failures, trial.earlier_spent = list(earlier), spent
            brake.budget.pay(trial.log.spent)
            halted = job_over() or (brake.reason is not None and not brake.decided)
            if trial.failure is None or trial.counted or halted or len(earlier) >= retries:
                return trial
            log.warning("%s trial %d: tried again after %s", scenario.name, index + 1, trial.failure)
            earlier.append(trial.failure)
            spent = trial.spent

    async def _attempt(self, scenario: ScenarioConfig, index: int) -> TrialResult:
        import sonar_tracing

        conversation_id = sonar_tracing.new_conversation()
        seed = trial_seed(self._task.seed, scenario.name, index)
        trial = run_trial(self._parts, scenario, index=index, random_seed=seed, conversation_id=conversation_id)
        try:
            return await self._alone(asyncio.create_task(trial))
        except Exception as error:
            # A fault of our own must not cost the trials beside this one.
            log.exception("%s trial %d: the harness failed", scenario.name, index + 1)
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

    async def _alone(self, trial: asyncio.Task[TrialResult]) -> TrialResult:
        """Wait for a trial: in a task of its own, so that a bot that cancels its task ends no other trial.

        A cancellation of ours is handed on, and passes through once the trial is torn down.
        """
        self._trials.add(trial)
        cancelled: asyncio.CancelledError | None = None
        while not trial.done():
            try:
                await asyncio.wait([trial])
            except asyncio.CancelledError as error:
                cancelled = error
                self._parts.shelter.cancel(trial)
        self._trials.discard(trial)
        if trial.cancelled() and not (cancelled or self._cancelled):
            raise RuntimeError("something cancelled the task of the trial")
        if cancelled:
            raise cancelled
        return trial.result()


def _require_plain(store: ResultStore | None, on_trial: TrialListener | None) -> None:
    """Refuse what would be called and never awaited: it would keep nothing, and nobody would know."""
    named = {f"store.{name}": getattr(store, name, None) for name in ("save_trial", "save_scenario")}
    for name, function in {**named, "on_trial": on_trial}.items():
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{name} must be a plain function, not an async one: it is called from a thread")


def _where(
    earlier: Mapping[str, Mapping[int, TrialResult]], wanted: Callable[[TrialResult], bool]
) -> dict[str, dict[int, TrialResult]]:
    return {
        name: {index: trial for index, trial in trials.items() if wanted(trial)} for name, trials in earlier.items()
    }
