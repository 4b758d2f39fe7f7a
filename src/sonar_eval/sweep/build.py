"""From a configuration to objects. Bad input becomes one line, before anything is run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..adapter import BotAdapter, Variant, check_adapter, load_adapter, load_object
from ..adapter.http import HTTPBotAdapter
from ..adapter.process import BotProcess
from ..config import Persona, ScenarioConfig, TaskConfig
from ..demo.guest import OfflineGuest
from ..demo.judge import OfflineJudge
from ..errors import ConfigError
from ..grader import Grader
from ..interceptor import Action, FaultRule, FaultSpec, Fidelity
from ..llm import LLMClient, LLMConfig, make_client, make_config, make_price
from ..tracking import TRACES, Content
from ..trial import GraderFactory
from ..usage import Price
from .checks import build_assertion
from .prompt import check_prompt, prompt_name, prompt_text
from .schema import IngestConf, ModelConf, SweepConf
from .searchpath import launch_folder
from .trials import first_trials

_NOBODY = LLMConfig("offline", price=Price(0.0, 0.0))
# The ingest takes no longer time.
_LONGEST_S = 1e9
_FAULT_OPTIONS = ("when_call_index", "payload", "first", "probability", "for_s", "seed")


def read_config(cfg: DictConfig) -> SweepConf:
    """Turn a composed configuration into typed values.

    Raises `ConfigError` naming the key that is missing, unknown or cannot be resolved.
    """
    unknown = sorted(set(map(str, cfg)) - {entry.name for entry in fields(SweepConf)} - {"hydra"})
    if unknown:
        known = ", ".join(entry.name for entry in fields(SweepConf))
        raise ConfigError(f"unknown key {', '.join(unknown)!r} at the top of the configuration; known: {known}")
    try:
        nodes = {entry.name: _plain(cfg[entry.name]) for entry in fields(SweepConf)}
    except OmegaConfBaseException as error:
        raise ConfigError(f"configuration: {' '.join(str(error).split())}") from error
    return SweepConf(**nodes)


def _plain(node: Any) -> Any:
    return OmegaConf.to_object(node) if OmegaConf.is_config(node) else node


def check(conf: SweepConf) -> None:
    """Build all that can be built without starting anything; raises `ConfigError` for the first mistake."""
    check_prompt(conf)
    task = build_task(conf, ingest_base_url="http://unused", api_key=None)
    task.resolve(build_scenario(conf))
    build_user(conf)
    build_grader_factory(conf)
    _check_model(conf.model)
    _check_bot(conf)
    _check_ingest(conf.ingest)
    _known("tracking.type", conf.tracking.type, ("mlflow", "none"))
    _known("tracking.traces", conf.tracking.traces, TRACES)
    Content.of(conf.tracking.content, conf.tracking.redact)


def _check_model(model: ModelConf) -> None:
    make_price(asdict(model))
    if model.provider != "offline":
        make_client(asdict(model))
        return
    for name, chance in (("reliability", model.reliability), ("habit", model.habit)):
        if chance is None or not 0 <= chance <= 1:
            needs = "provider=offline needs reliability and habit, each from 0 to 1"
            raise ConfigError(f"model {model.name!r}: {needs}; {name} is {chance}")


def _check_ingest(ingest: IngestConf) -> None:
    _known("ingest.type", ingest.type, ("embedded", "external"))
    for name, seconds in (("quiet_s", ingest.quiet_s), ("settle_timeout_s", ingest.settle_timeout_s)):
        if seconds is not None and not 0 <= seconds <= _LONGEST_S:
            raise ConfigError(f"ingest.{name} must be 0 to {_LONGEST_S:.0f} seconds, got {seconds}")


def build_task(conf: SweepConf, *, ingest_base_url: str, api_key: str | None) -> TaskConfig:
    """Build the task of a cell."""
    task = conf.task
    return TaskConfig(
        ingest_base_url,
        task.tenant,
        _model_config(conf.user.llm),
        _model_config(conf.grader.llm),
        project=task.project,
        api_key=api_key,
        api_key_header=conf.ingest.api_key_header,
        default_k=first_trials(task.k),
        concurrency=task.concurrency,
        seed=task.seed,
        retries=task.retries,
        variant=build_variant(conf),
        setup_timeout_s=task.setup_timeout_s,
        turn_timeout_s=task.turn_timeout_s,
        teardown_timeout_s=task.teardown_timeout_s,
        user_timeout_s=task.user_timeout_s,
        trial_timeout_s=task.trial_timeout_s,
        job_timeout_s=task.job_timeout_s,
        grader_required=conf.grader.required,
        grader_threshold=conf.grader.threshold,
        stop_early=task.stop_early,
        max_cost_usd=task.max_cost_usd,
    )


def build_variant(conf: SweepConf) -> Variant:
    """Build what the bot is to run with."""
    return Variant(conf.model.name, prompt_name(conf), prompt_text(conf), asdict(conf.model))


def build_scenario(conf: SweepConf) -> ScenarioConfig:
    """Build the scenario of a cell, with its fault."""
    _known(f"bot {conf.bot.name!r}: fidelity", conf.bot.fidelity, tuple(kind.value for kind in Fidelity))
    scenario = conf.scenario
    return ScenarioConfig(
        scenario.name,
        scenario.user_instructions,
        [build_assertion(scenario.name, row) for row in scenario.assertions],
        k=scenario.k,
        fidelity=Fidelity(conf.bot.fidelity),
        faults=build_faults(conf),
        persona=Persona(scenario.persona.name, scenario.persona.instructions) if scenario.persona else None,
        seed=scenario.seed,
        params=scenario.params,
        grader_rubric=scenario.rubric,
        termination_signal=scenario.termination_signal,
        max_turns=scenario.max_turns,
        scripted_messages=scenario.scripted_messages,
        min_level=scenario.min_level,
        strict_faults=scenario.strict_faults,
        opening_messages=scenario.opening_messages,
    )


def build_faults(conf: SweepConf) -> FaultSpec:
    """Build the faults of a cell; raises `ConfigError` naming the rule that is wrong."""
    return FaultSpec(tuple(_fault_rule(conf.fault.name, place, row) for place, row in enumerate(conf.fault.rules)))


def _fault_rule(fault: str, place: int, row: Mapping[str, Any]) -> FaultRule:
    where = f"fault {fault!r}, rule {place}"
    _keys(where, row, required=("target", "action"), optional=_FAULT_OPTIONS)
    _known(f"{where}: action", row["action"], tuple(action.value for action in Action))
    _typed(f"{where}: target", row["target"], str)
    if row.get("when_call_index") is not None:
        _typed(f"{where}: when_call_index", row["when_call_index"], int)
    try:
        return FaultRule(**{**row, "action": Action(row["action"])})
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _typed(what: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise ConfigError(f"{what}: expected {kind.__name__}, got {value!r}")


def build_user(conf: SweepConf) -> LLMClient:
    """Make whoever plays the user."""
    _known("user.type", conf.user.type, ("offline", "llm"))
    if conf.user.type == "llm":
        return _client("user", conf.user.llm)
    if conf.scenario.scripted_messages is not None:
        return OfflineGuest(("",))
    try:
        settings = {"opening": conf.scenario.opening_messages, **conf.scenario.offline_user}
        return OfflineGuest.from_settings(settings, signal=conf.scenario.termination_signal)
    except ConfigError as error:
        raise ConfigError(f"scenario {conf.scenario.name!r}: {error}") from error


def build_grader_factory(conf: SweepConf) -> GraderFactory | None:
    """Make what makes the judge; None when nobody judges."""
    _known("grader.type", conf.grader.type, ("offline", "llm", "none"))
    if conf.grader.type == "none":
        return None
    client: LLMClient = OfflineJudge() if conf.grader.type == "offline" else _client("grader", conf.grader.llm)

    def make(scenario: ScenarioConfig) -> Grader:
        return Grader(
            client,
            scenario.grader_llm or _NOBODY,
            scenario.grader_rubric or "",
            reference=conf.scenario.reference,
            pass_threshold=conf.grader.threshold,
            repeats=conf.grader.repeats,
            max_prompt_chars=conf.grader.max_prompt_chars,
            timeout_s=conf.grader.timeout_s,
        )

    # What is wrong with the rubric is to be told before the first trial, not by each of them.
    make(build_scenario(conf))
    return make


def _client(role: str, model: ModelConf | None) -> LLMClient:
    if model is None:
        raise ConfigError(f"{role}.type=llm needs {role}.llm; see conf/{role}/local.yaml")
    return make_client(asdict(model))


def _model_config(model: ModelConf | None) -> LLMConfig:
    return make_config(asdict(model)) if model else _NOBODY


def _check_bot(conf: SweepConf) -> None:
    """Find fault with a bot's settings without making it: making it starts its tracing."""
    bot = conf.bot
    _known("bot.type", bot.type, ("adapter", "chat", "http"))
    if bot.type == "chat":
        make_client(asdict(conf.model))
        _chat_bot(conf)
        return
    if bot.type == "adapter":
        try:
            check_adapter(_adapter_path(conf))
        except TypeError as error:
            raise ConfigError(f"bot {bot.name!r}: {error}") from error
    elif not (bot.url or bot.command):
        raise ConfigError(f"bot {bot.name!r}: expected url or command, e.g. bot.url=http://localhost:9000/sonar-eval")
    elif bot.url:
        _http_bot(conf)
    _bot_key(conf)


