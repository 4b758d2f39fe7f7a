"""Runs that a killed process left open."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from sonar_eval.cli import main
from sonar_eval.tracking.mlflow import MLflowTracker, reconcile
from sonar_eval.tracking.mlflow.reconcile import ALIVE, HOST, PID, STARTED
from stores import empty_store

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")


@pytest.fixture
def uri(tmp_path):
    return empty_store(tmp_path)


@pytest.fixture
def client(uri):
    from mlflow import MlflowClient

    return MlflowClient(uri)


@pytest.fixture
def open_run(uri, client):
    """Open a sweep's run and change its tags."""

    def make(**tags):
        run_id = MLflowTracker(uri, "e").start_sweep("sweep", "command")
        for name, value in tags.items():
            client.set_tag(run_id, name.replace("_", ".", 1), value)
        return run_id

    return make


def status(client, run_id):
    return client.get_run(run_id).info.status


def test_a_run_whose_process_was_killed_is_closed_and_one_that_works_is_not(uri, client, open_run):
    alive = open_run()
    program = (
        "import os, sys; from sonar_eval.tracking.mlflow import MLflowTracker\n"
        "print(MLflowTracker(sys.argv[1], 'e').start_sweep('killed', 'command'), flush=True); os.kill(os.getpid(), 9)"
    )
    ran = subprocess.run([sys.executable, "-c", program, uri], capture_output=True, text=True, timeout=50)
    killed = ran.stdout.strip()
    assert (ran.returncode, status(client, killed)) == (-9, "RUNNING")
    (closed,) = reconcile(uri)
    assert (closed.run_id, closed.name) == (killed, "killed")
    assert "is gone" in closed.reason
    assert (status(client, killed), status(client, alive)) == ("KILLED", "RUNNING")
    assert reconcile(uri) == []


def test_a_process_that_got_the_number_of_a_dead_one_does_not_keep_its_run_open(uri, client, open_run):
    run_id = open_run(**{STARTED.replace(".", "_", 1): "1"})
    assert [run.run_id for run in reconcile(uri)] == [run_id]


def test_another_host_is_given_time(uri, client, open_run):
    hour_ago = str(int((time.time() - 3600) * 1000))
    run_id = open_run(**{HOST.replace(".", "_", 1): "elsewhere", ALIVE.replace(".", "_", 1): hour_ago})
    assert reconcile(uri) == []
    (closed,) = reconcile(uri, silent_for_s=1800)
    assert closed.reason == "no sign of life from elsewhere for 1.0 hours"
    assert status(client, run_id) == "KILLED"


def test_runs_of_others_are_left_alone(uri, client):
    experiment = client.create_experiment("theirs")
    run = client.create_run(experiment, start_time=0)
    assert reconcile(uri) == []
    assert status(client, run.info.run_id) == "RUNNING"


def test_a_sweep_that_is_taken_up_again_runs_again_in_the_same_run(uri, client):
    first = MLflowTracker(uri, "e").start_sweep("one", "command", key="k")
    MLflowTracker(uri, "e").end_sweep(first, "KILLED")
    assert MLflowTracker(uri, "e").start_sweep("one", "command", key="k", reopen=False) == first
    assert status(client, first) == "KILLED"
    assert MLflowTracker(uri, "e").start_sweep("one", "command", key="k") == first
    assert status(client, first) == "RUNNING"
    assert MLflowTracker(uri, "e").start_sweep("one", "command", key="other") != first


def test_the_command_names_what_it_closed(uri, open_run):
    open_run(**{PID.replace(".", "_", 1): "999999999"})
    ran = CliRunner().invoke(main, ["tracking", "reconcile", "--uri", uri])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines() == ["KILLED sweep: its process 999999999 is gone", "1 runs closed"]


def test_a_store_that_is_not_there_is_not_made(tmp_path):
    ran = CliRunner().invoke(main, ["tracking", "reconcile", "--uri", f"sqlite:///{tmp_path / 'none.db'}"])
    assert ran.exit_code == 1
    assert "there is no store" in ran.stderr
    assert not (tmp_path / "none.db").exists()


def test_a_store_whose_maker_was_killed_is_made_by_the_next(tmp_path):
    program = (
        "import os, sys; from mlflow.store.db import utils; from sonar_eval.tracking.mlflow import MLflowTracker\n"
        "utils._upgrade_db = lambda engine: os.kill(os.getpid(), 9)\n"
        "from mlflow.store.tracking import sqlalchemy_store\n"
        "MLflowTracker(sys.argv[1], 'e').start_sweep('killed', 'command')"
    )
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    ran = subprocess.run([sys.executable, "-c", program, uri], capture_output=True, text=True, timeout=50)
    assert (ran.returncode, (tmp_path / "mlflow.db").exists()) == (-9, False), ran.stderr
    assert MLflowTracker(uri, "e").start_sweep("next", "command")
    assert reconcile(uri) == []
