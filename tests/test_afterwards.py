"""`sonar-eval rejudge`, `judge` and `rerun` on a sweep that was run: the real commands, a real ingest and store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from sonar_eval import ConfigError
from sonar_eval.cli import main
from sonar_eval.ingest.server import EmbeddedIngest
from sonar_eval.sweep.stored import configure, find_cells
from test_sweep_run import read_trials, sweep

pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.timeout(150),
]


@dataclass
class Done:
    launched_in: Path
    cell: Path
    ingest: tuple[str, ...]

    @property
    def run_id(self) -> str:
        return json.loads((self.cell / "result.json").read_text())["run_id"]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("after")
    with EmbeddedIngest("local") as ingest:
        os.environ["AFTERWARDS_KEY"] = ingest.api_key
        where = ("ingest=external", f"ingest.base_url={ingest.base_url}", "ingest.api_key_env=AFTERWARDS_KEY")
        swept = sweep(folder, "scenario=refund", "fault=payment_flaky", "task.k=2", *where)
        assert swept.status == 0, swept.err
        yield Done(folder, swept.cell(), where)
        del os.environ["AFTERWARDS_KEY"]


@pytest.fixture
def tell(done, monkeypatch):
    """Run a command in the sweep's folder; return its exit status and what it printed."""
    monkeypatch.chdir(done.launched_in)

    def run(*arguments):
        told = CliRunner().invoke(main, list(map(str, arguments)))
        assert told.exception is None or isinstance(told.exception, SystemExit), told.exception
        return told.exit_code, told.output

    return run


NEVERMORE = "scenario.assertions=[{name:raven,check:bot_said,pattern:nevermore,severity:safety_critical}]"


def newest(folder, name):
    return max(folder.glob(f"{name}-*"), key=lambda path: int(path.name.rpartition("-")[2]))


@pytest.mark.parametrize("named", ["cell", "sweep", "records"])
def test_stored_trials_are_judged_by_other_assertions_and_the_old_records_stay(done, tell, named):
    before = (done.cell / "trials.jsonl").read_bytes()
    where = {"cell": done.cell, "sweep": done.cell.parent, "records": done.cell / "trials.jsonl"}[named]
    status, said = tell("rejudge", where, NEVERMORE, "grader=none")
    assert status == 0, said
    assert "2 trials judged again, the bot was not called" in said
    assert said.count("raven: not asked -> NOT held: nothing the bot said matches 'nevermore'") == 2
    assert said.count("-> not asked") >= 2
    assert "-> 0%" in said
    records = read_trials(newest(done.cell, "rejudged"))
    assert [[row["name"] for row in record["assertions"]] for record in records] == [["raven"]] * 2
    assert [record["grader"] for record in records] == [None] * 2
    assert NEVERMORE in records[0]["warnings"][-1]
    assert (done.cell / "trials.jsonl").read_bytes() == before
    assert len(list(newest(done.cell, "rejudged").glob("transcripts/*.md"))) == 2