def _chat_bot(conf: SweepConf) -> BotAdapter:
    from ..adapter.chatbot import ChatBot

    bot = conf.bot
    _look_in_launch_folder()
    try:
        return ChatBot(tools=[load_object(path) for path in bot.tools], name=bot.name, max_steps=bot.max_steps)
    except ConfigError as error:
        raise ConfigError(f"bot {bot.name!r}: {error}") from error


def _adapter_path(conf: SweepConf) -> str:
    if not conf.bot.adapter:
        raise ConfigError(f"bot {conf.bot.name!r}: expected bot.adapter=module:attribute")
    _look_in_launch_folder()
    return conf.bot.adapter


def _look_in_launch_folder() -> None:
    """Let imports find a user's bot there: `python -m` looks in the current folder, a console script does not."""
    if str(launch_folder()) not in sys.path:
        sys.path.insert(0, str(launch_folder()))


def build_adapter(conf: SweepConf, environment: Mapping[str, str]) -> BotAdapter:
    """Make the bot's adapter; a process it starts gets `environment` on top of ours."""
    bot = conf.bot
    if bot.type in ("adapter", "chat"):
        # What a bot's process needs (an ASGI toolkit, OpenTelemetry's SDK) would slow every command down.
        from ..appside import CountedAdapter

        if bot.type == "chat":
            return CountedAdapter(_chat_bot(conf))
        try:
            return CountedAdapter(load_adapter(_adapter_path(conf)))
        except TypeError as error:
            raise ConfigError(f"bot {bot.name!r}: {error}") from error
    process = None
    if bot.command:
        process = BotProcess(bot.command.replace("{python}", sys.executable), environment=environment)
    return _http_bot(conf, process)


