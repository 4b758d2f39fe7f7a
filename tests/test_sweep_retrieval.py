"""Going on with a sweep whose folder is not here: MLflow gives back what it was and what had finished."""

from __future__ import annotations

import json
import shutil
import socket

import pytest

from test_sweep_resume import ids, number_of_records, runs_of, said, tracked
from test_sweep_run import sweep

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.timeout(300),
]

GRID = ("scenario=order_latte,refund", "task.k=2")


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """A sweep of which only the store is left; return its conversations, too."""
    folder = tmp_path_factory.mktemp("left")
    swept = sweep(folder, *GRID)
    assert swept.status == 0, swept.err
    conversations = ids(swept.folder)
    shutil.rmtree(folder / "sweeps")
    return folder, swept, conversations


@pytest.fixture
def store(left, tmp_path):
    """Copy the store, which is written to; its artifacts stay where they are."""
    shutil.copyfile(left[0] / "mlflow.db", tmp_path / "kept.db")
    return f"sqlite:///{tmp_path / 'kept.db'}"


def parent(folder, store):
    (found, *_) = runs_of(folder, store)[1]
    return found


def test_a_sweep_is_gone_on_with_where_only_mlflow_is(left, store, tmp_path):
    _, first, conversations = left
    run = parent(tmp_path, store)
    again = sweep(tmp_path / "here", f"resume=mlflow:{run.info.run_id}", f"tracking.uri={store}")
    assert again.status == 0, again.err
    assert set(said(again).values()) == {"kept 2 of 2"}
    assert again.folder.name == run.info.run_name
    assert ids(again.folder) == conversations
    assert len(list(again.folder.glob("*/transcripts/trial-00[12].md"))) == 4
    assert again.out.splitlines()[:4] == first.out.splitlines()[:4]
    assert tracked(tmp_path, store) == [("sweep", "FINISHED", 0), ("cell", "FINISHED", 2), ("cell", "FINISHED", 2)]
    # From now on it is a folder like any other.
    topped = sweep(tmp_path / "here", "resume=last", "task.k=3")
    assert topped.status == 0, topped.err
    assert set(said(topped).values()) == {"2 of 3 found, 1 to run"}
    assert conversations.items() <= ids(topped.folder).items()
    assert number_of_records(topped.folder) == 6
    assert tracked(tmp_path, store) == [("sweep", "FINISHED", 0), ("cell", "FINISHED", 3), ("cell", "FINISHED", 3)]


def test_what_is_here_already_is_not_brought_again_and_another_sweep_is_left_alone(left, store, tmp_path):
    conversations = left[2]
    run = parent(tmp_path, store)
    other = tmp_path / "here" / "sweeps" / run.info.run_name
    other.mkdir(parents=True)
    (other / "sweep.json").write_text(json.dumps({"key": "another", "command": []}), encoding="utf-8")
    arguments = (f"resume=mlflow:{run.info.run_id}", f"tracking.uri={store}", *GRID)
    again = sweep(tmp_path / "here", *arguments)
    assert again.status == 0, again.err
    folder = tmp_path / "here" / "sweeps" / f"{run.info.run_name}-{run.info.run_id[:8]}"
    assert ids(folder) == conversations
    assert json.loads((other / "sweep.json").read_text(encoding="utf-8")) == {"key": "another", "command": []}
    (cell, *_) = sorted(folder.glob("*/trials.jsonl"))
    kept, _, _ = cell.read_text(encoding="utf-8").partition("\n")
    cell.write_text(kept + "\n", encoding="utf-8")
    third = sweep(tmp_path / "here", *arguments, "dry_run=true")
    assert "1 of 2 found, 1 to run" in third.out


@pytest.mark.parametrize(("host", "warned"), [("elsewhere", True), (socket.gethostname(), False)])
def test_a_sweep_that_may_still_run_elsewhere_is_gone_on_with_under_a_warning(left, store, tmp_path, host, warned):
    run = parent(tmp_path, store)
    client, _ = runs_of(tmp_path, store)
    client.update_run(run.info.run_id, status="RUNNING")
    client.set_tag(run.info.run_id, "sonar.host", host)
    client.set_tag(run.info.run_id, "sonar.pid", "999999999")
    again = sweep(tmp_path / "here", f"resume=mlflow:{run.info.run_id}", f"tracking.uri={store}", *GRID)
    assert again.status == 0, again.err
    assert ("may still be swept by process 999999999 on elsewhere" in again.err) == warned


@pytest.mark.parametrize("rule", ["tracking.content=redacted", "tracking.content=none", "tracking.redact=[latte]"])
def test_trials_whose_text_was_changed_are_not_gone_on_with(tmp_path, rule):
    swept = sweep(tmp_path, "task.k=1", rule)
    assert swept.status == 0, swept.err
    client, (run, _) = runs_of(tmp_path)
    assert [entry.path for entry in client.list_artifacts(run.info.run_id)] == []
    again = sweep(tmp_path, f"resume=mlflow:{run.info.run_id}")
    (line,) = again.err.splitlines()
    assert again.status == 2
    assert "its trials are not whole in MLflow; go on from the folder it ran in, with resume=DIR" in line


@pytest.mark.parametrize(
    ("run_id", "told"),
    [
        ("{cell}", "is not that of a sweep; its sweep is resume=mlflow:{sweep}"),
        ("0123456789abcdef0123456789abcdef", "cannot be read from sqlite:///"),
        ("", "cannot be read from sqlite:///"),
    ],
)
def test_a_run_that_is_no_sweep_is_told_in_one_line(left, store, tmp_path, run_id, told):
    _, (run, cell, _) = runs_of(tmp_path, store)
    names = {"cell": cell.info.run_id, "sweep": run.info.run_id}
    ran = sweep(tmp_path / "here", f"resume=mlflow:{run_id.format(**names)}", f"tracking.uri={store}")
    (line,) = ran.err.splitlines()
    assert ran.status == 2
    assert told.format(**names) in line
    assert not (tmp_path / "here" / "sweeps").exists()


def test_a_store_that_is_not_there_is_not_made(tmp_path):
    ran = sweep(tmp_path, "resume=mlflow:0123456789abcdef0123456789abcdef")
    (line,) = ran.err.splitlines()
    assert ran.status == 2
    assert "there is no MLflow store sqlite:///" in line
    assert list(tmp_path.iterdir()) == []


def test_the_password_of_a_store_does_not_get_into_it(tmp_path):
    from sonar_eval.sweep.publish import keep_plan, told_command

    class Shelf:
        def keep_file(self, sweep_id, path):
            self.kept = path.read_text(encoding="utf-8")

    address = "tracking.uri=postgresql://me:secret@db/x"
    known = {"command": ["-m", address, "task.k=1"], "tracking": {"uri": address}, "plan": [{"overrides": [address]}]}
    (tmp_path / "sweep.json").write_text(json.dumps(known), encoding="utf-8")
    shelf = Shelf()
    keep_plan(tmp_path, shelf, "id")
    assert json.loads(shelf.kept)["command"] == ["-m", "task.k=1"]
    assert "secret" not in shelf.kept
    assert told_command(["-m", address]) == "sonar-eval sweep -m tracking.uri=postgresql://***@db/x"
