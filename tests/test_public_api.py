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
    ConfigError,
    EmptyTranscriptError,
    FaultRule,
    FaultSpec,
    Fidelity,
    IngestClient,
    InjectedFault,
    LLMConfig,
    Orchestrator,
    ScenarioConfig,
    TaskConfig,
    TrialContext,
    serialize_faults,
    summarize,
)

PROMISED = """
Action Assertion AssertionEngine AssertionMetric AssertionResult BaseBotAdapter BotAdapter ConversationLog Delivered
EmptyTranscriptError FaultRule FaultSpec Fidelity Form FormField FormSubmission Grader GraderResult IngestClient
InjectedFault InterceptDecision JSONFileStore LLMClient LLMConfig Message NullStore Orchestrator Persona
ProxyInterceptor ResultStore ScenarioConfig ScenarioReport Seed Session Severity TaskConfig ToolCall ToolInterceptor
ToolInvocation Transcript TrialContext TrialResult Turn UserSimulator __version__ load_adapter max_total_tokens
max_turns no_tool_errors serialize_faults summarize tool_was_called validate_bot_adapter
""".split()
OLD_NAMES = json.loads((Path(__file__).parent / "data" / "names-0.5.3.json").read_text())
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
