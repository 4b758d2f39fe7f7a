"""What ends up in an MLflow store, whatever a cell is made of."""

from __future__ import annotations

import http.server
import json
import math
import threading
import time
from dataclasses import replace

import pytest

from fakes import errored_trial, judged_trial
from sonar_eval import AssertionResult, ConfigError, ConversationLog, Severity, Turn
from sonar_eval.metrics import roll_up
from sonar_eval.records import trial_record
from sonar_eval.scorecard import Score, original_names, scorecard
from sonar_eval.tracking import CellRecord, NullTracker
from sonar_eval.tracking.mlflow import MLflowTracker, absolute_uri, sqlite_path

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

REPORT = {
    "passed": False,
    "unchecked": False,
    "reasons": ["finished (capability): held in 0 of 2"],
    "assertions": [{"name": "finished", "severity": "capability", "passes": 0, "evaluated": 2}],
    "warnings": ["fault on 'x' never matched"],
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


@pytest.fixture
def client(uri):
    from mlflow import MlflowClient

    return MlflowClient(uri)


@pytest.fixture
def publish(uri, client, tmp_path):
    """Publish a cell that differs from an ordinary one by `changes`; return its run."""

    def make(**changes):
        tracker = MLflowTracker(uri, "sonar-eval")
        parent = tracker.start_sweep("sweep", "sonar-eval sweep")
        folder = tmp_path / "cell"
        folder.mkdir(exist_ok=True)
        ordinary = CellRecord(
            "m p s f",
            "m.p.s.f-1234",
            {"model": "m", "prompt": "p", "scenario": "s", "fault": "f"},
            {"task": {"k": 2}},
            folder,
            [Score("pass_rate", 0.5)],
            REPORT,
        )
        run = client.get_run(tracker.publish(replace(ordinary, **changes), parent))
        tracker.end_sweep(parent, "FINISHED")
        assert run.data.tags["mlflow.parentRunId"] == parent
        return run

    return make


def test_the_first_sweep_makes_the_experiment_and_later_ones_use_it(uri, client):
    for name in ("one", "two"):
        MLflowTracker(uri, "shared").start_sweep(name, "command")
    experiment = client.get_experiment_by_name("shared")
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.run_name for run in runs} == {"one", "two"}
    assert experiment.artifact_location.endswith("/mlartifacts/shared")
    assert "sweep" in experiment.tags["mlflow.note.content"]


def test_the_experiment_has_a_view_of_all_cells_side_by_side(uri, client):
    MLflowTracker(uri, "viewed").start_sweep("one", "command")
    view = json.loads(client.get_experiment_by_name("viewed").tags["mlflow.sharedViewState.sonarleaderboard"])
    state = json.loads(view["state"])
    assert view["name"] == "Leaderboard"
    assert state["searchFilter"] == "tags.`sonar.kind` = 'cell'"
    assert {f"params.`{axis}`" for axis in ("model", "prompt", "scenario", "fault")} <= set(state["selectedColumns"])
    assert {"metrics.`pass_rate`", "metrics.`safety_violations`"} <= set(state["selectedColumns"])


def test_a_cell_is_a_finished_run_that_says_what_came_of_it(publish):
    run = publish(started_ms=1_700_000_000_000)
    assert (run.info.status, run.info.run_name, run.info.start_time) == ("FINISHED", "m p s f", 1_700_000_000_000)
    assert run.data.tags["sonar.kind"] == "cell"
    assert run.data.tags["sonar.passed"] == "false"
    note = run.data.tags["mlflow.note.content"]
    assert "- finished (capability): held in 0 of 2" in note
    assert "| finished | capability | 0 | 2 |" in note
    assert "Warning: fault on 'x' never matched" in note


def test_only_what_was_checked_can_have_passed(publish):
    passed = {**REPORT, "passed": True, "reasons": []}
    assert publish(report=passed).data.tags["sonar.passed"] == "true"
    assert publish(report={**passed, "unchecked": True}).data.tags["sonar.passed"] == "false"


def test_a_failed_cell_is_a_failed_run_with_the_reason(publish):
    run = publish(report=None, scores=[], error="no ingest")
    assert (run.info.status, run.data.tags["sonar.error"]) == ("FAILED", "no ingest")
    assert run.data.tags["mlflow.note.content"] == "**This cell failed.** no ingest"
    assert run.data.metrics == {}


def test_a_cell_that_left_no_folder_is_published_all_the_same(publish, tmp_path):
    assert publish(folder=tmp_path / "missing").info.status == "FINISHED"


