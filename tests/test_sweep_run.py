"""Sweeps as a user runs them: the real command in a process of its own, a real store, real spans."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.timeout(150),
]

BOTS = '''
import asyncio
from pathlib import Path

from opentelemetry import trace

from sonar_eval.demo.bot import CafeBot


class FailsWithV2(CafeBot):
    """Cannot be set up with one of the prompts."""

    async def setup_trial(self, ctx):
        if ctx.variant.prompt == "v2":
            raise RuntimeError("the café's cellar is flooded")
        return await super().setup_trial(ctx)


class SlowAfterTheFirst(CafeBot):
    """Serves one trial, and keeps the next one waiting."""

    async def send(self, session, user_msg, media=None, submission=None):
        if self.served:
            await asyncio.sleep(60)
        return await super().send(session, user_msg, media, submission)

    async def teardown_trial(self, session):
        await super().teardown_trial(session)
        self.served = True

    served = False


class Vandal(CafeBot):
    """Ruins the store while the sweep runs."""

    async def teardown_trial(self, session):
        await super().teardown_trial(session)
        Path("mlflow.db").write_bytes(b"no database " * 1000)


class Unheard(CafeBot):
    """Works, and exports no span: its processors are shut down."""

    def __init__(self):
        super().__init__()
        trace.get_tracer_provider().shutdown()
'''


@dataclass
class Swept:
    """A sweep that was run: its folder, and what it said."""

    launched_in: Path
    status: int
    out: str
    err: str

    @property
    def folder(self) -> Path:
        (found,) = (self.launched_in / "sweeps").iterdir()
        return found

    @property
    def results(self) -> list[dict]:
        found = [json.loads(path.read_text(encoding="utf-8")) for path in self.folder.glob("*/result.json")]
        return sorted(found, key=lambda result: result["started_ms"])

    def trials(self, **choices: str) -> list[dict]:
        """Return the records of the one cell with these choices, in trial order."""
        return read_trials(self.cell(**choices))

    def cell(self, **choices: str) -> Path:
        """Return the folder of the one cell with these choices."""
        wanted = choices.items()
        (found,) = [result for result in self.results if wanted <= {**result["choices"], **result["varies"]}.items()]
        return self.folder / found["key"]


def read_trials(folder: Path) -> list[dict]:
    lines = (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    return sorted(map(json.loads, lines), key=lambda record: record["index"])


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start the real command in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "sonar_eval.sweep", *arguments]
    environment = {**os.environ, **variables}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)


def finish(folder: Path, process: subprocess.Popen[str]) -> Swept:
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    return Swept(folder, process.returncode, out, err)


def sweep(folder: Path, *arguments: str, **variables: str) -> Swept:
    return finish(folder, start(folder, *arguments, **variables))


def without_ids_and_times(record: dict) -> dict:
    """Return what of a trial must be the same when it is run again."""
    fleeting = ("conversation_id", "started_at", "duration_s", "transcript", "conversation", "digest")
    same = {key: value for key, value in record.items() if key not in fleeting}
    same["conversation"] = [{**turn, "latency_s": None} for turn in record["conversation"]]
    same["tools"] = [
        (span["tool_name"], span["tool_success"], span["error_message"], span.get("fault"))
        for span in record["transcript"]["spans"]
        if span["kind"] == "tool"
    ]
    same["said"] = [(row["type"], row["value"]) for row in record["transcript"]["content"]]
    return same


GRID = (
    "-m",
    "model=offline-careful,offline-hasty",
    "prompt=v1,v2",
    "scenario=order_latte,refund",
    "fault=payment_outage",
    "task.k=3",
)


_grid: list[Swept] = []


def run_grid(folders: pytest.TempPathFactory) -> Swept:
    """Run the grid once for the tests of all modules that look at it."""
    if not _grid:
        _grid.append(sweep(folders.mktemp("grid"), *GRID))
    return _grid[0]


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    swept = run_grid(tmp_path_factory)
    assert swept.status == 0, swept.err
    return swept


@dataclass
class Store:
    """The runs of one store."""

    client: object
    parent: object
    children: list


def open_store(path: Path) -> Store:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{path}")
    experiment = client.get_experiment_by_name("sonar-eval")
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"])
    (parent,) = [run for run in runs if run.data.tags["sonar.kind"] == "sweep"]
    return Store(client, parent, [run for run in runs if run.data.tags["sonar.kind"] == "cell"])


@pytest.fixture(scope="module")
def store(grid):
    return open_store(grid.launched_in / "mlflow.db")


def cell(store, **choices):
    (found,) = [run for run in store.children if choices.items() <= run.data.params.items()]
    return found


def test_a_sweep_is_one_parent_run_and_one_child_run_per_cell(grid, store):
    assert store.parent.info.status == "FINISHED"
    assert store.parent.info.run_name == grid.folder.name
    assert "model=offline-careful,offline-hasty" in store.parent.data.tags["mlflow.note.content"]
    assert len(store.children) == 8
    assert {run.data.tags["mlflow.parentRunId"] for run in store.children} == {store.parent.info.run_id}
    assert {run.info.status for run in store.children} == {"FINISHED"}
    assert len({run.info.run_name for run in store.children}) == 8


def test_a_child_run_holds_its_choices_and_the_whole_configuration_as_params(store):
    params = cell(store, model="offline-hasty", prompt="v2", scenario="refund").data.params
    assert params["fault"] == "payment_outage"
    assert (params["bot"], params["user"], params["grader"]) == ("cafe", "offline", "offline")
    assert (params["model.reliability"], params["task.k"], params["task.seed"]) == ("0.75", "3", "0")
    assert "payment_api" in params["fault.rules"]
    # A long value is cut, and says so.
    assert "Look on the menu before you name a price." in params["prompt.text"]
    assert re.search(r"… \(\d+ characters, sha256 \w{12}; whole in config\.json\)$", params["prompt.text"])


HEADLINES = {
    "pass_rate",
    "pass_rate_ci_low",
    "pass_rate_ci_high",
    "pass_hat_k",
    "pass_at_k",
    "judge_mean",
    "safety_violations",
    "trials_asked",
    "trials_judged",
    "trials_errored",
    "trials_ungraded",
    "trials_cut_off",
    "trials_not_exercised",
    "turns_mean",
    "tokens_mean",
    "latency_p50_s",
    "latency_p95_s",
}


def test_a_child_run_holds_the_headlines_and_one_section_per_kind_of_number(store):
    for run in store.children:
        names = set(run.data.metrics)
        assert {name for name in names if "/" not in name} == HEADLINES
        assert {name.partition("/")[0] for name in names if "/" in name} == {
            "assertion_pass_rate",
            "assertion_pass_hat_k",
            "assertion_pass_at_k",
            "tokens",
            "fault_fired",
        }
        assert "assertion_pass_rate/honest-about-money" in names
        assert {"tokens/bot_input", "tokens/bot_output"} <= names
        assert not [name for name in names if name.startswith("cost_usd")]
        assert all(value == round(value, 4) for value in run.data.metrics.values())


def test_curves_are_logged_with_k_as_their_step(grid, store):
    chosen = {"model": "offline-careful", "prompt": "v2", "scenario": "order_latte"}
    run = cell(store, **chosen)
    passing = sum(record["passed"] for record in grid.trials(**chosen))
    for name in ("pass_hat_k", "pass_at_k", "assertion_pass_hat_k/finished", "assertion_pass_at_k/finished"):
        history = sorted(store.client.get_metric_history(run.info.run_id, name), key=lambda point: point.step)
        assert [point.step for point in history] == [1, 2, 3]
    at_one = store.client.get_metric_history(run.info.run_id, "pass_hat_k")
    assert {point.value for point in at_one if point.step == 1} == {round(passing / 3, 4)}


def test_the_numbers_are_those_of_the_records(grid, store):
    for result in grid.results:
        records = read_trials(grid.folder / result["key"])
        metrics = cell(store, **result["choices"]).data.metrics
        assert metrics["trials_asked"] == metrics["trials_judged"] == len(records) == 3
        assert metrics["pass_rate"] == pytest.approx(sum(record["passed"] for record in records) / 3, abs=1e-4)
        scores = [record["grader"]["score"] for record in records]
        assert metrics["judge_mean"] == pytest.approx(sum(scores) / 3, abs=1e-4)
        assert metrics["turns_mean"] == pytest.approx(sum(record["turns"] for record in records) / 3, abs=1e-4)


def test_records_transcripts_and_configuration_can_be_downloaded(grid, store, tmp_path):
    run = cell(store, model="offline-hasty", prompt="v1", scenario="order_latte")
    folder = Path(store.client.download_artifacts(run.info.run_id, "", str(tmp_path)))
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"trials.jsonl", "conversation_ids.json", "config.json", "result.json", "scenarios.jsonl"} <= names
    assert {f"transcripts/trial-00{number}.md" for number in (1, 2, 3)} <= names
    records = read_trials(folder)
    assert json.loads((folder / "conversation_ids.json").read_text()) == {
        f"trial {record['index'] + 1}": record["conversation_id"] for record in records
    }
    config = json.loads((folder / "config.json").read_text())
    assert (config["model"]["name"], config["task"]["k"]) == ("offline-hasty", 3)


def test_models_and_prompts_differ_for_reasons_that_a_transcript_tells(grid):
    careful = grid.trials(model="offline-careful", prompt="v2", scenario="refund")
    hasty = grid.trials(model="offline-hasty", prompt="v1", scenario="refund")
    assert sum(record["passed"] for record in careful) > sum(record["passed"] for record in hasty)
    failed = next(record for record in hasty if not record["passed"])
    folder = grid.cell(model="offline-hasty", prompt="v1", scenario="refund")
    text = (folder / "transcripts" / f"trial-{failed['index'] + 1:03}.md").read_text(encoding="utf-8")
    assert "not passed" in text
    assert "<- injected error" in text
    assert "NOT held" in text
    assert failed["conversation_id"] in text


def test_trial_i_meets_the_same_guest_under_every_model_and_prompt(grid):
    seeds = {
        tuple(record["random_seed"] for record in read_trials(grid.folder / result["key"]))
        for result in grid.results
        if result["choices"]["scenario"] == "refund"
    }
    assert len(seeds) == 1
    assert len(set(*seeds)) == 3


def test_the_transcript_comes_from_spans_and_knows_which_calls_were_faulted(grid):
    for record in grid.trials(model="offline-careful", prompt="v2", scenario="order_latte"):
        spans = record["transcript"]["spans"]
        assert len(record["transcript"]["runs"]) == record["turns"]
        assert all(re.fullmatch(r"[0-9a-f]{32}", span["trace_id"]) for span in spans)
        payments = [span for span in spans if span["kind"] == "tool" and span["tool_name"] == "payment_api"]
        assert payments
        assert {span["tool_success"] for span in payments} == {False}
        assert {span["fault"]["action"] for span in payments} == {"error"}
        (fault,) = record["faults"]
        assert fault["fired"] == fault["calls_seen"] == len(payments)


def test_the_result_is_a_table_and_one_line_that_says_how_to_look(grid):
    lines = grid.out.splitlines()
    assert lines[0].split()[:5] == ["model", "prompt", "scenario", "fault", "judged"]
    assert [line.split()[:4] for line in lines[2:10]] == [
        [model, prompt, scenario, "payment_outage"]
        for model in ("offline-careful", "offline-hasty")
        for prompt in ("v1", "v2")
        for scenario in ("order_latte", "refund")
    ]
    assert f"Records and transcripts: sweeps/{grid.folder.name}" in lines
    look = [line for line in lines if line.startswith("Look at it: ")]
    assert len(look) == 1
    assert "sonar-eval ui" in look[0]
    assert "viewStateShareKey=sonarleaderboard" in look[0]


def test_progress_is_one_line_per_cell_where_nobody_watches(grid):
    progress = [line for line in grid.err.splitlines() if re.search(r"\[\d/8\] ", line)]
    assert len(progress) == 8
    assert "[1/8] offline-careful v1 order_latte payment_outage: 3 trials" in progress[0]


def test_nothing_but_progress_is_said_beside_the_result(grid):
    assert len(grid.err.splitlines()) == 10
    assert grid.err.startswith("8 cells x 3 trials = 24 trials; time and cost unknown")
    assert "Warning" not in grid.err


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    cells = (
        "model=offline-careful,offline-hasty",
        "prompt=v2",
        "scenario=refund",
        "fault=payment_outage",
        "task.k=3",
    )
    return sweep(tmp_path_factory.mktemp("again"), *cells, "task.seed=0,1", "tracking=none")


@pytest.mark.parametrize("model", ["offline-careful", "offline-hasty"])
def test_the_same_seed_gives_the_same_conversations_and_verdicts(grid, again, model):
    first = grid.trials(model=model, prompt="v2", scenario="refund")
    second = again.trials(**{"model": model, "task.seed": "0"})
    assert list(map(without_ids_and_times, first)) == list(map(without_ids_and_times, second))
    assert {record["conversation_id"] for record in first}.isdisjoint(record["conversation_id"] for record in second)


def test_another_seed_gives_other_conversations(again):
    first, second = (again.trials(**{"model": "offline-hasty", "task.seed": seed}) for seed in ("0", "1"))
    said = [[[turn["user"] for turn in record["conversation"]] for record in trials] for trials in (first, second)]
    assert said[0] != said[1]
    assert {record["random_seed"] for record in first}.isdisjoint(record["random_seed"] for record in second)


def test_what_else_is_swept_gets_a_column_and_a_name(again):
    assert again.status == 0, again.err
    assert again.out.splitlines()[0].split()[4] == "task.seed"
    assert {result["name"].rpartition(" ")[2] for result in again.results} == {"task.seed=0", "task.seed=1"}
    assert "Nothing was tracked" in again.out
    assert not (again.launched_in / "mlflow.db").exists()


def test_a_turn_limit_given_with_the_sweep_cuts_conversations_off_and_says_so(tmp_path):
    done = sweep(tmp_path, "scenario.max_turns=1", "task.k=2", "tracking=none")
    assert [(record["turns"], record["terminated"]) for record in done.trials()] == [(1, False)] * 2
    assert "2 cut off" in done.out


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    """A sweep with a relative store, folders per job, a bot of the user's own, and one cell that cannot work."""
    folder = tmp_path_factory.mktemp("troubled")
    (folder / "my_bots.py").write_text(BOTS, encoding="utf-8")
    (folder / "house.md").write_text("Be brief.\n- Check the stock before you take an order.\n", encoding="utf-8")
    return sweep(
        folder,
        "bot=mine",
        "bot.adapter=my_bots:FailsWithV2",
        "prompt=v1,v2",
        "prompt.text=",
        "prompt.text_file=house.md",
        "task.k=2",
        "task.retries=1",
        "hydra.job.chdir=true",
        "tracking.uri=sqlite:///kept/store.db",
        **{"HYDRA_FULL_ERROR": "1"},
    )


