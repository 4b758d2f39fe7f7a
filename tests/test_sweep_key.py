"""The key of a cell: another for whatever changes a result, the same for whatever does not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hydra import compose, initialize_config_dir

from sonar_eval.sweep.app import prepare
from sonar_eval.sweep.build import read_config
from sonar_eval.sweep.key import cell_key, changed_parts, fingerprint
from sonar_eval.sweep.searchpath import shipped_conf

CHOICES = {"model": "offline-careful", "prompt": "v1", "scenario": "order_latte", "fault": "none"}


@pytest.fixture(autouse=True)
def _an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nothing")
    monkeypatch.delenv("SONAR_CONF", raising=False)


def parts(*overrides):
    prepare()
    with initialize_config_dir(str(shipped_conf()), version_base="1.3"):
        return fingerprint(read_config(compose("sweep", list(overrides))))


COUNTS = [
    ("task.seed=1", "task"),
    ("task.turn_timeout_s=5", "task"),
    ("model.temperature=0.5", "model"),
    ("model.reliability=0.5", "model"),
    ("model.base_url=http://127.0.0.1:9/v1", "model"),
    ("prompt.text=hello", "prompt"),
    ("scenario.user_instructions=hello", "scenario"),
    ("scenario.assertions=[]", "scenario"),
    ("scenario.max_turns=3", "scenario"),
    ("scenario.strict_faults=true", "scenario"),
    ("+scenario.seed.stock={latte:0}", "scenario"),
    ("fault.rules=[{target:payment_api,action:error}]", "fault"),
    ("user=openai", "user"),
    ("grader=none", "grader"),
    ("grader.threshold=0.9", "grader"),
    ("grader.required=true", "grader"),
    ("bot=cafe_http", "bot"),
    ("bot.adapter=elsewhere:Bot", "bot"),
    ("bot.fidelity=real", "bot"),
]


@pytest.mark.parametrize(("override", "part"), COUNTS, ids=[override for override, _ in COUNTS])
def test_what_changes_a_result_changes_the_key_and_names_its_part(override, part):
    before, now = parts(), parts(override)
    assert changed_parts(before, now) == [part]
    assert cell_key(CHOICES, before) != cell_key(CHOICES, now)


@pytest.mark.parametrize(
    "override",
    [
        "task.k=50",
        "scenario.k=7",
        "task=smoke",
        "task.concurrency=1",
        "task.retries=9",
        "task.tenant=t",
        "task.project=p",
        "task.setup_timeout_s=5",
        "task.teardown_timeout_s=5",
        "ingest=external",
        "ingest.settle_timeout_s=1",
        "tracking=none",
        "tracking.uri=sqlite:///other.db",
        "tracking.parent_run_id=abc",
        "model.api_key_env=ANOTHER",
        "bot.key_env=ANOTHER",
        "fail_fast=true",
        "dry_run=true",
        "resume=last",
        "model.temperature=1",
    ],
)
def test_how_and_where_a_cell_is_run_is_no_part_of_it(override):
    assert parts(override) == parts()


def test_a_prompt_is_its_text_wherever_it_was_read_from(tmp_path):
    (tmp_path / "a.md").write_text("Be brief.\n", encoding="utf-8")
    (tmp_path / "b.md").write_text("Be brief.\n", encoding="utf-8")
    named = parts("prompt.text_file=a.md")
    assert named == parts("prompt.text_file=b.md")
    assert named == parts('prompt.text="Be brief.\n"')
    (tmp_path / "a.md").write_text("Be long.\n", encoding="utf-8")
    assert changed_parts(named, parts("prompt.text_file=a.md")) == ["prompt"]


def test_another_minor_version_of_the_package_is_another_cell_and_a_patch_is_not(monkeypatch):
    from sonar_eval.sweep import key

    monkeypatch.setattr(key, "__version__", "0.6.0")
    before = parts()
    monkeypatch.setattr(key, "__version__", "0.6.9")
    assert parts() == before
    monkeypatch.setattr(key, "__version__", "0.7.0")
    assert changed_parts(before, parts()) == ["version"]


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_finds_the_same_key(seed, tmp_path):
    program = (
        "from test_sweep_key import CHOICES, parts; from sonar_eval.sweep.key import cell_key; "
        "print(cell_key(CHOICES, parts('fault=stock_garbage')))"
    )
    paths = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50
    )
    assert ran.stdout.strip() == cell_key(CHOICES, parts("fault=stock_garbage")), ran.stderr


def test_a_key_names_the_choices_and_is_short_enough_for_a_file_system():
    key = cell_key({**CHOICES, "scenario": "folder/" + "x" * 300}, parts())
    assert key.startswith("offline-careful.v1.folder_xxx")
    assert len(key) < 140
    assert "/" not in key
