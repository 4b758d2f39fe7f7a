"""The shipped configuration: every option can be chosen, and none holds a YAML trap."""

from __future__ import annotations

import importlib.util
import re

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import MissingConfigException
from omegaconf import OmegaConf

from sonar_eval import ScenarioConfig, Severity
from sonar_eval.demo.shop import Shop
from sonar_eval.sweep.app import prepare
from sonar_eval.sweep.build import build_faults, build_scenario, build_task, check, read_config
from sonar_eval.sweep.lint import lint_folder
from sonar_eval.sweep.searchpath import shipped_conf
from sonar_eval.sweep.summary import one_line

CONF = shipped_conf()
GROUPS = (
    "bot",
    "experiment",
    "fault",
    "grader",
    "ingest",
    "launcher",
    "model",
    "prompt",
    "scenario",
    "task",
    "tracking",
    "user",
)
OPTIONS = [(group, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
LAUNCHERS = [option for group, option in OPTIONS if group == "launcher"]
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


# A prompt of the registry needs a store that has one: see test_sweep_prompt.py.
CHOSEN = [pair for pair in OPTIONS if pair[0] not in ("experiment", "launcher") and pair != ("prompt", "registry")]


@pytest.mark.parametrize(("group", "option"), CHOSEN)
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


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_is_chosen_by_one_word_or_its_extra_is_named(read, launcher):
    extra = {"ray_cluster": "ray", "submitit_local": "slurm"}.get(launcher, launcher)
    plugin = {"slurm": "submitit"}.get(extra, extra)
    if launcher != "local" and not is_installed(f"hydra_plugins.hydra_{plugin}_launcher"):
        with pytest.raises(MissingConfigException) as caught:
            read(f"launcher={launcher}")
        line = one_line(caught.value)
        assert line.endswith(f". For this launcher: pip install 'sonar-eval[{extra}]'")
        assert "\n" not in line
        return
    chosen = compose("sweep", [f"launcher={launcher}"], return_hydra_config=True)
    assert ("basic" if launcher == "local" else plugin) in chosen.hydra.launcher._target_
    check(read(f"launcher={launcher}"))


def is_installed(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


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


def test_nothing_in_it_is_read_as_something_else():
    assert lint_folder(CONF) == []


TRAPS = [
    ("scenario/mine.yaml", "name: mine\nuser_instructions: off\n", "user_instructions: YAML reads this text as False"),
    ("prompt/mine.yaml", "name: mine\ntext: 12:30\n", "text: YAML reads this text as 750"),
    ("model/mine.yaml", "name: 4\nprovider: offline\nmodel: m\n", "name: YAML reads this text as 4; quote it"),
    ("prompt/mine.yaml", "name: mine\ntext: ### END ###\n", "text: is empty; a text that begins with # must be quoted"),
    ("prompt/mine.yaml", "name: mine\ntext: Dear ${user}\n", "text: ${ begins a reference; write \\${"),
    (
        "scenario/mine.yaml",
        "name: mine\nuser_instructions: x\noffline_user: {opening: ['pay ${sum}']}\n",
        "offline_user.opening.0: ${ begins a reference",
    ),
    (
        "scenario/mine.yaml",
        "name: mine\nuser_instructions: x\nseed: {on: 1}\n",
        "seed.True: YAML reads this key as bool",
    ),
    ("scenario/mine.yaml", "name: mine\nuser_instructions: [[END]]\n", "Cannot convert 'ListConfig' to string"),
    ("fault/off.yaml", "name: 'off'\n", "the name 'off' is not read as text; rename the file, e.g. fault-off"),
    ("fault/null.yaml", "name: nothing\n", "the name 'null' is not read as text"),
    ("fault/mine.yaml", "name: mine\nrulse: []\n", "Key 'rulse' not in 'FaultConf'"),
    ("fault/mine.yaml", "name: mine\nname: yours\n", "found duplicate key name"),
    ("fault/mine.yaml", "- name\n", "expected keys and values, got list"),
]


@pytest.mark.parametrize(("path", "text", "told"), TRAPS, ids=[told for _, _, told in TRAPS])
def test_a_trap_in_the_user_s_folder_is_told_in_one_line(tmp_path, path, text, told):
    (tmp_path / path).parent.mkdir()
    (tmp_path / path).write_text(text, encoding="utf-8")
    lines = [line for line in lint_folder(tmp_path) if told in line]
    assert len(lines) == 1, lint_folder(tmp_path)
    assert lines[0].startswith(f"{tmp_path.name}/{path}: ")
    assert "\n" not in lines[0]


def test_folders_that_are_no_groups_of_ours_are_not_looked_at(tmp_path):
    (tmp_path / "resnet").mkdir()
    (tmp_path / "resnet" / "off.yaml").write_text("on: off\n", encoding="utf-8")
    assert lint_folder(tmp_path) == []