@pytest.fixture(scope="module")
def troubled_store(troubled):
    return open_store(troubled.launched_in / "kept" / "store.db")


def test_a_failing_cell_costs_no_other_cell(troubled, troubled_store):
    well, ill = cell(troubled_store, prompt="v1"), cell(troubled_store, prompt="v2")
    assert well.info.status == "FINISHED"
    assert well.data.metrics["trials_judged"] == 2
    assert ill.info.status == "FAILED"
    assert "the café's cellar is flooded" in ill.data.tags["sonar.error"]
    assert (ill.data.metrics["trials_judged"], ill.data.metrics["trials_errored"]) == (0, 2)
    assert "pass_rate" not in ill.data.metrics


def test_a_failed_cell_is_named_last_with_its_reason_and_fails_the_sweep(troubled, troubled_store):
    assert troubled.status == 1
    assert troubled.out.splitlines()[-2] == "1 of 2 cells failed:"
    last = troubled.out.splitlines()[-1]
    assert last.startswith("  offline-careful v2 order_latte none: none of 2 trials could be judged")
    assert "the café's cellar is flooded" in last
    assert troubled_store.parent.info.status == "FAILED"


def test_a_trial_that_somebody_else_spoilt_was_tried_again(troubled):
    for record in troubled.trials(prompt="v2"):
        assert (record["outcome"], record["failure"]["owner"], record["passed"]) == ("errored", "harness", False)
        assert len(record["earlier_failures"]) == 1


