"""The command `sonar-eval`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from sonar_eval import __version__
from sonar_eval.cli import main


def run(*arguments, folder):
    command = [sys.executable, "-m", "sonar_eval", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=50)


def test_it_tells_its_version():
    told = CliRunner().invoke(main, ["--version"])
    assert (told.exit_code, told.output) == (0, f"sonar-eval, version {__version__}\n")


def test_it_lists_its_commands():
    told = CliRunner().invoke(main, ["--help"])
    assert told.exit_code == 0
    assert all(command in told.output for command in ("sweep", "ingest", "ui"))


def test_the_console_script_is_the_same_command(tmp_path):
    script = [*sys.executable.rpartition("/")[:2], "sonar-eval"]
    told = subprocess.run(["".join(script), "--version"], cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert told.stdout == f"sonar-eval, version {__version__}\n"


@pytest.mark.parametrize("uri", [(), ("--uri", "sqlite:///elsewhere/mlflow.db")])
def test_the_ui_of_a_store_that_is_not_there_is_one_line(tmp_path, monkeypatch, uri):
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(main, ["ui", *uri])
    assert told.exit_code == 1
    assert told.output.count("\n") == 1
    assert "there is no store sqlite:///" in told.output
    assert "run a sweep first" in told.output
    assert list(tmp_path.iterdir()) == []


def test_sweep_hands_help_and_arguments_on(tmp_path):
    told = run("sweep", "--help", folder=tmp_path)
    assert told.returncode == 0
    assert "scenario: change_of_mind" in told.stdout
    wrong = run("sweep", "-m", "scenario=order_late", folder=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Could not find 'scenario/order_late'" in wrong.stderr


def test_sweep_takes_hydra_s_own_options(tmp_path):
    told = run("sweep", "--cfg", "job", "-p", "task", "task.k=3", folder=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "k: 3" in told.stdout
    assert list(tmp_path.iterdir()) == []


def test_ingest_hands_help_and_arguments_on(tmp_path):
    told = run("ingest", "--help", folder=tmp_path)
    assert told.returncode == 0
    assert "Usage: sonar-eval ingest" in told.stdout
    assert "--port" in told.stdout
    wrong = run("ingest", "--host", "0.0.0.0", folder=tmp_path)
    assert wrong.returncode == 2
    assert "without a key it listens on loopback only" in wrong.stderr


def test_an_unknown_command_is_refused():
    told = CliRunner().invoke(main, ["swep"])
    assert told.exit_code == 2
    assert "No such command 'swep'" in told.output
