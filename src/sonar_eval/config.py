"""What is to be run: one task, its scenarios, and one merge of the two."""

from __future__ import annotations

import copy
import math
import operator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .adapter import Variant
from .assertions import Assertion
from .errors import ConfigError, describe
from .interceptor import FaultRule, FaultSpec, Fidelity, serialize_faults
from .llm import LLMConfig
from .predicate import unfit
from .rubric import Rubric, criteria_of

__all__ = ["FaultSpec", "Fidelity", "LLMConfig", "Persona", "ScenarioConfig", "TaskConfig"]


@dataclass(frozen=True)
class Persona:
    """Who the simulated user is."""

    name: str
    instructions: str


@dataclass
class ScenarioConfig:
    """One situation to put the bot into."""

    name: str
    user_instructions: str
    assertions: list[Assertion] = field(default_factory=list)
    k: int | None = None
    """Trials; None takes the task's `default_k`."""
    fidelity: Fidelity = Fidelity.MOCKED
    faults: FaultSpec = field(default_factory=FaultSpec)
    persona: Persona | None = None
    seed: dict[str, Any] = field(default_factory=dict)
    """The state each trial starts from; every trial gets a copy of its own."""
    params: dict[str, Any] = field(default_factory=dict)
    grader_rubric: Rubric | None = None
    """A text, or a list of named criteria that are judged one by one."""
    user_llm: LLMConfig | None = None
    grader_llm: LLMConfig | None = None
    termination_signal: str = "[[END]]"
    max_turns: int = 20
    scripted_messages: list[str] | None = None
    min_level: int = 1
    """How far a trace must be known to be whole to be judged: 1 quiet, 2 structural, 3 counted."""
    strict_faults: bool = False
    """Whether a fault that never took place fails the scenario."""
    opening_messages: list[str] | None = None
    """What the user says first, word for word; then the model goes on. Not beside `scripted_messages`."""