def test_names_that_mlflow_refuses_are_written_in_a_form_it_takes(publish):
    odd = {"+bot.extra": "x", "model@llm": "a=b, [c]", "rules[0]": "é🥐", "a//b/": "c", "x" * 300: "long"}
    params = publish(choices=odd, config={}).data.params
    assert params == {
        "_bot.extra": "x",
        "model_llm": "a=b, [c]",
        "rules_0_": "é🥐",
        "a/b": "c",
        "x" * 240 + "-0d4e2c": "long",
    }


def test_configuration_is_flattened_and_choices_stand_above_it(publish):
    config = {
        "model": {"name": "m", "temperature": 0.5, "base_url": None, "extra_body": {}},
        "scenario": {"assertions": [{"check": "no_tool_errors"}], "scripted": []},
        "task": {"k": 5, "required": False},
    }
    params = publish(config=config).data.params
    assert params == {
        "model": "m",
        "prompt": "p",
        "scenario": "s",
        "fault": "f",
        "model.name": "m",
        "model.temperature": "0.5",
        "scenario.assertions": '[{"check": "no_tool_errors"}]',
        "task.k": "5",
        "task.required": "false",
    }


def test_a_long_value_keeps_its_start_and_tells_itself_from_others(publish):
    texts = ["a" * 10_000, "a" * 9_999 + "b"]
    values = [publish(config={"prompt": {"text": text}}).data.params["prompt.text"] for text in texts]
    assert all(value.startswith("a" * 250 + "… (10000 characters, sha256 ") for value in values)
    assert values[0] != values[1]


def test_many_params_and_long_curves_are_published_whole(publish, client):
    config = {"scenario": {"seed": {f"row{number}": number for number in range(150)}}}
    curve = [Score("pass_hat_k", 1 / step, step) for step in range(1, 1201)]
    run = publish(config=config, scores=curve)
    assert len(run.data.params) == 154
    assert len(client.get_metric_history(run.info.run_id, "pass_hat_k")) == 1200


def test_the_folder_and_the_configuration_become_artifacts(publish, client, tmp_path):
    (tmp_path / "cell" / "transcripts").mkdir(parents=True)
    (tmp_path / "cell" / "transcripts" / "trial-001.md").write_text("# hello", encoding="utf-8")
    run = publish(config={"prompt": {"text": "é [[END]] ${x}"}})
    listed = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert listed == {"config.json", "transcripts", "trials.json"}
    path = client.download_artifacts(run.info.run_id, "config.json", str(tmp_path))
    with open(path, encoding="utf-8") as file:
        assert json.load(file) == {"prompt": {"text": "é [[END]] ${x}"}}


def test_a_cell_that_cannot_be_written_leaves_no_run_that_looks_finished(publish, client):
    with pytest.raises(Exception, match="Invalid value"):
        publish(name="broken", scores=[Score("pass_rate", 0.5, "first")])
    experiment = client.get_experiment_by_name("sonar-eval")
    (run,) = client.search_runs([experiment.experiment_id], "attributes.run_name = 'broken'")
    assert run.info.status == "FAILED"


def test_a_run_id_in_the_environment_does_not_swallow_the_cell(publish, monkeypatch):
    first = publish()
    monkeypatch.setenv("MLFLOW_RUN_ID", first.info.run_id)
    assert publish().info.run_id != first.info.run_id


def test_a_sweep_is_closed_once(uri, client):
    tracker = MLflowTracker(uri, "closed")
    parent = tracker.start_sweep("one", "command")
    assert client.get_run(parent).info.status == "RUNNING"
    tracker.end_sweep(parent, "KILLED")
    tracker.end_sweep(parent, "FINISHED")
    assert client.get_run(parent).info.status == "KILLED"


def test_a_server_that_is_not_there_is_told_within_seconds():
    started = time.monotonic()
    with pytest.raises(ConfigError, match=r"no MLflow server at http://127\.0\.0\.1:1"):
        MLflowTracker("http://127.0.0.1:1", "x").start_sweep("one", "command")
    assert time.monotonic() - started < 10


def test_a_server_that_is_no_mlflow_is_told_apart():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(ConfigError, match="answered 501; is that an MLflow server"):
            MLflowTracker(f"http://127.0.0.1:{server.server_port}", "x").start_sweep("one", "command")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("address", ["sqlite:////proc/nowhere/mlflow.db", "ftp://nowhere"])
def test_a_store_that_cannot_be_used_is_told_in_one_line(address):
    with pytest.raises(ConfigError) as refused:
        MLflowTracker(address, "x").start_sweep("one", "command")
    assert str(refused.value).startswith(f"tracking: cannot use {address}: ")
    assert "\n" not in str(refused.value)