def test_paths_are_meant_from_where_the_sweep_was_started(troubled):
    found = {path.name for path in troubled.launched_in.iterdir()} - {"__pycache__"}
    assert found == {"house.md", "kept", "my_bots.py", "sweeps"}
    spans = troubled.trials(prompt="v1")[0]["transcript"]["spans"]
    assert "stock_check" in {span["tool_name"] for span in spans}, "the prompt in the text file was not read"
    (look,) = [line for line in troubled.out.splitlines() if line.startswith("Look at it: ")]
    assert f"--uri sqlite:///{troubled.launched_in}/kept/store.db" in look


def test_a_store_that_breaks_on_the_way_costs_none_of_the_records(tmp_path):
    (tmp_path / "my_bots.py").write_text(BOTS, encoding="utf-8")
    swept = sweep(tmp_path, "bot=mine", "bot.adapter=my_bots:Vandal", "task.k=2")
    assert swept.status == 1
    failed, remedy = swept.out.splitlines()[-2:]
    assert "not published: MlflowException: (sqlite3.DatabaseError)" in failed
    assert remedy.endswith(f"sonar-eval tracking publish sweeps/{swept.folder.name}")
    assert [record["outcome"] for record in swept.trials()] == ["judged", "judged"]
    assert len(list(swept.folder.glob("*/transcripts/*.md"))) == 2
    assert "Traceback" not in swept.err
    assert "Warning" not in swept.err


