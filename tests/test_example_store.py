"""The example store: built by its script, opened from a copy, and the one that is checked in."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from example_store import EXPERIMENT, GRID, absolute_paths, build, end, wait_for
from sonar_eval import ConfigError
from sonar_eval.tracking.viewer import Store, serve_command

pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.timeout(300),
]

CHECKED_IN = Path(__file__).parents[1] / "mlruns_example"
SMALL = ("model=offline-careful,offline-hasty", "fault=none,payment_outage", "task.k=2")


@pytest.fixture(scope="module", params=["built", "checked in"])
def example(request, tmp_path_factory):
    """Return the example in a folder where it was not made."""
    folder = tmp_path_factory.mktemp("elsewhere") / "moved"
    if request.param == "built":
        made = tmp_path_factory.mktemp("made") / "store"
        build(made, SMALL)
        shutil.move(made, folder)
    else:
        shutil.copytree(CHECKED_IN, folder)
    return folder


@pytest.fixture(scope="module")
def served(example, tmp_path_factory):
    """Serve it as `sonar-eval ui FOLDER` does."""
    before = digest(example)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    store = Store.in_folder(example)
    command, variables = serve_command(store, port)
    log = tmp_path_factory.mktemp("log") / "ui.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **variables}, start_new_session=True
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        end(server)
        shutil.rmtree(store.artifacts.parent)
    assert digest(example) == before, "looking at the example changed it"


def digest(folder):
    return hashlib.sha256((folder / "mlflow.db").read_bytes()).hexdigest()


def test_runs_artifacts_and_traces_can_be_read_where_it_was_moved_to(served, tmp_path):
    from mlflow import MlflowClient

    client = MlflowClient(served)
    number = client.get_experiment_by_name(EXPERIMENT).experiment_id
    runs = client.search_runs([number])
    cells = [run for run in runs if run.data.tags["sonar.kind"] == "cell"]
    # Beside them stand the sweep and, unless it was recorded before there were such, its arms.
    arms = [run for run in runs if run.data.tags["sonar.kind"] == "arm"]
    assert len(cells) == len(runs) - len(arms) - 1 >= 4
    assert {run.info.status for run in runs} == {"FINISHED"}
    run = cells[0]
    folder = Path(client.download_artifacts(run.info.run_id, "", str(tmp_path)))
    assert (folder / "transcripts" / "trial-001.md").read_text(encoding="utf-8").startswith("# ")
    traces = client.search_traces(locations=[number], filter_string=f"run_id = '{run.info.run_id}'")
    assert len(traces) == run.data.metrics["trials_judged"]
    for trace in traces:
        assert {"conversation", "turn 1"} <= {span.name for span in trace.data.spans}
        assert {"all_passed", "judge"} <= {found.name for found in trace.info.assessments}


def test_the_page_opens(served):
    assert "<title>MLflow</title>" in httpx.get(served, trust_env=False).text


def test_it_tells_nothing_of_the_machine_that_made_it(example):
    assert absolute_paths(example) == []


def test_the_checked_in_one_is_small_and_shows_a_verdict():
    assert (CHECKED_IN / "mlflow.db").stat().st_size < 6_500_000
    with closing(sqlite3.connect(f"file:{CHECKED_IN / 'mlflow.db'}?mode=ro", uri=True)) as database:
        rates = dict(
            database.execute(
                "SELECT p.value, avg(m.value) FROM latest_metrics m JOIN params p USING (run_uuid) "
                "WHERE m.key = 'pass_rate' AND p.key = 'model' GROUP BY p.value"
            ).fetchall()
        )
    assert set(rates) == set(GRID[0].partition("=")[2].split(","))
    assert rates["offline-careful"] > rates["offline-hasty"] + 0.2


def test_a_store_of_one_s_own_is_opened_in_its_place(tmp_path):
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        database.execute("CREATE TABLE experiment_tags (key, value, experiment_id)")
    store = Store.in_folder(tmp_path)
    assert (store.uri, store.artifacts) == (f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "mlartifacts")
    assert store.note == ""


def test_a_folder_without_a_store_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no mlflow\.db in"):
        Store.in_folder(tmp_path)
    (tmp_path / "mlflow.db").write_text("no database, and long enough to be taken for none " * 3)
    with pytest.raises(ConfigError, match="is no MLflow store"):
        Store.in_folder(tmp_path)