def test_what_was_judged_again_can_be_seen_beside_the_first_in_mlflow(done, tell):
    from mlflow import MlflowClient

    status, said = tell("rejudge", done.cell, NEVERMORE, "grader=none")
    folder = newest(done.cell, "rejudged")
    assert (status, said.splitlines()[-1].partition(": ")[2]) == (0, f"sonar-eval tracking publish {folder}")
    for _ in range(2):
        status, said = tell("tracking", "publish", folder)
        assert (status, said.partition(".")[0]) == (0, "1 of 1 cells are in MLflow")
    client = MlflowClient("sqlite:///mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("sonar-eval").experiment_id])
    (parent,) = [run for run in runs if run.data.tags["sonar.kind"] == "sweep"]
    assert parent.info.status == "FINISHED"
    (again,) = [run for run in runs if run.data.params.get("judged") == folder.name]
    assert again.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert (again.data.metrics["pass_rate"], again.data.metrics["assertion_pass_rate/raven"]) == (0.0, 0.0)
    first = client.get_run(done.run_id)
    assert (first.data.params["scenario"], first.data.params["fault"]) == ("refund", "payment_flaky")
    assert "assertion_pass_rate/raven" not in first.data.metrics


def test_judged_again_by_the_same_nothing_changes(done, tell):
    status, said = tell("rejudge", done.cell)
    assert status == 0, said
    assert said.count("as before") == 2
    old, new = read_trials(done.cell), read_trials(newest(done.cell, "rejudged"))
    for key in ("assertions", "grader", "passed", "faults", "conversation", "transcript"):
        assert [record[key] for record in old] == [record[key] for record in new]


def test_the_trials_of_a_tracked_run_are_judged_again(done, tell):
    status, said = tell("rejudge", done.run_id, NEVERMORE)
    assert status == 0, said
    assert said.count("raven: not asked -> NOT held") == 2
    assert read_trials(done.launched_in / "fetched" / done.run_id / "rejudged-1")


def test_a_conversation_is_judged_by_its_trace_alone_and_comes_to_the_same(done, tell, tmp_path):
    for record in read_trials(done.cell):
        status, said = tell(
            "judge", record["conversation_id"], "scenario=refund", *done.ingest, "--out", tmp_path / "judged"
        )
        assert status == 0, said
        assert "**User:**" in said
        (judged,) = read_trials(newest(tmp_path / "judged", record["conversation_id"]))
        assert [(turn["user"], turn["delivered"]) for turn in judged["conversation"]] == [
            (turn["user"], turn["delivered"]) for turn in record["conversation"]
        ]
        assert judged["grader"]["score"] == record["grader"]["score"]
        for was, now in zip(record["assertions"], judged["assertions"], strict=True):
            told = (now["passed"], now["unknown"])
            assert told == ((False, True) if was["name"] == "finished" else (was["passed"], was["unknown"]))


def test_a_trial_is_run_again_with_its_seed_and_shown_beside_the_old(done):
    command = [sys.executable, "-m", "sonar_eval", "rerun", str(done.cell), "2"]
    told = subprocess.run(
        command,
        cwd=done.launched_in,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    old = read_trials(done.cell)[1]
    (new,) = read_trials(done.cell / "rerun-1")
    assert (new["index"], new["random_seed"]) == (1, old["random_seed"])
    assert new["conversation_id"] != old["conversation_id"]
    assert [turn["delivered"] for turn in new["conversation"]] == [turn["delivered"] for turn in old["conversation"]]
    rows = [line.split(" | ") for line in told.stdout.splitlines() if line.startswith("User: ")]
    assert rows
    assert all(left.strip() == right.strip() for left, right in rows)
    assert "as before" in told.stdout
    assert len(read_trials(done.cell)) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rejudge", "nowhere"), "there is no folder or file nowhere, and it is no id of an MLflow run"),
        (("rejudge", "."), ". holds no trials.jsonl"),
        (("rejudge", "0" * 32), "run " + "0" * 32 + " cannot be read from sqlite:///mlflow.db"),
        (("rejudge", "0" * 32, "--uri", "sqlite:///no.db"), "there is no MLflow store sqlite:///no.db"),
        (("rejudge", "CELL", "grader=nope"), "Could not find 'grader/nope'"),
        (("rejudge", "CELL", "grader=none,offline"), "one value, please"),
        (("rejudge", "CELL", "grader.treshold=1"), "treshold"),
        (("rejudge", "CELL", "gradr=none"), "gradr=none: unknown group"),
        (("rejudge", "CELL", "grader=none", "grader.llm.model=x"), "grader.llm.model=x: there is no grader.llm here"),
        (("rejudge", "CELL", "scenario.assertions=[{check:nope}]"), "unknown 'nope'"),
        (("rejudge", "CELL", "no override"), "no override"),
        (("judge", "c1"), "name a scenario with scenario="),
        (("judge", "c1", "scenario=refund", "ingest=embedded"), "ingest=embedded holds no conversation"),
        (("rerun", "CELL", "3"), "holds no trial 3"),
        (("rerun", "CELL", "0"), "0 is not in the range"),
    ],
)
def test_a_mistake_is_told_in_a_line_and_leaves_no_folder(done, tell, arguments, said):
    before = set(done.cell.iterdir())
    status, told = tell(*(done.cell if part == "CELL" else part for part in arguments))
    assert status == 2
    assert said in told
    assert "Traceback" not in told
    assert set(done.cell.iterdir()) == before


def copied(done, tmp_path, **told):
    """Copy the cell into a sweep of its own, and change what its report tells."""
    cell = tmp_path / "sweep" / done.cell.name
    shutil.copytree(done.cell, cell, ignore=shutil.ignore_patterns("rejudged-*", "rerun-*"))
    result = json.loads((cell / "result.json").read_text())
    result["report"] |= told
    (cell / "result.json").write_text(json.dumps(result))
    return cell


