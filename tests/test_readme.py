"""What the README shows must work: its commands, its YAML, its Python."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir

from sonar_eval.assertions import CHECKS
from sonar_eval.sweep.app import prepare
from sonar_eval.sweep.build import build_faults, build_scenario, read_config

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("source", blocks("python"))
def test_python_imports_what_exists(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sonar_eval"):
            module = importlib.import_module(node.module)
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            assert not missing


def test_every_option_in_a_command_exists():
    options = re.findall(r"(?<![\w.])(\w+)=([\w,\-]+)", " ".join(blocks("bash")))
    groups = {folder.name for folder in CONF.iterdir() if folder.is_dir()}
    theirs = {"my_scenario", "my_outage"}
    for group, value in options:
        for option in value.split(",") if group in groups else ():
            assert option in theirs or (CONF / group / f"{option}.yaml").is_file(), f"{group}={option}"


def test_the_first_command_is_the_grid_that_its_output_shows():
    words = shlex.split(blocks("bash")[0])
    given = dict(word.split("=", 1) for word in words if "=" in word)
    shown = re.findall(r"^(offline-\w+) +(v\d) +(\w+) +(\w+) +(\d+)/(\d+)", README, re.MULTILINE)
    cells = {
        (model, prompt, scenario, fault)
        for model in given["model"].split(",")
        for prompt in given["prompt"].split(",")
        for scenario in given["scenario"].split(",")
        for fault in given["fault"].split(",")
    }
    assert {row[:4] for row in shown} == cells
    assert {row[5] for row in shown} == {given["task.k"]}


def test_the_scenario_and_the_fault_it_shows_can_be_used(tmp_path, monkeypatch):
    for block in blocks("yaml"):
        if not block.startswith("# conf/"):
            continue
        path = tmp_path / block.splitlines()[0].removeprefix("# conf/")
        path.parent.mkdir()
        path.write_text("\n".join(line for line in block.splitlines() if "my_checks" not in line), encoding="utf-8")
    monkeypatch.setenv("SONAR_CONF", str(tmp_path))
    prepare()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        conf = read_config(compose("sweep", ["scenario=opening_hours", "fault=calendar_down"]))
    assert [assertion.name for assertion in build_scenario(conf).assertions] == ["bot_said", "no_tool_errors"]
    assert build_faults(conf).rules[0].when_call_index == 1


@pytest.mark.timeout(200)
@pytest.mark.parametrize("known", [True, False], ids=["known failures", "none known"])
def test_the_workflow_it_shows_runs_as_a_script_and_lets_what_is_better_pass(tmp_path, known):
    (workflow,) = (yaml.safe_load(block) for block in blocks("yaml") if block.startswith("# .github/"))
    steps = [step["run"] for step in workflow["jobs"]["evaluate"]["steps"] if "run" in step]
    sweep, gate = (step for step in steps if step.startswith("sonar-eval "))
    names = {
        row["name"] for path in CONF.glob("scenario/*.yaml") for row in yaml.safe_load(path.read_text())["assertions"]
    }
    (tmp_path / "known-failures.txt").write_text("\n".join(sorted(names)) if known else "")
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}

    def run(command):
        return subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert run(sweep).returncode == 0
    decided = run(gate)
    assert decided.returncode == (0 if known else 1), decided.stdout + decided.stderr
    assert f"gate: {'pass' if known else 'fail (safety)'}" in decided.stdout
    assert (tmp_path / "gate.xml").is_file()
    assert ("FAILED: safety" in (tmp_path / "gate.md").read_text()) is not known


def test_it_names_every_check():
    listed = README.split("Checks: ")[1].split(".")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == set(CHECKS)


def test_its_picture_exists():
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).is_file()
