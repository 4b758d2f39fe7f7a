"""A sweep's folder brought into a tracker, once or many times, in whatever state either is."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from click.testing import CliRunner

from fakes import errored_trial, judged_trial
from sonar_eval import ConfigError, JSONFileStore
from sonar_eval.cli import main
from sonar_eval.metrics import roll_up
from sonar_eval.records import scenario_record, trial_record
from sonar_eval.scorecard import Score
from sonar_eval.sweep.publish import publish_sweep, read_cell, sweep_key, tracker_of
from sonar_eval.tracking.mlflow import MLflowTracker
from stores import empty_store

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.timeout(150),
]

CONFIG = {
    "prompt": {"name": "p", "text": "Be kind."},
    "scenario": {"name": "s", "strict_faults": False},
    "grader": {"type": "none", "required": False, "threshold": 0.7},
}


def write_cell(sweep_dir, key, *trials, k=2, error=None, **more):
    """Write a cell's folder as a job does."""
    folder = sweep_dir / key
    store = JSONFileStore(folder)
    for trial in trials:
        store.save_trial(trial_record("s", trial))
    result = {
        "key": key, "name": f"m p s {key}", "choices": {"model": "m", "prompt": "p", "scenario": "s", "fault": key},
        "varies": {}, "config": CONFIG, "started_ms": 1_700_000_000_000, "error": error, "run_id": None,
        "report": scenario_record(roll_up("s", list(trials), k=k)) if trials else None, **more,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result))
    return folder


@pytest.fixture
def sweep_dir(tmp_path):
    """Make the folder of a sweep of two cells that is to be tracked in `tmp_path`."""
    folder = tmp_path / "sweeps" / "first"
    folder.mkdir(parents=True)
    tracking = {"uri": empty_store(tmp_path), "experiment": "e", "traces": "trial"}
    known = {"cells": 2, "varies": [], "sweep_id": "", "command": ["-m"], "key": "first-1", "tracking": tracking}
    (folder / "sweep.json").write_text(json.dumps(known))
    write_cell(folder, "none", judged_trial(0, True), judged_trial(1, False))
    write_cell(folder, "outage", judged_trial(0, True), errored_trial(1))
    return folder


@pytest.fixture
def runs(tmp_path):
    """Read the runs of the store: the sweep's, and its cells' by fault."""
    from mlflow import MlflowClient

    def read():
        client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("e")
        found = client.search_runs([experiment.experiment_id])
        (parent,) = [run for run in found if run.data.tags["sonar.kind"] == "sweep"]
        cells = [run for run in found if run.data.tags["sonar.kind"] == "cell"]
        assert {run.data.tags["mlflow.parentRunId"] for run in cells} <= {parent.info.run_id}
        assert len({run.data.params["fault"] for run in cells}) == len(cells), "a cell stands there twice"
        return parent, {run.data.params["fault"]: run for run in cells}

    return read


def traces_of(tmp_path, run):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    return client.search_traces(
        locations=[run.info.experiment_id], filter_string=f"run_id = '{run.info.run_id}'", order_by=["timestamp_ms ASC"]
    )


def test_a_sweep_that_never_met_its_tracker_is_published_whole(tmp_path, sweep_dir, runs):
    done = publish_sweep(sweep_dir, tracker_of(sweep_dir))
    parent, cells = runs()
    assert (parent.info.status, parent.info.run_name) == ("FINISHED", "first")
    assert {cell.run_id for cell in done} == {run.info.run_id for run in cells.values()}
    assert cells["none"].data.metrics["pass_rate"] == 0.5
    assert (cells["outage"].data.metrics["trials_judged"], cells["outage"].data.metrics["trials_errored"]) == (1, 1)
    assert len(traces_of(tmp_path, cells["none"])) == len(traces_of(tmp_path, cells["outage"])) == 2
    assert json.loads((sweep_dir / "none" / "result.json").read_text())["run_id"] == cells["none"].info.run_id


def test_publishing_again_changes_nothing(tmp_path, sweep_dir, runs):
    first = publish_sweep(sweep_dir, tracker_of(sweep_dir))
    again = publish_sweep(sweep_dir, tracker_of(sweep_dir))
    assert first == again
    assert len(traces_of(tmp_path, runs()[1]["none"])) == 2