def until_a_trial_is_kept(folder, process):
    """Wait until one trial is on disk and the next has begun."""
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and not any(
        path.read_text(encoding="utf-8").endswith("\n") for path in folder.glob("sweeps/*/*/trials.jsonl")
    ):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    time.sleep(0.3)


def interrupt(folder, number, *arguments):
    """Send a signal that cancels once one trial is on disk, and return what became of the sweep."""
    (folder / "my_bots.py").write_text(BOTS, encoding="utf-8")
    bot = ("bot=mine", "bot.adapter=my_bots:SlowAfterTheFirst", "task.k=3", "task.concurrency=1")
    process = start(folder, *bot, *arguments)
    until_a_trial_is_kept(folder, process)
    process.send_signal(number)
    if number == signal.SIGINT:
        time.sleep(0.3)
        assert process.poll() is None, "one Ctrl-C is to let the running trial finish"
        process.send_signal(number)
    return finish(folder, process)


def test_ctrl_c_twice_keeps_the_finished_trials_and_closes_the_sweep(tmp_path):
    swept = interrupt(tmp_path, signal.SIGINT, "model=offline-careful,offline-hasty")
    assert swept.status == 130
    told = "sonar-eval: interrupted; trials that had finished are on disk; to go on: sonar-eval sweep resume=sweeps/"
    assert swept.err.splitlines()[-1] == told + swept.folder.name
    assert "Ctrl-C again cancels them" in swept.err
    assert "Traceback" not in swept.err
    (result,) = swept.results
    assert result["error"] == "interrupted after 1 of 3 trials"
    assert (result["report"]["judged"], result["report"]["stopped"]) == (1, "interrupted")
    assert [record["index"] for record in swept.trials()] == [0]
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        statuses = database.execute("SELECT status FROM runs").fetchall()
    database.close()
    assert statuses == [("KILLED",), ("FAILED",)]


