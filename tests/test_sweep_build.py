"""From a configuration to objects: prompts, assertions, guests, bots, and whose folder counts."""

from __future__ import annotations

import sys

import pytest
from hydra import compose, initialize_config_dir

from fakes import run
from sonar_eval import (
    Action,
    ConfigError,
    ConversationLog,
    Criterion,
    Fidelity,
    LLMConfig,
    Message,
    Severity,
    Transcript,
    Turn,
)
from sonar_eval.adapter.http import HTTPBotAdapter
from sonar_eval.rubric import criteria_of
from sonar_eval.sweep.app import prepare
from sonar_eval.sweep.build import (
    build_adapter,
    build_faults,
    build_grader_factory,
    build_scenario,
    build_task,
    build_user,
    build_variant,
    check,
    read_config,
)
from sonar_eval.sweep.searchpath import shipped_conf


@pytest.fixture(autouse=True)
def _an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SONAR_CONF", raising=False)


def read(*overrides):
    prepare()
    with initialize_config_dir(str(shipped_conf()), version_base="1.3"):
        return read_config(compose("sweep", list(overrides)))


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def option(tmp_path, group, name, text):
    write(tmp_path / "conf" / group / f"{name}.yaml", text)
    return read(f"{group}={name}")


def test_a_prompt_may_lie_in_a_text_file_and_is_taken_as_it_stands(tmp_path):
    text = "Be {{kind}}, [[END]] and ${literal} … “brief”.\n"
    write(tmp_path / "mine.md", text)
    assert build_variant(read("prompt.text_file=mine.md")).prompt_text == text


def test_a_prompt_s_text_file_is_looked_for_here_then_in_the_user_s_conf_then_in_ours(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere / "p.md", "named")
    write(tmp_path / "conf" / "p.md", "conf")
    assert build_variant(read("prompt.text_file=p.md")).prompt_text == "conf"
    monkeypatch.setenv("SONAR_CONF", str(elsewhere))
    assert build_variant(read("prompt.text_file=p.md")).prompt_text == "named"
    write(tmp_path / "p.md", "here")
    assert build_variant(read("prompt.text_file=p.md")).prompt_text == "here"
    assert build_variant(read("prompt.text_file=sweep.yaml")).prompt_text.startswith("# What one cell")


def test_the_user_s_conf_adds_options_and_overrides_ours(tmp_path):
    write(tmp_path / "conf" / "prompt" / "v1.yaml", "name: v1\ntext: mine\n")
    write(tmp_path / "conf" / "prompt" / "v3.yaml", "name: v3\ntext: new\n")
    assert read().prompt.text == "mine"
    assert read("prompt=v3").prompt.text == "new"
    assert "house" not in read("prompt=v2").prompt.text
    assert read("prompt=v2").prompt.text != "mine"


def test_a_folder_named_in_the_environment_counts_more_than_the_one_here(tmp_path, monkeypatch):
    write(tmp_path / "conf" / "prompt" / "v1.yaml", "name: v1\ntext: here\n")
    for folder in ("one", "two"):
        write(tmp_path / folder / "prompt" / "v1.yaml", f"name: v1\ntext: {folder}\n")
    monkeypatch.setenv("SONAR_CONF", f"{tmp_path / 'one'}:{tmp_path / 'two'}:{tmp_path / 'missing'}")
    assert read().prompt.text == "two"


def test_another_project_s_option_of_our_group_is_refused_by_its_first_unknown_key(tmp_path):
    with pytest.raises(Exception, match="Key 'layers' not in 'ModelConf'"):
        option(tmp_path, "model", "resnet", "name: resnet\nlayers: 50\n")


def test_an_option_that_leaves_out_what_it_must_have_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing mandatory value: name full_key: prompt\.name"):
        option(tmp_path, "prompt", "nameless", "text: hello\n")