def test_a_cell_that_was_topped_up_takes_the_place_of_the_one_that_was_there(tmp_path, sweep_dir, runs):
    publish_sweep(sweep_dir, tracker_of(sweep_dir))
    before = runs()[1]
    write_cell(sweep_dir, "none", judged_trial(2, True), k=3)
    trials = [judged_trial(0, True), judged_trial(1, False), judged_trial(2, True)]
    result = json.loads((sweep_dir / "none" / "result.json").read_text())
    (sweep_dir / "none" / "result.json").write_text(
        json.dumps({**result, "report": scenario_record(roll_up("s", trials, k=3))})
    )
    publish_sweep(sweep_dir, tracker_of(sweep_dir))
    after = runs()[1]
    assert after["none"].info.run_id != before["none"].info.run_id
    assert after["outage"].info.run_id == before["outage"].info.run_id
    assert after["none"].data.metrics["trials_judged"] == 3
    assert len(traces_of(tmp_path, after["none"])) == 3
    assert len(traces_of(tmp_path, before["none"])) == 0


def test_what_is_published_are_the_trials_asked_for_last(tmp_path, sweep_dir, runs):
    trials = [judged_trial(0, True), judged_trial(1, False)]
    result = json.loads((sweep_dir / "none" / "result.json").read_text())
    fewer = {**result, "report": scenario_record(roll_up("s", trials[:1], k=1))}
    (sweep_dir / "none" / "result.json").write_text(json.dumps(fewer))
    publish_sweep(sweep_dir, tracker_of(sweep_dir))
    run = runs()[1]["none"]
    assert (run.data.metrics["trials_judged"], run.data.metrics["pass_rate"]) == (1, 1.0)
    assert len(traces_of(tmp_path, run)) == 1
    (sweep_dir / "none" / "result.json").write_text(json.dumps({**result, "report": None, "error": "gone"}))
    assert len(read_cell(sweep_dir / "none").records) == 2


def test_a_run_that_was_left_half_written_is_written_anew(tmp_path, sweep_dir, runs):
    from mlflow import MlflowClient

    publish_sweep(sweep_dir, tracker_of(sweep_dir))
    half = runs()[1]["none"]
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    client.delete_tag(half.info.run_id, "sonar.digest")
    publish_sweep(sweep_dir, tracker_of(sweep_dir))
    assert runs()[1]["none"].info.run_id != half.info.run_id
    assert client.get_run(half.info.run_id).info.lifecycle_stage == "deleted"


def test_a_sweep_with_cells_missing_is_not_finished(sweep_dir, runs):
    known = json.loads((sweep_dir / "sweep.json").read_text())
    (sweep_dir / "sweep.json").write_text(json.dumps({**known, "cells": 3}))
    publish_sweep(sweep_dir, tracker_of(sweep_dir))
    assert runs()[0].info.status == "KILLED"
    write_cell(sweep_dir, "late", judged_trial(0, True), k=1)
    publish_sweep(sweep_dir, tracker_of(sweep_dir))
    assert runs()[0].info.status == "FINISHED"


def test_a_failed_cell_fails_its_run_and_the_sweep(sweep_dir, runs):
    write_cell(sweep_dir, "outage", error="no ingest")
    publish_sweep(sweep_dir, tracker_of(sweep_dir))
    parent, cells = runs()
    assert (parent.info.status, cells["outage"].info.status, cells["none"].info.status) == (
        "FAILED",
        "FAILED",
        "FINISHED",
    )


def test_that_it_was_not_published_is_no_failure_once_it_is(sweep_dir, runs):
    result = json.loads((sweep_dir / "none" / "result.json").read_text())
    (sweep_dir / "none" / "result.json").write_text(json.dumps({**result, "error": "not published: no server"}))
    publish_sweep(sweep_dir, tracker_of(sweep_dir))
    parent, cells = runs()
    assert (parent.info.status, cells["none"].info.status) == ("FINISHED", "FINISHED")
    assert json.loads((sweep_dir / "none" / "result.json").read_text())["error"] is None


def test_of_two_records_of_one_trial_the_last_holds(sweep_dir):
    JSONFileStore(sweep_dir / "none").save_trial(trial_record("s", judged_trial(1, True)))
    cell = read_cell(sweep_dir / "none")
    assert [record["passed"] for record in cell.records] == [True, True]
    assert {score.name: score.value for score in cell.scores}["pass_rate"] == 1.0