def test_a_cell_that_was_stopped_is_no_whole_one_when_it_is_judged_again(done, tell, tmp_path):
    cell = copied(done, tmp_path, asked=5, stopped="the spend cap", stopped_early=False)
    status, said = tell(
        "rejudge", cell, "scenario.assertions=[{name:any,check:bot_said,pattern:.,severity:safety_critical}]"
    )
    assert status == 0, said
    report = json.loads((cell / "rejudged-1" / "result.json").read_text())["report"]
    assert (report["asked"], report["judged"], report["passed"]) == (5, 2, False)
    assert "stopped after 2 of 5 trials: the spend cap" in report["reasons"]
    assert any("3 not measured" in reason for reason in report["reasons"])


def test_of_a_cell_that_was_cut_only_what_was_asked_for_last_is_judged_again(done, tell, tmp_path):
    cell = copied(done, tmp_path, asked=1)
    status, said = tell("rejudge", cell)
    assert status == 0, said
    assert "1 trials judged again" in said
    report = json.loads((cell / "rejudged-1" / "result.json").read_text())["report"]
    assert (report["asked"], report["judged"]) == (1, 1)


def test_what_the_conversation_cost_is_known_when_it_is_judged_again(done, tell, tmp_path):
    cell, check = copied(done, tmp_path), "scenario.assertions=[{name:cheap,check:max_cost,usd:0.5}]"
    lines = [json.loads(line) for line in (cell / "trials.jsonl").read_text().splitlines()]
    for line in lines:
        line["spent"] = {
            "bot": {"calls": 1, "input_tokens": 9, "output_tokens": 9, "cost_usd": 0.2, "cached_tokens": 0},
            "judge": {"calls": 1, "input_tokens": 9, "output_tokens": 9, "cost_usd": 0.7, "cached_tokens": 0},
        }
    (cell / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, said = tell("rejudge", cell, "grader=none", check)
    assert status == 0, said
    again = read_trials(cell / "rejudged-1")
    assert [[row["passed"] for row in record["assertions"]] for record in again] == [[True], [True]]
    assert [record["cost_usd"] for record in again] == [0.2, 0.2]


def test_a_judge_that_cannot_be_used_is_told_with_the_reason(done, tell, tmp_path):
    # Whatever is asked there, the ingest answers 404.
    nowhere = done.ingest[1].removeprefix("ingest.base_url=") + "/v1"
    llm = f"grader.llm={{model: m, base_url: '{nowhere}', price: {{input: 1, output: 2}}}}"
    status, said = tell("rejudge", copied(done, tmp_path), "grader=local", llm)
    assert status == 0, said
    assert said.count("-> no verdict: ") == 2
    assert "404" in said


def test_what_was_judged_again_can_be_judged_again(done, tell, tmp_path):
    cell = copied(done, tmp_path)
    assert tell("rejudge", cell, NEVERMORE, "grader=none")[0] == 0
    status, said = tell("rejudge", cell / "rejudged-1")
    assert status == 0, said
    assert said.count("as before") == 2


def test_a_conversation_without_a_trace_is_told(done, tell):
    status, told = tell("judge", "never-heard-of", "scenario=refund", *done.ingest)
    assert status == 2
    assert "never-heard-of" in told


def test_records_that_say_nothing_of_their_configuration_want_a_scenario(done, tell, tmp_path):
    shutil.copy(done.cell / "trials.jsonl", tmp_path)
    status, told = tell("rejudge", tmp_path)
    assert status == 2
    assert "name it with scenario=" in told
    status, told = tell("rejudge", tmp_path, "scenario=refund")
    assert status == 0, told
    assert "as before" in told


def test_a_group_is_taken_as_it_is_now_and_values_change_the_stored_one(done, monkeypatch):
    monkeypatch.chdir(done.launched_in)
    (cell,) = find_cells(str(done.cell), uri="")
    stored = configure(cell.config, [])
    assert (stored.scenario.name, stored.fault.name, stored.task.k) == ("refund", "payment_flaky", 2)
    changed = configure(cell.config, ["scenario=order_latte", "scenario.max_turns=3", "grader.threshold=0.9"])
    assert (changed.scenario.name, changed.scenario.max_turns) == ("order_latte", 3)
    assert (changed.grader.threshold, changed.fault.name) == (0.9, "payment_flaky")
    with pytest.raises(ConfigError, match="nothing can be deleted here"):
        configure(cell.config, ["~scenario.k"])
