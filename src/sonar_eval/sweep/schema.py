"""What a configuration may hold: one typed node per group, so that a typo is told and not ignored.

Defaults that the SDK has too are taken from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from ..config import ScenarioConfig, TaskConfig
from ..evidence import MAX_PROMPT_CHARS
from ..grader import CALL_TIMEOUT_S
from ..interceptor import Fidelity
from ..llm import READ_TIMEOUT_S, LLMConfig, RetryPolicy
from ..transcript.wire import DEFAULT_KEY_HEADER


@dataclass
class TaskConf:
    """How many trials, and how they are run."""

    name: str = "default"
    k: Any = TaskConfig.default_k
    """A number; `auto`: 5, then 10, then 20, as long as the arms cannot be told apart."""
    concurrency: int = TaskConfig.concurrency
    retries: int = TaskConfig.retries
    seed: int = TaskConfig.seed
    tenant: str = "local"
    project: str = TaskConfig.project
    setup_timeout_s: float | None = 120.0
    turn_timeout_s: float | None = 120.0
    teardown_timeout_s: float = TaskConfig.teardown_timeout_s
    user_timeout_s: float | None = TaskConfig.user_timeout_s
    trial_timeout_s: float | None = TaskConfig.trial_timeout_s
    job_timeout_s: float | None = TaskConfig.job_timeout_s
    stop_early: bool = TaskConfig.stop_early
    max_cost_usd: float | None = TaskConfig.max_cost_usd


@dataclass
class PersonaConf:
    """Who the user is."""

    name: str = MISSING
    instructions: str = MISSING


@dataclass
class ScenarioConf:
    """One situation; `assertions` are rows of name, severity and either check or import.

    `rubric` is a text, or rows of name, text and weight.
    """

    name: str = MISSING
    user_instructions: str = MISSING
    persona: PersonaConf | None = None
    scripted_messages: list[str] | None = None
    offline_user: dict[str, Any] = field(default_factory=dict)
    assertions: list[dict[str, Any]] = field(default_factory=list)
    rubric: Any = None
    reference: str | None = None
    seed: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    k: int | None = None
    max_turns: int = ScenarioConfig.max_turns
    termination_signal: str = ScenarioConfig.termination_signal
    min_level: int = ScenarioConfig.min_level
    strict_faults: bool = ScenarioConfig.strict_faults
    opening_messages: list[str] | None = None


@dataclass
class FaultConf:
    """Faults; `rules` are rows of target, action, when_call_index and payload."""

    name: str = MISSING
    rules: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class PriceConf:
    """What a model costs, in US dollars per million tokens; nothing set means that it is not known."""

    input: float | None = None
    output: float | None = None
    cached_input: float | None = None
    cache_write: float | None = None


@dataclass
class ModelConf:
    """A model: an offline stand-in, or one behind a provider's API."""

    name: str = MISSING
    provider: str = MISSING
    model: str = MISSING
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_header: str | None = None
    temperature: float = LLMConfig.temperature
    max_tokens: int = LLMConfig.max_tokens
    extra_body: dict[str, Any] = field(default_factory=dict)
    timeout_s: float = READ_TIMEOUT_S
    max_retries: int = RetryPolicy.max_retries
    price: PriceConf = field(default_factory=PriceConf)
    reliability: float | None = None
    habit: float | None = None


@dataclass
class PromptConf:
    """A system prompt, written here, in a text file or in MLflow's prompt registry.

    `registry` is an address such as `prompts:/refund/2` or `prompts:/refund@production`; a cell keeps in
    `registry_version` what it stood for.
    """

    name: str = MISSING
    text: str = ""
    text_file: str | None = None
    registry: str | None = None
    registry_version: str | None = None


@dataclass
class BotConf:
    """A bot: an adapter in this process, a service reached or started, or a chat model with tools."""

    name: str = MISSING
    type: str = MISSING
    adapter: str | None = None
    url: str | None = None
    command: str | None = None
    key_env: str | None = None
    tools: list[str] = field(default_factory=list)
    max_steps: int = 12
    fidelity: str = Fidelity.MOCKED.value


@dataclass
class UserConf:
    """Who plays the user."""

    type: str = MISSING
    llm: ModelConf | None = None


@dataclass
class GraderConf:
    """Who judges, and whether the score gates."""

    type: str = MISSING
    llm: ModelConf | None = None
    threshold: float = TaskConfig.grader_threshold
    required: bool = TaskConfig.grader_required
    repeats: int = 1
    max_prompt_chars: int = MAX_PROMPT_CHARS
    timeout_s: float | None = CALL_TIMEOUT_S


@dataclass
class IngestConf:
    """Where spans go and are asked back from."""

    type: str = MISSING
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_header: str = DEFAULT_KEY_HEADER
    quiet_s: float | None = None
    settle_timeout_s: float = 30.0


@dataclass
class TrackingConf:
    """Where results go."""

    type: str = MISSING
    uri: str = "sqlite:///mlflow.db"
    experiment: str = "sonar-eval"
    traces: str = "trial"
    content: str = "full"
    redact: list[str] = field(default_factory=list)
    parent_run_id: str | None = None


@dataclass
class CompareConf:
    """Whether and how the arms of a sweep are compared when it ends."""

    enabled: bool = True
    by: str = "auto"
    """model or prompt; auto is each of them that varies."""
    baseline: str | None = None
    """The first one of the sweep where nothing is said."""


@dataclass
class SweepConf:
    """One cell of a sweep, and how the sweep is run."""

    task: TaskConf = field(default_factory=TaskConf)
    scenario: ScenarioConf = field(default_factory=ScenarioConf)
    fault: FaultConf = field(default_factory=FaultConf)
    model: ModelConf = field(default_factory=ModelConf)
    prompt: PromptConf = field(default_factory=PromptConf)
    bot: BotConf = field(default_factory=BotConf)
    user: UserConf = field(default_factory=UserConf)
    grader: GraderConf = field(default_factory=GraderConf)
    ingest: IngestConf = field(default_factory=IngestConf)
    tracking: TrackingConf = field(default_factory=TrackingConf)
    compare: CompareConf = field(default_factory=CompareConf)
    resume: str | None = None
    """The folder of a sweep to go on with, or `mlflow:` and the id of its run; `last` is the newest in ./sweeps."""
    dry_run: bool = False
    fail_fast: bool = False