def test_numbers_are_those_of_the_report_by_the_rules_of_the_configuration(sweep_dir):
    config = {**CONFIG, "grader": {"type": "x", "required": True, "threshold": 0.9}}
    trials = [replace(judged_trial(0, True), judge_asked=True)]
    folder = write_cell(sweep_dir, "strict", *trials, k=1, config=config)
    names = {score.name for score in read_cell(folder).scores}
    assert "pass_rate" not in names, "an ungraded trial is not known to pass"


def test_four_processes_publish_into_one_fresh_file(tmp_path, sweep_dir, runs):
    for number in range(4):
        write_cell(sweep_dir, f"f{number}", *(judged_trial(index, True) for index in range(5)), k=5)
    (tmp_path / "mlflow.db").unlink()
    tracker = tracker_of(sweep_dir)
    parent = tracker.start_sweep("first", "command", key=sweep_key(sweep_dir))
    program = (
        "import sys; from pathlib import Path; from sonar_eval.sweep.publish import publish_cell, tracker_of\n"
        "folder = Path(sys.argv[1]); publish_cell(folder, tracker_of(folder.parent), sys.argv[2])"
    )

    def run(number):
        command = [sys.executable, "-c", program, str(sweep_dir / f"f{number}"), parent]
        return subprocess.run(command, capture_output=True, text=True, timeout=100)

    with ThreadPoolExecutor(4) as pool:
        for ran in pool.map(run, range(4)):
            assert ran.returncode == 0, ran.stderr
    cells = runs()[1]
    assert {run.info.status for run in cells.values()} == {"FINISHED"}
    assert {fault: len(traces_of(tmp_path, run)) for fault, run in cells.items()} == {f"f{n}": 5 for n in range(4)}


def test_the_command_catches_up_and_says_what_it_did(tmp_path, sweep_dir, runs):
    ran = CliRunner().invoke(main, ["tracking", "publish", str(sweep_dir)])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.startswith("2 of 2 cells are in MLflow. Look at it: sonar-eval ui")
    assert len(runs()[1]) == 2


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("http://127.0.0.1:1", "no MLflow server at http://127.0.0.1:1"),
        ("sqlite:////proc/nowhere/mlflow.db", "cannot use sqlite:////proc/nowhere/mlflow.db"),
    ],
)
def test_a_tracker_that_is_away_is_told_in_one_line(sweep_dir, uri, said):
    ran = CliRunner().invoke(main, ["tracking", "publish", str(sweep_dir), "--uri", uri])
    assert ran.exit_code == 2
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_a_cell_that_cannot_be_read_costs_no_other(sweep_dir, runs):
    with (sweep_dir / "outage" / "trials.jsonl").open("a") as file:
        file.write(json.dumps({**trial_record("s", judged_trial(1)), "schema_version": 99}) + "\n")
    ran = CliRunner().invoke(main, ["tracking", "publish", str(sweep_dir)])
    assert ran.exit_code == 1
    assert "not published: m p s outage: ValueError: trial record of schema 99" in ran.stderr
    parent, cells = runs()
    assert (set(cells), parent.info.status) == ({"none"}, "KILLED")


def test_a_folder_that_holds_no_sweep_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no sweep: expected sweep\.json"):
        tracker_of(tmp_path)


def test_an_address_with_a_password_is_not_kept_and_asked_for(sweep_dir):
    known = json.loads((sweep_dir / "sweep.json").read_text())
    (sweep_dir / "sweep.json").write_text(json.dumps({**known, "tracking": {**known["tracking"], "uri": None}}))
    with pytest.raises(ConfigError, match="name it with --uri"):
        tracker_of(sweep_dir)
    assert isinstance(tracker_of(sweep_dir, "sqlite:///other.db"), MLflowTracker)


def test_a_cell_is_read_back_as_it_was_written(sweep_dir):
    cell = read_cell(sweep_dir / "none")
    assert (cell.name, cell.key, cell.sweep, cell.config) == ("m p s none", "none", "first-1", CONFIG)
    assert cell.scores[0] == Score("pass_rate", 0.5)