def test_how_to_look_names_the_store_when_the_ui_would_not_find_it(uri, tmp_path, monkeypatch):
    path = sqlite_path(uri)
    monkeypatch.chdir(path.parent)
    here = MLflowTracker(uri, "sonar-eval").how_to_look()
    assert here.startswith("Look at it: sonar-eval ui   then open http://127.0.0.1:5000/#/experiments/")
    monkeypatch.chdir(tmp_path)
    assert f"sonar-eval ui --uri {uri}   then" in MLflowTracker(uri, "sonar-eval").how_to_look()


def test_how_to_look_can_be_pasted_even_with_a_space_in_the_path(tmp_path):
    folder = tmp_path / "my results"
    folder.mkdir()
    tracker = MLflowTracker(f"sqlite:///{folder}/mlflow.db", "sonar-eval")
    assert f"--uri 'sqlite:///{folder}/mlflow.db'   then" in tracker.how_to_look()


def test_a_relative_store_is_meant_from_the_folder_of_the_sweep(tmp_path):
    assert absolute_uri("sqlite:///mlflow.db", tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    for uri in ("sqlite:////data/mlflow.db", "http://localhost:5000", "postgresql://u@h/db"):
        assert absolute_uri(uri, tmp_path) == uri


def test_without_tracking_nothing_is_kept_and_that_is_said(tmp_path):
    tracker = NullTracker()
    assert tracker.start_sweep("one", "command") == ""
    tracker.end_sweep("", "FINISHED")
    assert "tracking=none" in tracker.how_to_look()


# Names that MLflow refuses, and values that are no numbers.

ODD = ["pass@k ok?", "a^b", "/lead", "日本", "x" * 300, "a@b", "a^b", "..", "a//b"]


def test_metrics_of_any_name_are_logged_under_clean_distinct_and_stable_names(publish, client, tmp_path):
    trials = [
        replace(judged_trial(number), assertions=[AssertionResult(name, Severity.CAPABILITY, True) for name in ODD])
        for number in range(2)
    ]
    report = roll_up("refund, 50% off (VIP)", trials, k=2)
    scores, names = scorecard(report), original_names(report)
    first, second = (publish(scores=scores, names=names) for _ in range(2))
    rates = {name for name in first.data.metrics if name.startswith("assertion_pass_rate/")}
    assert len(rates) == len(ODD)
    assert first.data.metrics == second.data.metrics
    assert {"pass_at_k", "pass_hat_k"} <= set(first.data.metrics)
    path = client.download_artifacts(first.info.run_id, "metric_names.json", str(tmp_path))
    with open(path, encoding="utf-8") as file:
        told = json.load(file)
    assert set(told.values()) == set(ODD) - {"日本"}
    assert {f"assertion_pass_rate/{clean}" for clean in told} == rates - {"assertion_pass_rate/日本"}
    assert "pass@k ok?" in first.data.tags["sonar.metric_names"]


def test_what_has_no_finite_value_is_not_logged_and_is_named(publish):
    scores = [Score("pass_rate", 0.5), Score("turns_mean", math.nan), Score("odd/x", math.inf)]
    run = publish(scores=scores)
    assert run.data.metrics == {"pass_rate": 0.5}
    missing = run.data.tags["sonar.not_measured"].split(", ")
    assert {"judge_mean", "turns_mean", "odd/x"} <= set(missing)
    assert "pass_rate" not in missing


def test_a_cell_is_an_evaluation_of_a_scenario_of_which_the_digest_tells_any_change(publish):
    runs = [publish(config={"scenario": {"name": "s", "max_turns": turns}}) for turns in (5, 5, 6)]
    inputs = [run.inputs.dataset_inputs[0] for run in runs]
    assert inputs[0].dataset.name == "s"
    assert inputs[0].dataset.digest == inputs[1].dataset.digest != inputs[2].dataset.digest
    assert inputs[0].tags[0].value == "evaluation"


def test_a_prompt_is_registered_once_per_text_and_linked_to_its_runs(publish, client):
    texts = ("Be kind.", "Be kind.", "Be brief.")
    made_of = {"bot": "cafe", "prompt": "polite", "scenario": "s", "fault": "f"}
    runs = [publish(choices=made_of, config={"prompt": {"text": text}}) for text in texts]
    linked = [json.loads(run.data.tags["mlflow.linkedPrompts"]) for run in runs]
    assert linked[0] == linked[1] == [{"name": "cafe.polite", "version": "1"}]
    assert linked[2] == [{"name": "cafe.polite", "version": "2"}]
    assert client.get_prompt_version("cafe.polite", 2).template == "Be brief."
    assert "mlflow.linkedPrompts" not in publish(config={"prompt": {"text": ""}}).data.tags


def test_an_experiment_that_was_there_before_gets_the_views_and_keeps_its_own_words(uri, client):
    made = client.create_experiment("theirs", tags={"mlflow.note.content": "Ours."})
    MLflowTracker(uri, "theirs").start_sweep("one", "command")
    tags = client.get_experiment(made).tags
    assert tags["mlflow.note.content"] == "Ours."
    views = [json.loads(value)["name"] for key, value in tags.items() if key.startswith("mlflow.sharedViewState.")]
    assert sorted(views) == ["Arms", "By fault", "Leaderboard"]


# Traces.


def traced(client, run):
    """Return the traces of a run, oldest first."""
    where = f"run_id = '{run.info.run_id}'"
    found = client.search_traces(locations=[run.info.experiment_id], filter_string=where)
    return sorted(found, key=lambda trace: trace.info.request_preview)


def trial_records(*trials):
    return [trial_record("s", trial) for trial in trials]


def test_every_trial_is_a_trace_with_its_verdicts(publish, client):
    run = publish(records=trial_records(judged_trial(0, True, False), judged_trial(1, None)))
    first, second = traced(client, run)
    assert (first.info.request_preview, second.info.request_preview) == ("s / f / trial 1", "s / f / trial 2")
    assert (first.info.client_request_id, first.info.tags["conversation_id"]) == ("c0", "c0")
    assert first.info.trace_metadata["mlflow.sourceRun"] == run.info.run_id
    assert "mlflow.trace.session" not in first.info.trace_metadata
    assert {found.name: found.feedback.value for found in first.info.assessments} == {
        "all_passed": False,
        "a0": True,
        "a1": False,
    }
    (unknown,) = [found for found in second.info.assessments if found.name == "a0"]
    assert (unknown.feedback.value, unknown.feedback.error.error_code) == (None, "NO_VERDICT")
    assert [span.name for span in first.data.spans] == ["conversation", "turn 1"]
    assert first.data.spans[0].inputs == {"messages": [{"role": "user", "content": "hi"}]}


def test_a_trial_that_somebody_spoilt_is_an_error_with_a_name(publish, client):
    (trace,) = traced(client, publish(records=trial_records(errored_trial(0))))
    assert (trace.info.state.value, trace.info.tags["failed_by"]) == ("ERROR", "ingest")


@pytest.mark.parametrize(("traces", "number"), [("trial", 1), ("turn", 2), ("none", 0)])
def test_what_becomes_a_trace_can_be_chosen(uri, client, tmp_path, traces, number):
    tracker = MLflowTracker(uri, "chosen", traces=traces)
    log = ConversationLog("c0", [Turn("hi", ("ok",)), Turn("bye", ("bye",))], True)
    records = trial_records(replace(judged_trial(0, True), log=log))
    cell = CellRecord("n", traces, {"scenario": "s", "fault": "f"}, {}, tmp_path / "none", records=records)
    run = client.get_run(tracker.publish(cell, tracker.start_sweep(traces, "command")))
    found = traced(client, run)
    assert len(found) == number
    sessions = {trace.info.trace_metadata.get("mlflow.trace.session") for trace in found}
    assert sessions == ({"c0"} if traces == "turn" else {None} if number else set())


def test_an_unknown_kind_of_trace_is_refused(uri):
    with pytest.raises(ConfigError, match=r"tracking\.traces: expected trial, turn, none; got 'all'"):
        MLflowTracker(uri, "x", traces="all")


def test_the_trials_are_a_table_that_can_be_compared_across_runs(publish, client, tmp_path):
    run = publish(records=trial_records(judged_trial(0, True, None), errored_trial(1)))
    assert json.loads(run.data.tags["mlflow.loggedArtifacts"]) == [{"path": "trials.json", "type": "table"}]
    path = client.download_artifacts(run.info.run_id, "trials.json", str(tmp_path))
    with open(path, encoding="utf-8") as file:
        table = json.load(file)
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [row["outcome"] for row in rows] == ["judged", "errored"]
    assert (rows[0]["a0"], rows[0]["a1"], rows[1]["a0"]) == (True, "unknown", None)
    assert rows[1]["why"] == "ingest: no answer"


class Refusing(http.server.BaseHTTPRequestHandler):
    """A server whose host check lets only its health check through."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        self.send_response(403)
        self.end_headers()
        self.wfile.write(b"Invalid Host header - possible DNS rebinding attack detected")

    def log_message(self, *_):
        """Say nothing."""


def test_a_server_that_refuses_our_name_for_it_is_told_with_the_remedy():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(ConfigError, match=r"refuses this host name .*--allowed-hosts '127\.0\.0\.1:\*"):
            MLflowTracker(f"http://127.0.0.1:{server.server_port}", "x").start_sweep("one", "command")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
