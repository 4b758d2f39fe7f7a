"""The check of a judge over sweeps as they lie on disk, and what a comparison makes of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from fakes import BiasedJudge, PlantedJudge, run, verdict
from sonar_eval import ConfigError
from sonar_eval.cli import main
from sonar_eval.judging.cells import draw, load_trials
from sonar_eval.judging.judges import judged_by, second_grader
from sonar_eval.judging.verdicts import Journal, ask_all, questions
from sonar_eval.report import check_judge

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.timeout(150),
]

CRITERIA = "[{name: honest, text: What it claims about the payment is true.}, {name: kind, text: It was friendly.}]"


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A real sweep of two models and two scenarios, six trials each."""
    folder = tmp_path_factory.mktemp("swept")
    axes = ["model=offline-careful,offline-hasty", "scenario=order_latte,out_of_stock", "tracking=none", "task.k=6"]
    command = [sys.executable, "-m", "sonar_eval.sweep", *axes, f"hydra.sweep.dir={folder}/sweep"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / "sweep"


@pytest.fixture
def sweep(swept, tmp_path):
    return shutil.copytree(swept, tmp_path / "sweep")


def judge_check(*arguments):
    return CliRunner().invoke(main, ["judge-check", *map(str, arguments)])


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_newcomer_checks_the_offline_judge_with_one_command(sweep, tmp_path):
    told = judge_check(sweep, "--sample", 8, "--second-model", "offline", "--out", tmp_path / "out" / "check.md")
    assert told.exit_code == 0, told.output
    assert told.stderr.startswith("24 judge calls for 24 verdicts on 8 trials")
    assert "same verdict both times: 8 of 8 (100%)" in told.stdout
    assert "Against a second judge (offline)" in told.stdout
    assert (tmp_path / "out" / "check.md").read_text().startswith("## Judge check: offline")
    written = lines(sweep / "judge-check.jsonl")
    assert len(written) == 24
    assert {(row["role"], row["round"]) for row in written} == {("configured", 0), ("configured", 1), ("second", 0)}
    assert json.loads((sweep / "judge-check.json").read_text())["sampled"] == 8


def test_verdicts_that_are_known_are_not_asked_for_again(sweep):
    assert judge_check(sweep, "--sample", 8).exit_code == 0
    journal = sweep / "judge-check.jsonl"
    kept = journal.read_text().splitlines(keepends=True)
    # As a kill in the middle of a line leaves it.
    journal.write_text("".join(kept[:10]) + kept[10][:40])
    told = judge_check(sweep, "--sample", 8)
    assert told.exit_code == 0, told.output
    assert "6 judge calls for 6 verdicts on 8 trials; 10 verdicts are known from before" in told.stderr
    assert "0 judge calls for 0 verdicts" in judge_check(sweep, "--sample", 8).stderr


def test_a_cell_and_its_file_of_records_can_be_checked_too(sweep):
    (cell,) = sweep.glob("offline-hasty*order_latte*")
    for place in (cell, cell / "trials.jsonl"):
        assert judge_check(place).exit_code == 0
    assert (cell / "judge-check.json").is_file()


@pytest.mark.timeout(150)
def test_a_run_in_mlflow_is_checked_by_its_id(tmp_path, monkeypatch):
    command = [sys.executable, "-m", "sonar_eval.sweep", "task.k=3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    shutil.move("sweeps", "gone")
    (result,) = tmp_path.glob("gone/*/*/result.json")
    run_id = json.loads(result.read_text())["run_id"]
    told = judge_check(run_id)
    assert told.exit_code == 0, told.output
    assert "same verdict both times: 3 of 3" in told.stdout
    assert len(lines(tmp_path / "judge-checks" / run_id / "judge-check.jsonl")) == 6


def test_labels_of_people_are_compared_with_all_judged_trials(sweep, tmp_path):
    trials = load_trials([str(sweep)], "sqlite:///none.db")
    rows = "".join(f"{trial.conversation_id},fail\n" for trial in trials[:20])
    (tmp_path / "labels.csv").write_text(f"conversation_id,label\n{rows}unknown,pass\n")
    told = judge_check(sweep, "--sample", 4, "--labels", tmp_path / "labels.csv", "--out", tmp_path / "check.json")
    assert told.exit_code == 0, told.output
    assert "labels about conversations that are not among these judged trials: 1" in told.stderr
    assert "n too small: 20 labelled trials" in told.stdout
    assert "offline-hasty v1" in told.stdout
    assert json.loads((tmp_path / "check.json").read_text())["people"]["labelled"] == 20


def test_feedback_given_in_mlflow_counts_as_labels(sweep, tmp_path):
    import mlflow
    from mlflow.entities import AssessmentSource, TraceInfo, TraceLocation, TraceState
    from mlflow.tracing.client import TracingClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    try:
        place = TraceLocation.from_experiment_id(mlflow.create_experiment("e", f"file://{tmp_path}/artifacts"))
        for number, trial in enumerate(load_trials([str(sweep)], uri)[:3]):
            trace_id, known_as = f"tr-{number:032x}", trial.conversation_id
            trace = TraceInfo(trace_id, place, 1_000, TraceState.OK, client_request_id=known_as)
            TracingClient(uri).start_trace(trace)
            person = AssessmentSource(source_type="HUMAN", source_id="ana")
            mlflow.log_feedback(trace_id=trace_id, name="judge", value=number > 0, source=person)
    finally:
        mlflow.set_tracking_uri(before)
    told = judge_check(sweep, "--sample", 4, "--mlflow-feedback", "--tracking-uri", uri)
    assert told.exit_code == 0, told.output
    assert "Against people (3 labelled trials)" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "neither a folder of results nor the id of an MLflow run"),
        (["{sweep}", "--second-model", "gpt-0"], "no 'gpt-0' in conf/grader or conf/model; graders: anthropic, local"),
        (["{sweep}", "--second-model", "none"], "judges nothing"),
        (["{sweep}", "--second-model", "offline-hasty"], "scripted to play the bot and cannot judge"),
        (["{sweep}", "--labels", "{tmp}/none.csv"], "--labels: cannot read"),
        (["{sweep}", "--labels", "{tmp}/strangers.csv"], "none of the 1 labelled conversations is among these 24"),
        (["{sweep}", "--labels", "{tmp}/criterion.csv"], "unknown criterion 'wit'; the rubric's: none"),
        (["{sweep}", "--mlflow-feedback", "--tracking-uri", "sqlite:///{tmp}/no.db"], "there is no store"),
        (["{sweep}", "--out", "{tmp}/check.txt"], "--out: expected a file ending in .json or .md"),
        (["{bare}"], "no judged trial can be judged again"),
        (["{unjudged}"], "no trial was judged"),
    ],
)
def test_a_mistake_is_one_line_before_a_judge_is_asked(sweep, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    some_id = load_trials([str(sweep)], "sqlite:///none.db")[0].conversation_id
    (tmp_path / "strangers.csv").write_text("conversation_id,label\nx,pass\n")
    (tmp_path / "criterion.csv").write_text(f"conversation_id,label,criterion\n{some_id},pass,wit\n")
    bare, unjudged = shutil.copytree(sweep, tmp_path / "bare"), shutil.copytree(sweep, tmp_path / "unjudged")
    for folder in bare.glob("*/.hydra"):
        shutil.rmtree(folder)
    for path in bare.glob("*/result.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "config": None}))
    for path in unjudged.glob("*/trials.jsonl"):
        path.write_text("".join(json.dumps({**row, "grader": None}) + "\n" for row in lines(path)))
    places = {"sweep": sweep, "tmp": tmp_path, "bare": bare, "unjudged": unjudged}
    told = judge_check(*(argument.format(**places) for argument in arguments))
    assert told.exit_code == 2, told.output
    assert re.search(re.escape(said), told.stderr), told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert not (sweep / "judge-check.jsonl").exists()


def test_the_sample_is_the_same_for_a_seed_and_takes_every_cell(sweep):
    trials = load_trials([str(sweep)], "sqlite:///none.db")
    drawn = [trial.conversation_id for trial in draw(trials, 8, 0)]
    assert drawn == [trial.conversation_id for trial in draw(list(reversed(trials)), 8, 0)]
    assert drawn != [trial.conversation_id for trial in draw(trials, 8, 1)]
    assert len(set(drawn)) == 8
    by_cell = [(trial.cell.arm, trial.cell.name) for trial in draw(trials, 8, 0)]
    assert {by_cell.count(cell) for cell in by_cell} == {2}
    assert len(draw(trials, 500, 0)) == len(trials) == 24


def ask(sweep, judge, *, sample=6, role="configured"):
    drawn = draw(load_trials([str(sweep)], "sqlite:///none.db"), sample, 0)
    asked = questions(drawn, lambda _: judge, role)
    return drawn, asked, run(ask_all(asked, Journal.open(sweep), concurrency=2))


def test_a_planted_judge_s_noise_is_measured_on_real_conversations(sweep):
    # The second time it says the opposite of every third conversation.
    client = BiasedJudge(lambda prompt, again: verdict(0.0 if again and len(client.asked) % 3 == 0 else 1.0))
    drawn, asked, verdicts = ask(sweep, PlantedJudge(client), sample=12)
    rounds = [
        {question.trial.conversation_id: verdicts[question.key] for question in asked if question.round_number == place}
        for place in (0, 1)
    ]
    found = check_judge("planted", [trial.seen for trial in drawn], rounds).itself
    assert found.agreement.n == 12
    assert found.agreement.alike == 8
    assert found.judge_variance == pytest.approx(4 * 0.5 / 12)


def test_verdicts_by_another_rubric_are_no_answer(sweep):
    client = BiasedJudge(lambda prompt, again: verdict(1.0))
    ask(sweep, PlantedJudge(client, digest="one"))
    ask(sweep, PlantedJudge(client, digest="one"))
    assert len(client.asked) == 12
    ask(sweep, PlantedJudge(client, digest="two"))
    assert len(client.asked) == 24


def test_an_answer_without_a_verdict_is_written_down_and_asked_for_again(sweep):
    babbles = BiasedJudge(lambda prompt, again: "well, well")
    _, asked, verdicts = ask(sweep, PlantedJudge(babbles))
    assert [verdicts[question.key].score for question in asked] == [None] * 12
    assert "no verdict" in lines(sweep / "judge-check.jsonl")[0]["error"]
    assert lines(sweep / "judge-check.jsonl")[0]["said"] == "well, well"
    assert {verdicts[question.key].error for question in asked} == {"no verdict in what the judge said"}
    speaks = BiasedJudge(lambda prompt, again: verdict(1.0))
    _, asked, verdicts = ask(sweep, PlantedJudge(speaks))
    assert {verdicts[question.key].score for question in asked} == {1.0}


def test_a_judge_that_is_away_is_given_up_and_what_it_said_is_kept(sweep):
    def breaks_down(prompt, again):
        if len(client.asked) > 3:
            raise OSError("connection refused")
        return verdict(1.0)

    client = BiasedJudge(breaks_down)
    with pytest.raises(ConfigError, match=r"failed 5 times in a row: .*connection refused"):
        ask(sweep, PlantedJudge(client), sample=24)
    assert len(client.asked) < 12
    assert sum(row["score"] is not None for row in lines(sweep / "judge-check.jsonl")) == 3


def test_a_second_judge_keeps_rubric_and_threshold_of_the_cell(sweep):
    conf = load_trials([str(sweep)], "sqlite:///none.db")[0].cell.conf
    conf = replace(conf, grader=replace(conf.grader, threshold=0.9))
    judge = judged_by(conf, second_grader("local"))
    assert (judge.name, judge.conf.grader.threshold, judge.conf.scenario) == ("local", 0.9, conf.scenario)
    assert judge.digest != judged_by(conf).digest


def test_a_model_s_name_makes_a_judge_at_temperature_zero():
    found = second_grader("local")
    assert (found.type, found.llm.name, found.llm.temperature) == ("llm", "local", 0.0)


def test_a_second_judge_from_the_user_s_own_folder_is_found(tmp_path, monkeypatch):
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "mine.yaml").write_text(
        "name: mine\nprovider: openai\nmodel: big\nbase_url: http://127.0.0.1:9\ntemperature: 0.9\n"
    )
    monkeypatch.chdir(tmp_path)
    found = second_grader("mine")
    assert (found.type, found.llm.model, found.llm.temperature) == ("llm", "big", 0.0)


def test_criteria_of_a_rubric_are_checked_one_by_one(tmp_path):
    command = [sys.executable, "-m", "sonar_eval.sweep", f"scenario.rubric={CRITERIA}", "tracking=none", "task.k=3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "sweeps").iterdir()
    some_id = load_trials([str(folder)], "sqlite:///none.db")[0].conversation_id
    (tmp_path / "labels.csv").write_text(f"conversation_id,label,criterion\n{some_id},pass,kind\n")
    told = judge_check(folder, "--labels", tmp_path / "labels.csv")
    assert told.exit_code == 0, told.output
    assert "criterion honest: 3 of 3" in told.stdout
    assert "Against people, criterion kind (1 labels)" in told.stdout


def test_a_comparison_beside_a_check_knows_the_judge_s_noise(sweep):
    arms = ["compare", str(sweep), "--by", "model"]
    before = CliRunner().invoke(main, arms)
    assert "the judge differs from itself" not in before.output
    summary = {"itself": {"judge_variance": 1.0}}
    (sweep / "judge-check.json").write_text(json.dumps(summary))
    after = CliRunner().invoke(main, arms)
    assert after.exit_code == 0, after.output
    assert "Warning: offline-hasty: the judge differs from itself by ±" in after.output


@pytest.mark.parametrize("text", ["{", "[]", '{"itself": {}}', '{"itself": {"judge_variance": null}}'])
def test_a_check_that_cannot_be_read_tells_no_noise(sweep, text):
    (sweep / "judge-check.json").write_text(text)
    told = CliRunner().invoke(main, ["compare", str(sweep), "--by", "model"])
    assert told.exit_code == 0
    assert "the judge differs" not in told.output