def _http_bot(conf: SweepConf, process: BotProcess | None = None) -> HTTPBotAdapter:
    try:
        return HTTPBotAdapter(conf.bot.url or "", name=conf.bot.name, key=_bot_key(conf), process=process)
    except ConfigError as error:
        raise ConfigError(f"bot {conf.bot.name!r}: {error}") from error


def _bot_key(conf: SweepConf) -> str | None:
    return read_key(conf.bot.key_env, f"bot {conf.bot.name!r}: key_env")


def read_key(variable: str | None, what: str) -> str | None:
    """Read a key from the environment variable that the configuration names."""
    if not variable:
        return None
    if not os.environ.get(variable):
        raise ConfigError(f"{what} names the environment variable {variable}, which is empty")
    return os.environ[variable]


def _known(what: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{what}: unknown {value!r}, known: {', '.join(sorted(known))}")


def _keys(what: str, row: Mapping[str, Any], *, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    missing = [key for key in required if key not in row]
    unknown = [key for key in row if key not in (*required, *optional)]
    if missing or unknown:
        said = [f"missing {', '.join(missing)}"] if missing else []
        said += [f"unknown {', '.join(map(str, unknown))}"] if unknown else []
        raise ConfigError(f"{what}: {'; '.join(said)}; expected {', '.join((*required, *optional))}")
