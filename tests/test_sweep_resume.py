"""Going on with a sweep, whatever stopped it: nothing finished is run again, nothing that differs is mixed in."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serving import SLOW
from sonar_eval.tracking.mlflow import reconcile
from test_sweep_run import BOTS, interrupt, read_trials, start, sweep, without_ids_and_times

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.timeout(300),
]

GRID = ("model=offline-careful,offline-hasty", "prompt=v1,v2", "scenario=order_latte,refund")
SMALL = ("scenario=order_latte,refund", "tracking=none")


def said(swept):
    """Return what was said of the cells before any was run, by cell name."""
    lines = [line.strip().split("  ", 1) for line in swept.err.splitlines() if line.startswith("  ")]
    return {name: words.strip() for name, words in lines}


def ids(folder):
    """Return the conversation of every trial on disk, by cell and index."""
    return {
        (path.parent.name, record["index"]): record["conversation_id"]
        for path in folder.glob("*/trials.jsonl")
        for record in read_trials(path.parent)
    }


def number_of_records(folder):
    return sum(path.read_text(encoding="utf-8").count("\n") for path in folder.glob("*/trials.jsonl"))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished sweep, to be copied and gone on with."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "house.md").write_text("Be brief.\n", encoding="utf-8")
    swept = sweep(folder, *SMALL, "prompt.text=", "prompt.text_file=house.md", "task.k=2")
    assert swept.status == 0, swept.err
    return swept


@pytest.fixture
def copied(done, tmp_path):
    """Copy it to another folder, as to another machine."""
    shutil.copytree(done.launched_in, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_finished_sweep_gone_on_with_elsewhere_runs_nothing(done, copied):
    again = sweep(copied, "resume=last")
    assert again.status == 0, again.err
    assert set(said(again).values()) == {"kept 2 of 2"}
    assert "[1/2]" not in again.err
    assert ids(again.folder) == ids(done.folder)
    assert again.out == done.out


def test_a_larger_k_is_topped_up(done, copied):
    topped = sweep(copied, f"resume=sweeps/{done.folder.name}", "task.k=3")
    assert topped.status == 0, topped.err
    assert set(said(topped).values()) == {"2 of 3 found, 1 to run"}
    assert ids(done.folder).items() <= ids(topped.folder).items()
    assert number_of_records(topped.folder) == 6
    assert [result["report"]["judged"] for result in topped.results] == [3, 3]
    for result in topped.results:
        passed = sum(record["passed"] for record in read_trials(topped.folder / result["key"]))
        assert f"{result['name']}: 1 trials (2 kept), {passed} passed" in topped.err


def test_a_smaller_k_is_the_number_everywhere_and_the_records_stay(tmp_path):
    first = sweep(tmp_path, "model=offline-careful,offline-hasty", "task.k=3")
    assert first.status == 0, first.err
    fewer = sweep(tmp_path, "resume=last", "task.k=2")
    assert fewer.status == 0, fewer.err
    assert fewer.out.count(" 2/2 ") == 2
    assert number_of_records(fewer.folder) == 6
    assert "1 scenarios x 2 trials" in (fewer.folder / "comparison.md").read_text()
    compared = subprocess.run(
        [sys.executable, "-m", "sonar_eval", "compare", str(fewer.folder), "--by", "model"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 scenarios x 2 trials" in compared.stdout, compared.stderr
    _, runs = runs_of(tmp_path)
    judged = {(run.data.tags["sonar.kind"], run.data.metrics.get("trials_judged")) for run in runs}
    assert judged == {("sweep", None), ("cell", 2.0), ("arm", 2.0)}


@pytest.mark.parametrize(
    "beside",
    [
        "task.concurrency=1",
        "task.retries=0",
        "ingest.settle_timeout_s=20",
        "tracking.experiment=another",
        "task.tenant=other",
        "hydra.job.chdir=true",
    ],
)
def test_what_leaves_results_as_they_are_changes_no_cell(copied, beside):
    assert "2 of 2 cells are finished" in sweep(copied, "resume=last", beside, "dry_run=true").out


def test_a_changed_prompt_file_is_run_anew_and_kept_apart(done, copied):
    (copied / "house.md").write_text("Be brief.\n- Check the stock before you take an order.\n", encoding="utf-8")
    changed = sweep(copied, "resume=last", "task.k=1")
    assert changed.status == 0, changed.err
    assert set(said(changed).values()) == {"changed: prompt; 1 to run"}
    assert len(list(changed.folder.glob("*/trials.jsonl"))) == 4
    assert ids(done.folder).items() <= ids(changed.folder).items()
    assert changed.out.count(" 1/1 ") == 2
    assert "2/2" not in changed.out
    # Changed back, the first ones hold again.
    (copied / "house.md").write_text("Be brief.\n", encoding="utf-8")
    assert set(said(sweep(copied, "resume=last", "task.k=2")).values()) == {"kept 2 of 2"}


def test_further_cells_join_a_sweep(done, copied):
    joined = sweep(copied, "resume=last", "model=offline-careful,offline-hasty")
    assert joined.status == 0, joined.err
    assert sorted(said(joined).values()) == [
        "kept 2 of 2",
        "kept 2 of 2",
        "none found, 2 to run",
        "none found, 2 to run",
    ]
    assert ids(done.folder).items() <= ids(joined.folder).items()


def test_unfinished_cells_that_are_not_asked_for_are_told_and_found_again(done, copied):
    missing = next((copied / "sweeps").glob("*/offline-careful.v1.refund.*"))
    shutil.rmtree(missing)
    # The unfinished cell is neither run nor forgotten, however often others are asked for.
    name = "offline-careful v1 refund none"
    where = f"resume=sweeps/{done.folder.name}"
    told = (
        f"Left out by these choices, and unfinished: {name} (0 of 2 trials); "
        f"to go on with them: sonar-eval sweep {where} scenario=refund"
    )
    for arguments in (["scenario=clean_books", "task.k=2"], []):
        other = sweep(copied, where, *arguments)
        assert other.status == 0, other.err
        assert told in other.err.splitlines()
        assert not missing.exists()
    assert said(sweep(copied, where, "scenario=refund")) == {name: "none found, 2 to run"}
    assert read_trials(missing)
    whole = sweep(copied, where, "scenario=clean_books")
    assert "Left out" not in whole.err


def test_trials_that_errored_are_tried_again_and_the_others_kept(tmp_path):
    (tmp_path / "my_bots.py").write_text(FLAKY, encoding="utf-8")
    first = sweep(tmp_path, "bot=mine", "bot.adapter=my_bots:Flaky", "task.k=4", "task.retries=0", "tracking=none")
    assert first.status == 1
    assert first.out.splitlines()[-2] == "1 of 1 cells are not all judged:"
    assert "2 of 4 trials errored; the first: harness in setup" in first.out.splitlines()[-1]
    assert "sonar-eval sweep resume=sweeps/" in first.out
    (tmp_path / "mended").touch()
    again = sweep(tmp_path, "resume=last")
    assert again.status == 0, again.err
    assert set(said(again).values()) == {"2 of 4 found, 2 to run (2 errored, tried again)"}
    (result,) = again.results
    assert (result["report"]["judged"], result["report"]["errored"]) == (4, 0)
    assert set(said(sweep(tmp_path, "resume=last")).values()) == {"kept 4 of 4"}


FLAKY = """
from pathlib import Path