SCENARIO = """
name: mine
user_instructions: Ask for the hours.
persona: {name: grumpy, instructions: Be short.}
seed: {stock: {latte: 0}}
params: {language: nl}
k: 4
max_turns: 7
termination_signal: "###"
strict_faults: true
rubric: "- The bot was kind."
reference: We open at nine.
offline_user: {opening: [Hello]}
assertions:
  - {check: tool_was_called, tool: menu_lookup, severity: safety_critical}
  - {check: max_turns, limit: 3}
  - {name: told, check: bot_said, pattern: "n[iu]ne"}
  - {import: "my_checks:thanked"}
  - {name: twice, import: "my_checks:said_times", word: hello, times: 2, severity: safety_critical}
"""

CHECKS = '''
def thanked(transcript, log):
    """Hold when the bot says thanks."""
    return "thank" in log.bot_said()

def said_times(word, times):
    return lambda transcript, log: log.bot_said().count(word) == times
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    write(tmp_path / "my_checks.py", CHECKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield option(tmp_path, "scenario", "mine", SCENARIO)
    sys.modules.pop("my_checks", None)


def test_a_scenario_is_built_as_it_is_written(mine):
    check(mine)
    scenario = build_task(mine, ingest_base_url="http://unused", api_key=None).resolve(build_scenario(mine))
    assert (scenario.name, scenario.k, scenario.max_turns, scenario.strict_faults) == ("mine", 4, 7, True)
    assert (scenario.persona.name, scenario.persona.instructions) == ("grumpy", "Be short.")
    assert scenario.seed == {"stock": {"latte": 0}}
    assert scenario.params == {"language": "nl"}
    assert scenario.grader_rubric == "- The bot was kind."


def test_assertions_are_named_after_their_check_and_are_capabilities_unless_said_otherwise(mine):
    assertions = build_scenario(mine).assertions
    assert [assertion.name for assertion in assertions] == [
        "tool_was_called",
        "max_turns",
        "told",
        "thanked",
        "twice",
    ]
    severe = [assertion.name for assertion in assertions if assertion.severity is Severity.SAFETY_CRITICAL]
    assert severe == ["tool_was_called", "twice"]


def test_a_check_of_the_user_s_own_is_used_as_it_is_or_made_with_arguments(mine):
    checks = {assertion.name: assertion.check for assertion in build_scenario(mine).assertions}
    log = ConversationLog("c", [Turn("hi", ("hello hello, thanks",))])
    assert checks["thanked"](Transcript("c"), log)
    assert checks["twice"](Transcript("c"), log)
    log.turns.append(Turn("hi", ("hello",)))
    assert not checks["twice"](Transcript("c"), log)


def test_the_offline_guest_ends_with_the_scenario_s_signal(mine):
    lost = [Message("user", "open"), *[Message("user", "what?")] * 3]
    assert run(build_user(mine).complete(LLMConfig("guest"), "", lost)) == "I'll leave it then. ###"


def test_scripted_messages_need_no_guest(tmp_path):
    text = "name: script\nuser_instructions: x\nscripted_messages: [one, two]\n"
    conf = option(tmp_path, "scenario", "script", text)
    check(conf)
    assert build_scenario(conf).scripted_messages == ["one", "two"]


def test_an_assertion_on_the_command_line_replaces_the_scenario_s():
    conf = read("scenario.assertions=[{check:tool_called_with,tool:payment_api,args:{amount:5}}]")
    (assertion,) = build_scenario(conf).assertions
    assert assertion.check.label == 'tool_called_with(payment_api, {"amount": 5})'


def test_faults_are_built_with_what_they_do_and_when():
    slow = "{target:a,action:latency,payload:1.5}"
    garbled = "{target:b,action:replace_output,payload:{x:[1]},when_call_index:2}"
    first, second = build_faults(read(f"fault.rules=[{slow},{garbled}]")).rules
    assert (first.target, first.action, first.payload) == ("a", Action.LATENCY, 1.5)
    assert (second.action, second.payload, second.when_call_index) == (Action.REPLACE_OUTPUT, {"x": [1]}, 2)


def test_a_fault_may_say_how_often_for_how_long_and_from_what_it_draws():
    chancy = "{target:a,action:corrupt,probability:0.2,seed:4}"
    brief = "{target:a,action:error,for_s:2.5}"
    twice = "{target:a,action:error,first:2}"
    first, second, third = build_faults(read(f"fault.rules=[{chancy},{brief},{twice}]")).rules
    assert (first.action, first.probability, first.seed) == (Action.CORRUPT, 0.2, 4)
    assert (second.for_s, third.first) == (2.5, 2)


def test_a_bot_over_http_gets_the_fidelity_that_posts_faults_to_it(monkeypatch):
    conf = read("bot=http", "bot.url=http://127.0.0.1:9/sonar-eval", "bot.key_env=MY_BOT_KEY")
    with pytest.raises(ConfigError, match="bot 'http': key_env names the environment variable MY_BOT_KEY"):
        check(conf)
    monkeypatch.setenv("MY_BOT_KEY", "k")
    check(conf)
    adapter = build_adapter(conf, {})
    assert isinstance(adapter, HTTPBotAdapter)
    assert build_scenario(conf).fidelity is Fidelity.REAL


def test_nobody_judges_when_nobody_is_asked_to():
    assert build_grader_factory(read("grader=none")) is None
    assert build_grader_factory(read()) is not None


def test_the_judge_s_threshold_and_whether_it_gates_reach_the_task():
    conf = read("grader.threshold=0.9", "grader.required=true")
    task = build_task(conf, ingest_base_url="http://unused", api_key=None)
    assert (task.grader_threshold, task.grader_required) == (0.9, True)


def test_the_variant_says_which_variable_holds_the_key_and_never_the_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    variant = build_variant(read("model=openai", "model.temperature=0.1"))
    assert variant.model_params["api_key_env"] == "OPENAI_API_KEY"
    assert variant.model_params["temperature"] == 0.1
    assert "sk-secret" not in str(variant)


def test_a_rubric_may_be_a_list_of_criteria(tmp_path):
    text = """
name: kindly
user_instructions: x
offline_user: {opening: [Hello]}
rubric:
  - {name: kind, text: The bot was kind., weight: 2}
  - {name: honest, text: The bot was honest.}
"""
    conf = option(tmp_path, "scenario", "kindly", text)
    check(conf)
    scenario = build_scenario(conf)
    assert criteria_of(scenario.grader_rubric) == (
        Criterion("kind", "The bot was kind.", 2),
        Criterion("honest", "The bot was honest."),
    )


def test_a_guest_goes_on_after_a_scripted_opening(tmp_path):
    text = "name: opened\nuser_instructions: x\nopening_messages: [one, two]\n"
    conf = option(tmp_path, "scenario", "opened", text)
    check(conf)
    assert build_scenario(conf).opening_messages == ["one", "two"]
    lost = [Message("user", "open"), *[Message("user", "what?")] * 3]
    assert run(build_user(conf).complete(LLMConfig("guest"), "", lost)) == "I'll leave it then. [[END]]"


def test_the_judge_is_asked_as_often_and_shown_as_much_as_is_configured():
    conf = read("grader.repeats=3", "grader.max_prompt_chars=5000", "grader.timeout_s=9")
    scenario = build_scenario(conf)
    log = ConversationLog("c", [Turn("hi", ("z" * 90_000,))])
    result = run(build_grader_factory(conf)(scenario).grade(Transcript("c"), log))
    assert (result.repeats, len(result.scores), result.agreement, result.shortened) == (3, 3, 1.0, True)


def test_the_limits_of_a_trial_and_a_job_reach_the_task():
    conf = read("task.trial_timeout_s=5", "task.job_timeout_s=50", "task.user_timeout_s=2")
    task = build_task(conf, ingest_base_url="http://unused", api_key=None)
    assert (task.trial_timeout_s, task.job_timeout_s, task.user_timeout_s) == (5, 50, 2)
    plain = build_task(read(), ingest_base_url="http://unused", api_key=None)
    assert (plain.trial_timeout_s, plain.job_timeout_s, plain.user_timeout_s) == (None, None, 600)
