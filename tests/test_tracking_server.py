"""The same sweep through `mlflow server`, over a SQLite file and over PostgreSQL, and when the server goes away."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from example_store import tracking_server
from test_sweep_run import finish, start, sweep

pytest_plugins = ["databases"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.timeout(300),
]

BOT = '''
import asyncio
from pathlib import Path

from sonar_eval.demo.bot import CafeBot


class Waits(CafeBot):
    """Serves the first cell, and the second once it is told to."""

    async def setup_trial(self, ctx):
        while ctx.variant.prompt == "v2" and not Path("go").exists():
            await asyncio.sleep(0.05)
        return await super().setup_trial(ctx)
'''


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def served(request, tmp_path_factory):
    """Serve an empty store of either kind."""
    from databases import new_url

    folder = tmp_path_factory.mktemp(request.param)
    with tracking_server(new_url(request, request.param, folder), folder) as address:
        yield address


def contents(address, experiment):
    """Read what a store holds of an experiment, without ids and times."""
    from mlflow import MlflowClient

    client = MlflowClient(address)
    number = client.get_experiment_by_name(experiment).experiment_id
    runs = client.search_runs([number])
    names = {run.info.run_id: run.info.run_name for run in runs}
    found = {}
    for run in runs:
        where = f"run_id = '{run.info.run_id}'"
        traces = client.search_traces(locations=[number], filter_string=where) if "sonar.cell" in run.data.tags else []
        found[run.info.run_name if "sonar.cell" in run.data.tags else "sweep"] = {
            "status": run.info.status,
            "below": names.get(run.data.tags.get("mlflow.parentRunId")) is not None,
            "params": run.data.params,
            "metrics": {key: value for key, value in run.data.metrics.items() if not key.startswith("latency")},
            "artifacts": sorted(item.path for item in client.list_artifacts(run.info.run_id)),
            "prompts": run.data.tags.get("mlflow.linkedPrompts"),
            "traces": sorted(shape(trace) for trace in traces),
        }
    return found


def shape(trace):
    """Return what of a trace must be the same when the trial is run again."""
    verdicts = sorted((found.name, str(found.feedback.value)) for found in trace.info.assessments)
    spans = [(span.name, span.span_type, span.parent_id is None) for span in trace.data.spans]
    return trace.info.request_preview, trace.info.response_preview, trace.info.state.value, verdicts, sorted(spans)


def test_everything_lands_through_a_server_too(served, tmp_path):
    swept = sweep(tmp_path, f"tracking.uri={served}", "tracking.experiment=whole", "prompt=v1,v2", "task.k=2")
    assert swept.status == 0, swept.err
    found = contents(served, "whole")
    assert len(found) == 3
    assert {run["status"] for run in found.values()} == {"FINISHED"}
    for result in swept.results:
        run = found[result["name"]]
        assert run["below"]
        assert len(run["traces"]) == 2
        assert run["metrics"]["trials_judged"] == 2
        assert {"config.json", "trials.json", "trials.jsonl", "transcripts"} <= set(run["artifacts"])
        spans = {name for name, _, _ in run["traces"][0][4]}
        assert {"conversation", "turn 1"} <= spans


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Run four cells that are tracked nowhere yet."""
    folder = tmp_path_factory.mktemp("recorded")
    swept = sweep(folder, "model=offline-careful,offline-hasty", "prompt=v1,v2", "task.k=2", "tracking=none")
    assert swept.status == 0, swept.err
    return swept


PUBLISH = """
import sys
from pathlib import Path
from sonar_eval.sweep.publish import publish_cell
from sonar_eval.tracking.mlflow import MLflowTracker
publish_cell(Path(sys.argv[1]), MLflowTracker(sys.argv[2], "at once"), sys.argv[3])
"""


