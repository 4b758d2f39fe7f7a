import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sonar_eval
from sonar_eval import (
    Action,
    Assertion,
    AssertionMetric,
    ConfigError,
    EmptyTranscriptError,
    FaultRule,
    FaultSpec,
    Fidelity,
    IngestClient,
    InjectedFault,
    InterceptDecision,
    LLMConfig,
    Orchestrator,
    ScenarioConfig,
    Severity,
    TaskConfig,
    TrialContext,
    Turn,
    max_turns,
    serialize_faults,
    summarize,
)
from sonar_eval.interceptor import DecisionKind

PROMISED = """
Action Assertion AssertionEngine AssertionMetric AssertionResult BaseBotAdapter BotAdapter ConversationLog Delivered
EmptyTranscriptError FaultRule FaultSpec Fidelity Form FormField FormSubmission Grader GraderResult IngestClient
InjectedFault InterceptDecision JSONFileStore LLMClient LLMConfig Message NullStore Orchestrator Persona
ProxyInterceptor ResultStore ScenarioConfig ScenarioReport Seed Session Severity TaskConfig ToolCall ToolInterceptor
ToolInvocation Transcript TrialContext TrialResult Turn UserSimulator __version__ load_adapter max_total_tokens
max_turns no_tool_errors serialize_faults summarize tool_was_called validate_bot_adapter
""".split()
OLD_NAMES = json.loads((Path(__file__).parent / "data" / "names-0.5.3.json").read_text())
OLD_SHAPES = json.loads((Path(__file__).parent / "data" / "shapes-0.5.3.json").read_text())
LATER_NAMES = {
    "interceptor": ["DecisionKind"],
    "assertions": ["Check"],
    "grader": ["Calibration"],
    "scheduler": ["run_once"],
}
HEAVY = ["mlflow", "scipy", "hydra", "matplotlib", "numpy", "httpx", "starlette"]


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_name_can_be_imported_from_the_root(name):
    assert getattr(sonar_eval, name) is not None
    assert name in sonar_eval.__all__


def test_all_is_sorted_and_lists_every_public_name_of_the_root():
    public = {
        name
        for name, value in vars(sonar_eval).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert sonar_eval.__all__ == sorted(public | {"__version__"})


@pytest.mark.parametrize("module", sorted(OLD_NAMES))
def test_a_module_of_0_5_3_keeps_every_name_it_had(module):
    found = importlib.import_module(f"sonar_eval.{module}")
    wanted = [*OLD_NAMES[module], *LATER_NAMES.get(module, [])]
    assert [name for name in wanted if not hasattr(found, name)] == []


@pytest.mark.parametrize("place", sorted(OLD_SHAPES))
def test_what_could_be_called_or_made_in_0_5_3_still_can_by_place_and_by_name(place):
    module, _, name = place.partition(".")
    found, shape = getattr(importlib.import_module(f"sonar_eval.{module}"), name), OLD_SHAPES[place]
    if "members" in shape:
        assert shape["members"].items() <= {member.name: member.value for member in found}.items()
        return
    taken = inspect.signature(found).parameters.values()
    named = [entry for entry in taken if entry.kind not in (entry.VAR_POSITIONAL, entry.VAR_KEYWORD)]
    old, later = named[: len(shape["takes"])], named[len(shape["takes"]) :]
    assert [entry.name for entry in old] == [name for name, _ in shape["takes"]]
    needed = {entry.name for entry in named if entry.default is entry.empty}
    assert needed <= {name for name, optional in shape["takes"] if not optional}
    assert [entry.name for entry in later if entry.name in needed] == []
    for method, parameters in shape.get("methods", {}).items():
        assert list(inspect.signature(getattr(found, method)).parameters)[: len(parameters)] == parameters


def test_a_decision_is_made_by_its_name_as_ever():
    error = ValueError("down")
    assert [
        InterceptDecision.passthrough(),
        InterceptDecision.replace({"a": 1}),
        InterceptDecision.raise_(error),
        InterceptDecision.delay(1.5),
    ] == [
        InterceptDecision(DecisionKind.PASSTHROUGH),
        InterceptDecision(DecisionKind.REPLACE, {"a": 1}),
        InterceptDecision(DecisionKind.RAISE, error),
        InterceptDecision(DecisionKind.DELAY, 1.5),
    ]


def test_turns_are_equal_by_what_was_said_and_not_by_how_long_it_took():
    assert Turn("hi", ("ok",), latency_s=0.5) == Turn("hi", ("ok",))
    assert Turn("hi", ("ok",)) != Turn("hi", ("no",))


def test_an_assertion_can_be_changed_and_a_metric_be_a_key():
    assertion = Assertion("a", Severity.CAPABILITY, max_turns(3))
    assertion.name = "b"
    metric = AssertionMetric(assertion.name, assertion.severity, 2, 1)
    assert {metric: 1}[AssertionMetric("b", Severity.CAPABILITY, 2, 1)] == 1


def test_importing_the_package_loads_no_heavy_library():
    code = f"import sys, sonar_eval; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_old_exception_parents_are_kept():
    assert issubclass(EmptyTranscriptError, RuntimeError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(InjectedFault, RuntimeError)


@pytest.mark.parametrize(
    ("target", "leading"),
    [
        (
            TaskConfig,
            "ingest_base_url tenant user_llm grader_llm project api_key api_key_header default_k scenarios",
        ),
        (
            ScenarioConfig,
            "name user_instructions assertions k fidelity faults persona seed params grader_rubric user_llm "
            "grader_llm termination_signal max_turns scripted_messages",
        ),
        (LLMConfig, "model temperature max_tokens"),
        (FaultRule, "target action when_call_index when payload"),
        (TrialContext, "conversation_id seed faults fidelity"),
        (Orchestrator, "task adapter llm grader_factory store ingest_client"),
        (IngestClient, "base_url tenant api_key api_key_header"),
        (summarize, "scenario per_trial_results grader_scores"),
    ],
)
def test_old_arguments_keep_their_places(target, leading):
    names = leading.split()
    assert list(inspect.signature(target).parameters)[: len(names)] == names


def test_old_defaults_are_kept():
    config = LLMConfig("m")
    task = TaskConfig("http://x", "t", config, config)
    scenario = ScenarioConfig("s", "do it")
    assert (config.temperature, config.max_tokens) == (1.0, 1024)
    assert (task.project, task.api_key, task.api_key_header) == ("eval-fullcontent", None, "x-sonar-api-key")
    assert (task.default_k, task.scenarios) == (5, [])
    assert (scenario.k, scenario.fidelity, scenario.faults) == (None, Fidelity.MOCKED, FaultSpec())
    assert (scenario.termination_signal, scenario.max_turns) == ("[[END]]", 20)
    assert (scenario.scripted_messages, scenario.persona, scenario.grader_rubric) == (None, None, None)


def test_a_trial_context_can_be_built_with_nothing_but_an_id():
    ctx = TrialContext("c", None, None, None)
    assert (ctx.conversation_id, ctx.seed, ctx.faults, ctx.fidelity) == ("c", None, None, None)


def test_a_plain_fault_rule_is_written_with_exactly_the_old_keys():
    spec = FaultSpec((FaultRule("pay", Action.ERROR, when_call_index=1, payload="down"),))
    assert serialize_faults(spec) == [
        {"target": "pay", "action": "error", "when_call_index": 1, "payload": "down"},
    ]