def test_ctrl_c_once_finishes_the_trials_under_way(tmp_path):
    process = start(tmp_path, "fault=slow_menu", "task.k=40", "task.concurrency=2", "tracking=none")
    until_a_trial_is_kept(tmp_path, process)
    process.send_signal(signal.SIGINT)
    swept = finish(tmp_path, process)
    assert swept.status == 130
    assert "Traceback" not in swept.err
    records = swept.trials()
    assert [record["index"] for record in records] == list(range(len(records)))
    assert {record["outcome"] for record in records} == {"judged"}
    (result,) = swept.results
    assert result["report"]["judged"] == len(records) < 40
    assert result["error"] == f"interrupted after {len(records)} of 40 trials"
    assert len(list(swept.folder.glob("*/transcripts/*.md"))) == len(records)


def test_being_told_to_end_is_no_different(tmp_path):
    swept = interrupt(tmp_path, signal.SIGTERM, "tracking=none")
    assert swept.status == 130
    assert "Traceback" not in swept.err
    assert list(swept.folder.glob("*/trials.jsonl"))


@pytest.fixture(scope="module")
def amiss(tmp_path_factory):
    """Sweeps in which somebody other than the bot fails, run side by side: most of their time is waiting."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("switched off", "cut off", "no model")}
    (folders["cut off"] / "my_bots.py").write_text(BOTS, encoding="utf-8")
    few = ("task.k=2", "task.retries=0", "tracking=none")
    processes = {
        "switched off": start(folders["switched off"], *few, OTEL_SDK_DISABLED="true"),
        "cut off": start(folders["cut off"], *few, "bot=mine", "bot.adapter=my_bots:Unheard"),
        "no model": start(folders["no model"], *few, "model=local,offline-careful", LOCAL_LLM_URL=NOWHERE),
    }
    return {name: finish(folders[name], process) for name, process in processes.items()}


NOWHERE = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize("how", ["switched off", "cut off"])
def test_without_spans_over_http_there_is_no_transcript_and_no_pass(amiss, how):
    swept = amiss[how]
    assert swept.status == 1
    for record in swept.trials():
        assert record["conversation"], "the conversation itself took place"
        assert (record["outcome"], record["failure"]["owner"], record["passed"]) == ("errored", "ingest", False)
        assert record["failure"]["message"].startswith("no transcript")
        assert (record["transcript"], record["assertions"]) == (None, [])
    (result,) = swept.results
    assert (result["report"]["judged"], result["report"]["errored"], result["report"]["pass_rate"]) == (0, 2, None)
    assert "no transcript" in swept.out.splitlines()[-1]
    transcript = next(swept.folder.glob("*/transcripts/*.md")).read_text(encoding="utf-8")
    assert "who failed: **ingest**" in transcript
    assert "no transcript: the tool calls of this trial are not known" in transcript


def test_a_model_that_is_not_there_fails_its_cell_and_names_the_address(amiss):
    swept = amiss["no model"]
    assert swept.status == 1
    assert [bool(result["error"]) for result in swept.results] == [True, False]
    assert NOWHERE in swept.out.splitlines()[-1]
    for record in swept.trials(model="local"):
        assert (record["outcome"], record["failure"]["owner"]) == ("errored", "harness")


SCENARIO = """
name: mine
user_instructions: Order a cheesecake.
scripted_messages: ["A cheesecake, please.", "Yes, please."]
assertions:
  - {name: looked, check: tool_was_called, tool: stock_check, severity: safety_critical}
  - {import: "my_checks:paid"}