def publish_at_once(address, swept):
    """Publish every cell from a process of its own, all at the same time."""
    from sonar_eval.tracking.mlflow import MLflowTracker

    tracker = MLflowTracker(address, "at once")
    parent = tracker.start_sweep("four", "command")

    def run(result):
        command = [sys.executable, "-c", PUBLISH, str(swept.folder / result["key"]), address, parent]
        return subprocess.run(command, capture_output=True, text=True, timeout=200)

    with ThreadPoolExecutor(4) as pool:
        errors = [ran.stderr for ran in pool.map(run, swept.results) if ran.returncode]
    assert errors == []
    tracker.end_sweep(parent, "FINISHED")
    found = contents(address, "at once")
    assert {run["status"] for run in found.values()} == {"FINISHED"}
    assert {name: len(run["traces"]) for name, run in found.items() if name != "sweep"} == {
        result["name"]: 2 for result in swept.results
    }


def test_four_jobs_publish_at_once_through_a_server(served, recorded):
    publish_at_once(served, recorded)


def test_four_jobs_publish_at_once_into_postgresql(recorded, request, tmp_path, monkeypatch):
    from databases import new_url

    monkeypatch.chdir(tmp_path)
    publish_at_once(new_url(request, "postgresql", tmp_path), recorded)


def test_what_a_server_missed_is_caught_up_to_the_store_of_an_undisturbed_sweep(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    (tmp_path / "my_bots.py").write_text(BOT, encoding="utf-8")
    cells = ("bot=mine", "bot.adapter=my_bots:Waits", "prompt=v1,v2", "task.k=2")
    with tracking_server(f"sqlite:///{folder / 'mlflow.db'}", folder) as address:
        process = start(tmp_path, *cells, f"tracking.uri={address}", "tracking.experiment=missed")
        wait_for_one_result(tmp_path, process)
    (tmp_path / "go").touch()
    swept = finish(tmp_path, process)
    assert swept.status == 1
    assert [len(swept.trials(prompt=prompt)) for prompt in ("v1", "v2")] == [2, 2]
    last = swept.out.splitlines()[-1]
    command = f"sonar-eval tracking publish sweeps/{swept.folder.name}"
    assert last == f"All trials are on disk. When the tracker is back: {command}"
    assert swept.err.count("was not published") == 1
    with tracking_server(f"sqlite:///{folder / 'mlflow.db'}", folder) as address:
        publish(swept.folder, "--uri", address)
        caught_up = contents(address, "missed")
        publish(swept.folder, "--uri", address)
        assert contents(address, "missed") == caught_up
        again = sweep(tmp_path, *cells, f"tracking.uri={address}", "tracking.experiment=calm", "hydra.sweep.dir=calm")
        assert again.status == 0, again.err
        assert contents(address, "calm") == caught_up
    assert {run["status"] for run in caught_up.values()} == {"FINISHED"}


def test_a_sweep_is_gone_on_with_from_a_server_alone(served, tmp_path):
    where = (f"tracking.uri={served}", "tracking.experiment=gone on")
    cells = ("bot=mine", "bot.adapter=my_bots:Waits", "task.k=1")
    (tmp_path / "my_bots.py").write_text(BOT, encoding="utf-8")
    first = sweep(tmp_path, *cells, *where)
    assert first.status == 0, first.err
    before = contents(served, "gone on")
    (run,) = [result["run_id"] for result in first.results]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(tmp_path / "my_bots.py", elsewhere)
    parent = json.loads((first.folder / "sweep.json").read_text(encoding="utf-8"))["sweep_id"]
    again = sweep(elsewhere, f"resume=mlflow:{parent}", *where)
    assert again.status == 0, again.err
    assert "kept 1 of 1" in again.err
    assert again.trials() == first.trials()
    assert again.results[0]["run_id"] == run
    assert contents(served, "gone on") == before


def wait_for_one_result(folder, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for path in folder.glob("sweeps/*/*/result.json"):
            if json.loads(path.read_text(encoding="utf-8"))["run_id"]:
                return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    pytest.fail("no cell was published")


def publish(sweep_dir, *options):
    command = [sys.executable, "-m", "sonar_eval", "tracking", "publish", str(sweep_dir), *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