from sonar_eval.demo.bot import CafeBot


class Flaky(CafeBot):
    async def setup_trial(self, ctx):
        if ctx.index % 2 and not Path("mended").exists():
            raise RuntimeError("no beans")
        return await super().setup_trial(ctx)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["int", "term", "kill"])
def test_a_sweep_that_was_stopped_makes_up_what_is_missing(tmp_path, number):
    stopped = interrupt(tmp_path, number, "tracking=none")
    if number != signal.SIGKILL:
        assert stopped.err.splitlines()[-1].endswith(f"to go on: sonar-eval sweep resume=sweeps/{stopped.folder.name}")
    before = ids(stopped.folder)
    (tmp_path / "my_bots.py").write_text(BOTS.replace("asyncio.sleep(60)", "asyncio.sleep(0)"), encoding="utf-8")
    again = sweep(tmp_path, "resume=last")
    assert again.status == 0, again.err
    assert set(said(again).values()) == {"1 of 3 found, 2 to run"}
    assert before.items() <= ids(again.folder).items()
    assert number_of_records(again.folder) == 3


def test_two_processes_do_not_sweep_in_one_folder(tmp_path):
    (tmp_path / "my_bots.py").write_text(BOTS, encoding="utf-8")
    bot = ("bot=mine", "bot.adapter=my_bots:SlowAfterTheFirst", "task.k=2", "task.concurrency=1", "tracking=none")
    process = start(tmp_path, *bot)
    try:
        wait_for_a_trial(tmp_path, process)
        second = sweep(tmp_path, "resume=last")
    finally:
        process.kill()
        process.communicate()
    assert second.status == 2
    (line,) = second.err.splitlines()
    assert f"is being swept by process {process.pid} on " in line
    assert line.endswith("wait until it is done, or end it")