@dataclass
class TaskConfig:
    """What holds for every scenario of a run."""

    ingest_base_url: str
    tenant: str
    user_llm: LLMConfig
    grader_llm: LLMConfig
    project: str = "eval-fullcontent"
    api_key: str | None = field(default=None, repr=False)
    api_key_header: str = "x-sonar-api-key"
    default_k: int = 5
    scenarios: list[ScenarioConfig] = field(default_factory=list)
    concurrency: int = 1
    """Trials at a time; more than 1 wants an adapter without state of its own."""
    seed: int = 0
    """From this, the scenario's name and the trial's index comes each trial's random seed."""
    retries: int = 0
    """How often a trial that somebody else's failure spoilt is tried again."""
    variant: Variant = field(default_factory=Variant)
    setup_timeout_s: float | None = None
    turn_timeout_s: float | None = None
    teardown_timeout_s: float = 30.0
    grader_required: bool = False
    """Whether the judge's score gates: every trial graded, the mean at the threshold."""
    grader_threshold: float = 0.7
    user_timeout_s: float | None = 600.0
    """How long the model that plays the user may take for one message; over it is the simulator's failure."""
    trial_timeout_s: float | None = None
    """How long a trial may take; over it is the failure of whoever is at work then: the bot, while it answers."""
    job_timeout_s: float | None = None
    """How long the trials of a scenario may take together; what is not over then is errored, never the bot's."""
    stop_early: bool = False
    """Whether a scenario ends once a safety-critical assertion did not hold; its rates are then biased."""
    max_cost_usd: float | None = None
    """What a run may cost; no trial starts that is expected to exceed it."""

    def resolve(self, scenario: ScenarioConfig) -> ScenarioConfig:
        """Fill in what the scenario leaves to the task.

        Raises `ConfigError` (a `ValueError`) naming the scenario and what is wrong with it.
        """
        resolved = replace(
            scenario,
            k=_whole(f"scenario {scenario.name!r}: k", self.default_k if scenario.k is None else scenario.k),
            max_turns=_whole(f"scenario {scenario.name!r}: max_turns", scenario.max_turns),
            user_llm=scenario.user_llm or self.user_llm,
            grader_llm=scenario.grader_llm or self.grader_llm,
            fidelity=_fidelity(scenario),
        )
        self._require_sound()
        _require_kinds(resolved)
        _require_words(resolved)
        if resolved.min_level not in (0, 1, 2, 3):
            raise ConfigError(f"scenario {resolved.name!r}: min_level must be 0 to 3, got {resolved.min_level!r}")
        _require_assertions(resolved)
        _require_distinct(resolved)
        _require_faults(resolved)
        _require_copies(resolved)
        if resolved.fidelity is Fidelity.REAL:
            _require_portable(resolved)
        return resolved

    def _require_sound(self) -> None:
        _whole("task: concurrency", self.concurrency)
        _whole("task: retries", self.retries, least=0)
        if not (_is_number(self.grader_threshold) and 0 <= self.grader_threshold <= 1):
            raise ConfigError(f"task: grader_threshold must lie between 0 and 1, got {self.grader_threshold!r}")
        if self.max_cost_usd is not None and not _is_amount(self.max_cost_usd):
            raise ConfigError(f"task: max_cost_usd must be more than 0 US dollars, got {self.max_cost_usd!r}")
        for name in (entry.name for entry in fields(self) if entry.name.endswith("_timeout_s")):
            limit = getattr(self, name)
            if limit is not None and not (_is_number(limit) and limit > 0):
                raise ConfigError(f"task: {name} must be more than 0 seconds, got {limit!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return _is_number(value) and 0 < value < math.inf


def _whole(what: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number of whatever type, numpy's too, as an int that records can hold."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise ConfigError(f"{what} must be a whole number of {least} or more, got {value!r}")
    return number


def _require_kinds(scenario: ScenarioConfig) -> None:
    """Find fault with parts of the wrong kind, which would otherwise spoil every trial."""
    for name, value, kind in (
        ("user_llm", scenario.user_llm, LLMConfig),
        ("grader_llm", scenario.grader_llm, LLMConfig),
        ("persona", scenario.persona, Persona),
    ):
        if not (isinstance(value, kind) or (value is None and kind is Persona)):
            raise ConfigError(f"scenario {scenario.name!r}: {name} must be {kind.__name__}(…), got {value!r}")


def _require_words(scenario: ScenarioConfig) -> None:
    """Find fault with what is said and measured by."""
    for name, text in (
        ("user_instructions", scenario.user_instructions),
        ("termination_signal", scenario.termination_signal),
    ):
        if not isinstance(text, str):
            raise ConfigError(f"scenario {scenario.name!r}: {name} must be a text, got {text!r}")
    if not scenario.termination_signal.strip():
        raise ConfigError(f"scenario {scenario.name!r}: termination_signal must not be blank")
    for name, texts in (
        ("scripted_messages", scenario.scripted_messages),
        ("opening_messages", scenario.opening_messages),
    ):
        if texts is not None and not _are_texts(texts):
            raise ConfigError(f"scenario {scenario.name!r}: {name} must be a list of texts, got {texts!r}")
    script = scenario.scripted_messages
    if script is not None and not any(text.strip() for text in script):
        raise ConfigError(f"scenario {scenario.name!r}: scripted_messages holds no words; a model takes None")
    try:
        criteria_of(scenario.grader_rubric)
    except ConfigError as error:
        raise ConfigError(f"scenario {scenario.name!r}: {error}") from error
    if scenario.opening_messages is not None and scenario.scripted_messages is not None:
        raise ConfigError(
            f"scenario {scenario.name!r}: give either opening_messages (then a model goes on) "
            "or scripted_messages (then it ends)"
        )


def _are_texts(texts: Any) -> bool:
    return isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)


def _require_distinct(scenario: ScenarioConfig) -> None:
    names = [assertion.name for assertion in scenario.assertions]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigError(
            f"scenario {scenario.name!r}: two assertions are named {', '.join(map(repr, doubled))}; "
            "give each a name of its own"
        )


def _require_assertions(scenario: ScenarioConfig) -> None:
    for assertion in scenario.assertions:
        if not isinstance(assertion, Assertion):
            raise ConfigError(
                f"scenario {scenario.name!r}: assertions must be Assertion(name, severity, check), got {assertion!r}"
            )
        if problem := unfit(assertion.check):
            raise ConfigError(f"scenario {scenario.name!r}: the check of {assertion.name!r} {problem}")


def _require_faults(scenario: ScenarioConfig) -> None:
    spec: Any = scenario.faults
    rules: Any = spec.rules if isinstance(spec, FaultSpec) else None
    if not isinstance(rules, tuple | list) or not all(isinstance(rule, FaultRule) for rule in rules):
        raise ConfigError(f"scenario {scenario.name!r}: faults must be a FaultSpec((rule, …)), got {spec!r}")


def _fidelity(scenario: ScenarioConfig) -> Fidelity:
    try:
        return Fidelity(scenario.fidelity)
    except ValueError:
        known = " or ".join(Fidelity)
        raise ConfigError(f"scenario {scenario.name!r}: fidelity must be {known}, got {scenario.fidelity!r}") from None


def _require_copies(scenario: ScenarioConfig) -> None:
    """Find out before the first trial that no trial could have a copy of its own."""
    for name, value in (("seed", scenario.seed), ("params", scenario.params)):
        try:
            copy.deepcopy(value)
        except Exception as error:
            raise ConfigError(
                f"scenario {scenario.name!r}: {name} must hold values that can be copied for each trial, "
                f"and let the adapter make the rest: {describe(error)}"
            ) from error


def _require_portable(scenario: ScenarioConfig) -> None:
    try:
        serialize_faults(scenario.faults)
    except ValueError as error:
        raise ConfigError(f"scenario {scenario.name!r}: {error}") from error