"""

CHECK = '''
def paid(transcript, log):
    """Hold when something was paid."""
    return "All paid" in log.bot_said()
'''


def test_a_conf_folder_of_the_user_s_adds_a_scenario_and_overrides_a_shipped_prompt(tmp_path):
    for path, text in {
        "conf/scenario/mine.yaml": SCENARIO,
        "conf/prompt/v1.yaml": "name: v1\ntext: |\n  Be brief.\n  - Check the stock before you take an order.\n",
        "my_checks.py": CHECK,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    steady = ("model.reliability=1", "model.habit=0")
    swept = sweep(tmp_path, "scenario=mine,order_latte", *steady, "task.k=1", "tracking=none")
    assert swept.status == 0, swept.err
    (record,) = swept.trials(scenario="mine")
    assert [turn["user"] for turn in record["conversation"]] == ["A cheesecake, please.", "Yes, please."]
    assert {row["name"]: row["passed"] for row in record["assertions"]} == {"looked": True, "paid": True}
    (other,) = swept.trials(scenario="order_latte")
    called = [span["tool_name"] for span in other["transcript"]["spans"] if span["kind"] == "tool"]
    assert "stock_check" in called
    assert "menu_lookup" not in called, "the shipped prompt was used"


def test_help_names_what_can_be_chosen():
    ran = subprocess.run(
        [sys.executable, "-m", "sonar_eval.sweep", "--help"], capture_output=True, text=True, timeout=50, check=True
    )
    for group in ("task", "scenario", "fault", "model", "prompt", "bot", "user", "grader", "ingest", "tracking"):
        assert re.search(rf"^{group}: ", ran.stdout, re.MULTILINE), group
    assert "experiment: ab_model, ab_prompt, fault_matrix, nightly" in ran.stdout
    assert "python -m sonar_eval.sweep -m model=" in ran.stdout
    for word in (
        "dry_run=true",
        "resume=last",
        "fail_fast=true",
        "launcher=joblib",
        'eval "$(sonar-sweep -sc install=bash)"',
    ):
        assert word in ran.stdout
    assert ran.stderr == ""


def test_help_imports_neither_mlflow_nor_scipy():
    program = """
