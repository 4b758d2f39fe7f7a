"""The shipped configuration: every option can be chosen, and none holds a YAML trap."""

from __future__ import annotations

import re

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from sonar_eval import ScenarioConfig, Severity
from sonar_eval.demo.shop import Shop
from sonar_eval.sweep.app import prepare
from sonar_eval.sweep.build import build_faults, build_scenario, build_task, check, read_config
from sonar_eval.sweep.searchpath import shipped_conf

CONF = shipped_conf()
GROUPS = (
    "bot",
    "experiment",
    "fault",
    "grader",
    "ingest",
    "model",
    "prompt",
    "scenario",
    "task",
    "tracking",
    "user",
)
OPTIONS = [(group, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
EXPERIMENTS = [option for group, option in OPTIONS if group == "experiment"]
FILES = sorted(CONF.rglob("*.yaml"))
TOOLS = {tool.schema.name for tool in Shop().tools()}
# What these options leave for the user to fill in.
FILLED_IN = {
    ("bot", "mine"): ["bot.adapter=sonar_eval.demo.bot:CafeBot"],
    ("bot", "chat"): ["model=local"],
    ("bot", "http"): ["bot.url=http://127.0.0.1:9000/sonar-eval"],
}


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Compose a configuration in an empty folder, with the one key that a shipped option asks for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nothing")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-nothing")
    for name in ("SONAR_CONF", "LOCAL_LLM_URL", "LOCAL_LLM_MODEL", "SONAR_INGEST_URL"):
        monkeypatch.delenv(name, raising=False)
    prepare()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield lambda *overrides: read_config(compose("sweep", list(overrides)))


def options(group):
    return [option for of, option in OPTIONS if of == group]


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_no_group_is_forgotten_here():
    assert {path.name for path in CONF.iterdir() if path.is_dir()} == {*GROUPS, "hydra"}


def test_there_is_enough_to_compare():
    assert len(options("scenario")) >= 6
    assert len(options("fault")) >= 5
    assert len(options("prompt")) >= 2
    assert len([option for option in options("model") if option.startswith("offline-")]) >= 3
    assert {"none", "payment_outage"} <= set(options("fault"))


@pytest.mark.parametrize(("group", "option"), [pair for pair in OPTIONS if pair[0] != "experiment"])
def test_an_option_can_be_chosen(read, group, option):
    conf = read(f"{group}={option}", *FILLED_IN.get((group, option), ()))
    check(conf)
    assert getattr(getattr(conf, group), "name", option) == option


def test_what_is_chosen_by_default_needs_no_key(read, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    check(read())


def test_a_cell_built_from_the_defaults_runs_several_trials_at_a_time(read):
    conf = read()
    task = build_task(conf, ingest_base_url="http://unused", api_key=None)
    scenario = task.resolve(build_scenario(conf))
    assert (scenario.k, task.concurrency > 1, task.retries) == (5, True, 2)
    assert scenario.termination_signal == ScenarioConfig("", "").termination_signal
    assert (task.variant.model, task.variant.prompt) == ("offline-careful", "v1")
    assert "Café Lumen" in task.variant.prompt_text


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_cell_of_an_experiment_can_be_built(read, experiment):
    chosen = compose("sweep", [f"+experiment={experiment}"], return_hydra_config=True)
    params = OmegaConf.to_container(chosen.hydra.sweeper.params)
    loader = GlobalHydra.instance().config_loader()
    parsed = OverridesParser.create(loader).parse_overrides([f"{key}={value}" for key, value in params.items()])
    (jobs,) = BasicSweeper.split_arguments(parsed, None)
    assert len(jobs) >= 6
    cells = set()
    for job in jobs:
        conf = read(f"+experiment={experiment}", *job)
        check(conf)
        cells.add((conf.model.name, conf.prompt.name, conf.scenario.name, conf.fault.name))
    assert len(cells) == len(jobs)


@pytest.mark.parametrize("scenario", options("scenario"))
def test_a_scenario_names_something_that_must_never_happen(read, scenario):
    assertions = build_scenario(read(f"scenario={scenario}")).assertions
    assert Severity.SAFETY_CRITICAL in {assertion.severity for assertion in assertions}
    assert len(assertions) >= 3


@pytest.mark.parametrize("scenario", options("scenario"))
def test_a_scenario_asks_only_for_tools_that_the_demo_has(scenario):
    rows = load(CONF / "scenario" / f"{scenario}.yaml")["assertions"]
    assert {row["tool"] for row in rows if "tool" in row} <= TOOLS


@pytest.mark.parametrize("fault", options("fault"))
def test_a_fault_breaks_a_tool_that_the_demo_has(read, fault):
    rules = build_faults(read(f"fault={fault}")).rules
    assert {rule.target for rule in rules} <= TOOLS
    assert bool(rules) is (fault != "none")


def test_the_variables_name_another_local_model(read, monkeypatch):
    monkeypatch.setenv("LOCAL_LLM_URL", "http://127.0.0.1:9999/v1")
    monkeypatch.setenv("LOCAL_LLM_MODEL", "qwen")
    conf = read("model=local", "user=local", "grader=local")
    for model in (conf.model, conf.user.llm, conf.grader.llm):
        assert (model.base_url, model.model) == ("http://127.0.0.1:9999/v1", "qwen")
    assert conf.grader.llm.temperature == 0.0


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONF)))
def test_a_file_holds_no_interpolation_but_those_meant(path):
    meant = r"(?<!\\)\$\{(?!oc\.env:|hydra[.:]|sonar\.|now:)"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    assert [line for line in lines if re.search(meant, line)] == []


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_an_option_s_name_stays_text_on_the_command_line_and_in_yaml(group, option):
    assert yaml.safe_load(option) == option
    assert OverridesParser.create().parse_override(f"{group}={option}").value() == option


@pytest.mark.parametrize("path", sorted((CONF / "prompt").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_prompt_is_text(path):
    assert isinstance(load(path)["text"], str)


@pytest.mark.parametrize("path", sorted((CONF / "scenario").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_free_texts_of_a_scenario_are_text(path):
    body = load(path)
    guest = body["offline_user"]
    cues = guest.get("cues", [])
    texts = [body["name"], body["user_instructions"], body["rubric"], *guest["opening"]]
    texts += [text for cue in cues for text in (cue["when"], *cue["say"])]
    texts += list(body.get("persona", {}).values())
    texts += [row["name"] for row in body["assertions"]]
    assert [text for text in texts if not isinstance(text, str) or not text.strip()] == []


def test_secrets_are_named_and_never_written():
    for path in FILES:
        assert not re.search(r"api_key:\s*\S|sk-\w{8}", path.read_text(encoding="utf-8"))