def wait_for_a_trial(folder, process):
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and not any(
        path.stat().st_size for path in folder.glob("sweeps/*/*/trials.jsonl")
    ):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def test_a_disk_that_is_full_costs_what_could_not_be_written_and_nothing_else(done, copied):
    records = copied / "sweeps" / done.folder.name / done.results[0]["key"] / "trials.jsonl"
    kept = records.rename(records.with_suffix(".kept"))
    records.symlink_to("/dev/full")
    full = sweep(copied, "resume=last", "task.k=3")
    assert full.status == 1, full.err
    assert full.out.splitlines()[-2] == "1 of 2 cells failed:"
    assert full.out.splitlines()[-1].endswith("order_latte none: OSError: [Errno 28] No space left on device")
    assert "Traceback" not in full.err
    kept.rename(records)
    again = sweep(copied, "resume=last")
    assert again.status == 0, again.err
    assert sorted(said(again).values()) == ["2 of 3 found, 1 to run", "kept 3 of 3"]
    assert ids(done.folder).items() <= ids(again.folder).items()


def whole_ids(folder):
    """Return the conversations of the trials whose record was written whole."""
    found = {}
    for path in folder.glob("*/trials.jsonl"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            found[path.parent.name, record["index"]] = record["conversation_id"]
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_on_a_file_system_without_room_the_sweep_ends_and_goes_on_once_there_is(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a file system")
    try:
        full = sweep(tmp_path, *SMALL, "task.k=5", "hydra.sweep.dir=small/out")
        assert full.status == 1, full.err
        assert full.out.count("No space left on device") == 2
        assert "Traceback" not in full.err
        before = whole_ids(small / "out")
        assert before
        shutil.copytree(small / "out", tmp_path / "sweeps" / "roomy")
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
    again = sweep(tmp_path, "resume=last")
    assert again.status == 0, again.err
    after = whole_ids(again.folder)
    assert before.items() <= after.items()
    assert len(after) == 10


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("resume=last", "resume=last: there is no sweep in ./sweeps; name a folder with resume=DIR"),
        ("resume=nowhere", "nowhere holds no sweep: expected sweep.json in it; name the folder a sweep printed"),
        ("resume=torn", "sweep.json cannot be read"),
        ("resume=foreign", "sweep.json names no command; it was written by something else"),
    ],
)
def test_what_cannot_be_gone_on_with_is_told_in_one_line(tmp_path, argument, told):
    for name, text in (("torn", '{"cells": 1'), ("foreign", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sweep.json").write_text(text, encoding="utf-8")
    ran = sweep(tmp_path, argument)
    (line,) = ran.err.splitlines()
    assert ran.status == 2
    assert line.startswith("sonar-eval: ")
    assert told in line


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    swept = sweep(tmp_path_factory.mktemp("undisturbed"), *GRID, "task.k=3")
    assert swept.status == 0, swept.err
    return swept


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=SLOW)])
def test_killed_at_random_and_gone_on_with_it_comes_to_the_same(undisturbed, tmp_path, kills):
    chance = random.Random(kills)
    arguments, killed = (*GRID, "task.k=3", "task.concurrency=2", f"hydra.sweep.dir={tmp_path}/sweeps/killed"), 0
    deadline = time.monotonic() + 800
    while killed < kills and time.monotonic() < deadline:
        process = start(tmp_path, *arguments)
        if (tmp_path / "sweeps/killed/sweep.json").exists() or wait_for_the_sweep(tmp_path, process):
            arguments = ("resume=last",)
        try:
            process.wait(chance.uniform(1.0, 5.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            killed += 1
        err = process.communicate()[1]
        if process.returncode == 0 and killed < kills:
            # It was done before its turn came: take some of it away again.
            for path in sorted((tmp_path / "sweeps/killed").glob("*/"))[:5]:
                shutil.rmtree(path)
        else:
            assert process.returncode in (0, -signal.SIGKILL), err
    last = sweep(tmp_path, "resume=last")
    assert last.status == 0, last.err
    assert len(last.results) == 8
    for result in undisturbed.results:
        trials = read_trials(last.folder / result["key"])
        assert [record["index"] for record in trials] == [0, 1, 2]
        assert list(map(without_ids_and_times, trials)) == list(
            map(without_ids_and_times, read_trials(undisturbed.folder / result["key"]))
        )
    conversations = list(ids(last.folder).values())
    assert len(set(conversations)) == len(conversations) == 24
    assert tracked(tmp_path) == [
        ("sweep", "FINISHED", 0),
        *[("cell", "FINISHED", 3)] * 8,
        *[("arm", "FINISHED", 0)] * 4,
    ]
    assert totals(tmp_path) == totals(undisturbed.launched_in)
    table = [line for line in undisturbed.out.splitlines() if line.startswith("offline-")]
    assert [line for line in last.out.splitlines() if line.startswith("offline-")] == table


def runs_of(folder, uri=None):
    from mlflow import MlflowClient

    client = MlflowClient(uri or f"sqlite:///{folder / 'mlflow.db'}")
    number = client.get_experiment_by_name("sonar-eval").experiment_id
    runs = client.search_runs([number], order_by=["attributes.start_time ASC"])
    return client, sorted(runs, key=lambda run: run.data.tags["sonar.kind"], reverse=True)


def tracked(folder, uri=None):
    """Return kind, status and number of distinct conversations traced of every run, the sweeps' first."""
    client, runs = runs_of(folder, uri)
    found = []
    for run in runs:
        where = f"run_id = '{run.info.run_id}'"
        traces = client.search_traces(locations=[run.info.experiment_id], filter_string=where, include_spans=False)
        conversations = [trace.info.client_request_id for trace in traces]
        assert len(set(conversations)) == len(conversations)
        found.append((run.data.tags["sonar.kind"], run.info.status, len(conversations)))
    return found


def totals(folder):
    """Return what MLflow shows of each cell, without what took time."""
    _, runs = runs_of(folder)
    return {
        run.info.run_name: {name: value for name, value in run.data.metrics.items() if "latency" not in name}
        for run in runs
        if run.data.tags["sonar.kind"] == "cell"
    }


def test_a_sweep_that_was_killed_and_left_so_has_no_run_open_once_it_is_reconciled(tmp_path):
    killed = interrupt(tmp_path, signal.SIGKILL)
    assert [run[:2] for run in tracked(tmp_path)] == [("sweep", "RUNNING")]
    (closed,) = reconcile(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert closed.name == killed.folder.name
    assert [run[:2] for run in tracked(tmp_path)] == [("sweep", "KILLED")]


def test_a_cell_that_was_finished_but_not_published_when_the_kill_came_is_published_when_it_is_gone_on_with(tmp_path):
    swept = sweep(tmp_path, "scenario=order_latte,refund", "task.k=2")
    assert swept.status == 0, swept.err
    client, runs = runs_of(tmp_path)
    client.delete_run(runs[1].info.run_id)
    again = sweep(tmp_path, "resume=last")
    assert again.status == 0, again.err
    assert set(said(again).values()) == {"kept 2 of 2"}
    assert tracked(tmp_path) == [("sweep", "FINISHED", 0), ("cell", "FINISHED", 2), ("cell", "FINISHED", 2)]


def wait_for_the_sweep(folder: Path, process) -> bool:
    """Wait until the sweep is one that can be gone on with."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (folder / "sweeps/killed/sweep.json").exists():
            return True
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return False