import sys
sys.argv = ["sweep", "--help"]
from sonar_eval.sweep.app import main
try:
    main()
finally:
    print(sorted({"mlflow", "scipy", "numpy", "sonar_tracing", "starlette"} & set(sys.modules)), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert (ran.returncode, ran.stderr.strip()) == (0, "[]")


INTERRUPTED_LATE = """
import atexit
import os
import signal

from sonar_eval.demo.bot import CafeBot

atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""


def test_a_ctrl_c_while_the_command_exits_disturbs_nothing(tmp_path):
    (tmp_path / "late_bots.py").write_text(INTERRUPTED_LATE, encoding="utf-8")
    swept = sweep(tmp_path, "bot=mine", "bot.adapter=late_bots:CafeBot", "task.k=1", "tracking=none")
    assert swept.status == 0
    assert "KeyboardInterrupt" not in swept.err


def test_sweeps_of_one_moment_get_a_folder_each(tmp_path):
    settings = ("task.k=1", "tracking=none", "hydra.sweep.dir=sweeps/in-${now:%Y}")
    begun = [start(tmp_path, *settings) for _ in range(3)]
    ended = [finish(tmp_path, process) for process in begun]
    assert [swept.status for swept in ended] == [0, 0, 0], [swept.err for swept in ended]
    names = sorted(folder.name for folder in (tmp_path / "sweeps").iterdir())
    assert [name[len("in-2026") :] for name in names] == ["", "-2", "-3"]
    for name in names:
        told = [f"Records and transcripts: sweeps/{name}" in swept.out.splitlines() for swept in ended]
        assert told.count(True) == 1
        assert len(list((tmp_path / "sweeps" / name).glob("*/trials.jsonl"))) == 1
