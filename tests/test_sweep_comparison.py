"""How the arms of a sweep compare, said when it ends, and in MLflow."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from fakes import judged_trial
from simulated import trials
from sonar_eval.cli import main
from sonar_eval.metrics import roll_up
from sonar_eval.records import read_trial, scenario_record, trial_record
from sonar_eval.report import Arm, compare_arms
from sonar_eval.stats import LOOK_LEVEL
from sonar_eval.sweep.comparison import compare_sweep, publish_comparisons, write_reports
from sonar_eval.sweep.looks import look
from sonar_eval.sweep.publish import publish_sweep, tracker_of
from sonar_eval.tracking import NullTracker
from stores import empty_store
from test_sweep_run import BOTS, read_trials, sweep

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.timeout(200),
]

CONFIG = {"prompt": {"name": "p", "text": "Be kind."}, "scenario": {"name": "s"}, "grader": {"required": False}}


def whole(record):
    """Add what only a record that is read back whole must hold."""
    return {**trial_record(record["scenario"], judged_trial(0, True)), **record}


def write_planned(folder, cells, **settings):
    """Write a sweep's folder as its launching process and its jobs do; `cells` maps its axes to trial records."""
    folder.mkdir(parents=True)
    rows = []
    for place, (made_of, records) in enumerate(cells.items()):
        choices = dict(zip(("model", "prompt", "scenario", "fault"), made_of, strict=True))
        row = {"key": ".".join(made_of), "name": " ".join(made_of), "choices": choices, "varies": {}}
        parts = {"scenario": choices["scenario"], "fault": choices["fault"]}
        rows.append({**row, "parts": parts, "trials": max(len(records or ()), 1), "place": place})
        if records is not None:
            cell = folder / row["key"]
            cell.mkdir()
            records = [whole(record) for record in records]
            rolled = roll_up(choices["scenario"], [read_trial(record) for record in records], k=len(records))
            report = scenario_record(rolled)
            result = {**row, "started_ms": place, "report": report, "error": None, "config": CONFIG, "run_id": None}
            (cell / "result.json").write_text(json.dumps(result))
            (cell / "trials.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    known = {"cells": len(rows), "command": [], "key": "k-1", "plan": rows, "current": [row["key"] for row in rows]}
    (folder / "sweep.json").write_text(json.dumps({**known, **settings}))
    return folder


def grid(**passes):
    """Make the cells of two scenarios and two prompts for each model, of five trials of which so many passed."""
    return {
        (model, prompt, scenario, "none"): trials(passed, 5, scenario=scenario)
        for model, passed in passes.items()
        for prompt in ("v1", "v2")
        for scenario in ("s1", "s2")
    }


def test_where_two_axes_vary_each_is_compared_with_the_other_as_part_of_the_pairs(tmp_path):
    by_model, by_prompt = compare_sweep(write_planned(tmp_path / "sweep", grid(a=5, b=1)))
    assert [(one.axis, one.name, one.found.baseline) for one in (by_model, by_prompt)] == [
        ("model", "comparison", "a"),
        ("prompt", "comparison-prompt", "v1"),
    ]
    (worse,), (even,) = by_model.found.contrasts, by_prompt.found.contrasts
    assert (worse.candidate, worse.cells, worse.scenarios, worse.verdict) == ("b", 4, 2, "worse_on_this_suite")
    assert (even.candidate, even.diff, even.cells) == ("v2", 0.0, 4)
    assert by_model.found.unpaired == by_prompt.found.unpaired == []


@pytest.mark.parametrize(
    ("settings", "baselines"),
    [
        ({"by": "model"}, ["a"]),
        ({"by": "prompt", "baseline": "v2"}, ["v2"]),
        ({"baseline": "b"}, ["b", "v1"]),
        ({"enabled": False}, []),
    ],
)
def test_it_is_compared_as_configured(tmp_path, settings, baselines):
    found = compare_sweep(write_planned(tmp_path / "sweep", grid(a=5, b=1), compare=settings))
    assert [one.found.baseline for one in found] == baselines


def test_one_arm_is_compared_with_nothing(tmp_path):
    cells = {("m", "v", scenario, "none"): trials(4, 5) for scenario in "xyz"}
    folder = write_planned(tmp_path / "sweep", cells)
    assert compare_sweep(folder) == []
    assert write_reports(folder, []) == []


def test_a_cell_that_left_nothing_is_named_and_left_out(tmp_path):
    cells = grid(a=5, b=1)
    (one,) = compare_sweep(
        write_planned(tmp_path / "sweep", {**cells, ("b", "v2", "s2", "none"): None}, compare={"by": "model"})
    )
    assert [(row.arm, row.scenario, row.reason) for row in one.found.unpaired] == [
        ("b", "s2", "failed: left no result")
    ]
    assert one.found.contrasts[0].cells == 3
    assert "Left out: 1 cell that failed; the report names them." in "\n".join(one.lines())


def test_a_cell_whose_evidence_is_missing_in_both_arms_is_counted_once_and_called_that(tmp_path):
    row = {"name": "x", "severity": "capability", "passed": False, "unknown": True, "detail": "unknown: no trace"}
    cells = {
        (model, "v1", scenario, "none"): [
            {**record, "passed": False, "assertions": [row]} if scenario == "s1" else record
            for record in trials(5, 5, scenario=scenario)
        ]
        for model in ("a", "b")
        for scenario in ("s1", "s2", "s3")
        if (model, scenario) != ("b", "s3")
    }
    (one,) = compare_sweep(write_planned(tmp_path / "sweep", cells))
    said = "Left out: 1 cell in which no trial was decided (evidence missing), 1 cell without a counterpart; the report"
    assert any(said in line for line in one.lines())


def test_a_smaller_number_of_trials_asked_for_later_holds_for_the_comparison(tmp_path):
    folder = write_planned(tmp_path / "sweep", {(m, "v1", "s", "none"): trials(6, 6) for m in "ab"})
    known = json.loads((folder / "sweep.json").read_text())
    plan = [{**row, "trials": 3} for row in known["plan"]]
    (folder / "sweep.json").write_text(json.dumps({**known, "plan": plan}))
    (one,) = compare_sweep(folder)
    assert [(arm.trials, arm.asked, arm.not_measured) for arm in one.found.arms] == [(3, 3, 0)] * 2


def test_cells_of_an_earlier_command_are_no_part_of_it(tmp_path):
    folder = write_planned(tmp_path / "sweep", {**grid(a=5, b=1), **grid(c=3)})
    known = json.loads((folder / "sweep.json").read_text())
    current = [key for key in known["current"] if not key.startswith("c.")]
    (folder / "sweep.json").write_text(json.dumps({**known, "current": current}))
    assert [arm.name for arm in compare_sweep(folder)[0].arms] == ["a", "b"]


def arms(a, b, n=5, scenarios=20):
    return compare_arms(
        *(
            arm if name == "A" else [arm]
            for name, passes in (("A", a), ("B", b))
            for arm in [
                Arm.of(name, {(f"s{s}", "none"): trials(passes, n, scenario=f"s{s}") for s in range(scenarios)})
            ]
        ),
        alpha=LOOK_LEVEL,
    )


@pytest.mark.parametrize(
    ("comparison", "k", "to", "told"),
    [
        (arms(4, 2), 5, None, "stopped after 5 trials per cell: B: a difference was found"),
        (arms(4, 3, scenarios=4), 5, 10, "undecided after 5 trials per cell (B); going on to 10"),
        (arms(4, 3, scenarios=4), 10, 20, "undecided after 10 trials per cell (B); going on to 20"),
        (arms(4, 3, scenarios=4), 20, None, "stopped after 20 trials per cell: B: undecided at the last look"),
        (arms(20, 20, n=20), 5, None, "stopped after 5 trials per cell: B: they are equivalent within 5 pts"),
        (arms(1, 1, n=1, scenarios=1), 5, None, "stopped after 5 trials per cell: B: not comparable (A has 1 measured"),
    ],
)
def test_a_look_says_whether_more_trials_are_needed(comparison, k, to, told):
    found = look([comparison], k)
    assert found.k == to
    assert found.reason.startswith(told)


def test_one_undecided_candidate_is_enough_to_go_on():
    found = look([arms(4, 2), arms(4, 3, scenarios=4)], 5)
    assert found.k == 10


def test_a_stricter_level_leaves_the_intervals_at_95_percent(tmp_path):
    strict = arms(4, 3, scenarios=12).contrasts[0]
    (usual,) = compare_arms(
        Arm.of("A", {(f"s{s}", "none"): trials(4, 5, scenario=f"s{s}") for s in range(12)}),
        [Arm.of("B", {(f"s{s}", "none"): trials(3, 5, scenario=f"s{s}") for s in range(12)})],
    ).contrasts
    assert LOOK_LEVEL < strict.p_holm < 0.05
    assert (strict.verdict, usual.verdict) == ("no_detectable_difference", "worse_on_this_suite")
    assert (strict.suite, strict.population) == (usual.suite, usual.population)


class Store:
    """What stands in the store of a test."""

    def __init__(self, folder):
        from mlflow import MlflowClient

        self.client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")

    def runs(self, kind):
        found = self.client.search_runs(["1"], f"tags.`sonar.kind` = '{kind}'")
        return {run.data.tags.get("sonar.arm", run.info.run_id): run for run in found}

    def read(self, run, name):
        with open(self.client.download_artifacts(run.info.run_id, name), encoding="utf-8") as file:
            return file.read()


@pytest.fixture
def published(tmp_path):
    """Publish a sweep of two models into a store of its own."""
    tracking = {"uri": empty_store(tmp_path), "experiment": "e", "traces": "none"}
    folder = write_planned(tmp_path / "sweep", grid(a=5, b=1), tracking=tracking, compare={"by": "model"})
    assert {cell.reason for cell in publish_sweep(folder, tracker_of(folder))} == {None}
    return folder


def test_each_arm_is_a_run_that_says_how_it_compares(tmp_path, published):
    store = Store(tmp_path)
    runs = store.runs("arm")
    base, candidate = runs["model=a"], runs["model=b"]
    (parent,) = store.runs("sweep").values()
    prefix = f"compare/{base.info.run_id[:8]}/pass_rate/"
    found = {name.removeprefix(prefix): v for name, v in candidate.data.metrics.items() if name.startswith(prefix)}
    assert {"diff", "ci_low", "ci_high", "pop_ci_low", "pop_ci_high", "p_value", "p_mid", "p_worse", "p_holm"} < {
        *found
    }
    assert {"n_scenarios", "n_trials", "mde", "trials_needed"} < {*found}
    assert (found["diff"], found["n_scenarios"], found["n_trials"]) == (-0.8, 2.0, 40.0)
    tags = candidate.data.tags
    assert (tags["verdict"], tags["baseline_run_id"], tags["alpha"]) == (
        "worse_on_this_suite",
        base.info.run_id,
        "0.05",
    )
    assert (tags["errors_policy"], tags["mlflow.parentRunId"]) == ("left out", parent.info.run_id)
    assert tags["scenario_set_hash"] == base.data.tags["scenario_set_hash"]
    assert not [name for name in base.data.metrics if name.startswith("compare/")]
    assert (base.data.metrics["pass_rate"], base.data.metrics["trials_judged"]) == (1.0, 20.0)
    counts = json.loads(store.read(candidate, "counts.json"))
    assert counts["columns"][:5] == ["scenario", "fault", "also", "n", "passed"]
    assert ["s2", "none", "prompt=v2", 5, 1, 0, 0] in counts["data"]
    assert "REGRESSION on these 2 scenarios: b -80.0 pts" in parent.data.tags["mlflow.note.content"]
    assert store.read(parent, "comparison.html").startswith("<!doctype html>")
    assert json.loads(store.read(parent, "comparison.json"))["contrasts"][0]["candidate"] == "b"


def test_publishing_again_changes_no_arm_and_more_trials_take_its_place(tmp_path, published):
    before = {key: run.info.run_id for key, run in Store(tmp_path).runs("arm").items()}
    publish_sweep(published, tracker_of(published))
    assert {key: run.info.run_id for key, run in Store(tmp_path).runs("arm").items()} == before
    cell = published / "b.v1.s1.none"
    with (cell / "trials.jsonl").open("a") as file:
        file.write(json.dumps(whole(trials(6, 6, scenario="s1")[5])) + "\n")
    result, known = (json.loads(path.read_text()) for path in (cell / "result.json", published / "sweep.json"))
    result["report"] |= {"asked": 6, "k": 6}
    plan = [{**row, "trials": 6} if row["key"] == cell.name else row for row in known["plan"]]
    (cell / "result.json").write_text(json.dumps(result))
    (published / "sweep.json").write_text(json.dumps({**known, "plan": plan}))
    publish_sweep(published, tracker_of(published))
    after = Store(tmp_path).runs("arm")
    assert set(after) == set(before)
    assert after["model=a"].info.run_id == before["model=a"]
    assert after["model=b"].info.run_id != before["model=b"]
    assert after["model=b"].data.metrics["trials_judged"] == 21


def test_runs_of_arms_can_be_compared_once_more_and_the_sweep_s_run_too(tmp_path, published):
    store = Store(tmp_path)
    runs = store.runs("arm")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    both = [runs[key].info.run_id for key in ("model=a", "model=b")]
    for places in (
        [f"{one}@prompt=v1" for one in both],
        [f"{next(iter(store.runs('sweep')))}@prompt=v1", "--by=model"],
    ):
        told = CliRunner().invoke(main, ["compare", *places, "--tracking-uri", uri])
        assert told.exit_code == 0, told.output
        assert "-80.0 pts" in told.output


@pytest.mark.parametrize(("mode", "shown"), [("full", True), ("redacted", False), ("none", False)])
def test_what_may_not_leave_is_not_in_the_published_report(tmp_path, mode, shown):
    said = "write to jane@example.org"
    tracking = {"uri": empty_store(tmp_path), "experiment": "e", "traces": "none", "content": mode}
    cells = {
        (model, "v", s, "none"): [{**t, "conversation": [{**t["conversation"][0], "user": said}]} for t in rows]
        for model, passed in (("a", 5), ("b", 1))
        for s in ("s1", "s2")
        for rows in [trials(passed, 5, scenario=s)]
    }
    folder = write_planned(tmp_path / "sweep", cells, tracking=tracking)
    publish_sweep(folder, tracker_of(folder))
    store = Store(tmp_path)
    (parent,) = store.runs("sweep").values()
    page = store.read(parent, "comparison.html")
    assert ("jane@example.org" in page) is shown
    assert ("[redacted]" in page) is (mode == "redacted")
    assert "REGRESSION on these 2 scenarios: b" in page


def test_a_comparison_that_cannot_be_published_is_told_and_the_cells_are_there(tmp_path, published):
    class Full(NullTracker):
        def publish(self, cell, sweep_id):
            return "id"

        def compare(self, record, sweep_id):
            raise OSError("no space left")

    done = publish_sweep(published, Full())
    assert [cell.reason for cell in done if cell.run_id is None] == ["OSError: no space left"]


def test_nothing_is_kept_where_there_is_nothing_to_compare(tmp_path):
    class Loud(NullTracker):
        def compare(self, record, sweep_id):
            raise AssertionError("there is one arm only")

    publish_comparisons(tmp_path, [], Loud(), "")


# What follows runs the real command.


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["task.k=soon"], "task.k: expected a whole number of 1 or more, or auto; got 'soon'"),
        (["task.k=2.5"], "task.k: expected a whole number of 1 or more, or auto; got 2.5"),
        (["task.k=auto"], "task.k=auto adds trials until arms differ; name two models or prompts to compare"),
        (["task.k=auto,5", "prompt=v1,v2"], "task.k=auto holds for the whole sweep"),
        (["prompt=v1,v2", "compare.by=fault"], "compare.by: expected model, prompt, auto; got 'fault'"),
        (["prompt=v1,v2", "compare.baseline=v3"], "compare.baseline: expected one of v1, v2; got 'v3'"),
        (["compare.baseline=nope"], "compare.baseline: expected one of offline-careful, v1; got 'nope'"),
        (["compare.baseline=nope", "compare.by=prompt"], "compare.baseline: expected one of v1; got 'nope'"),
        (["prompt=v1,v2", "compare.enabled=true,false"], "expected one value, it holds for the whole sweep"),
    ],
)
def test_a_mistake_about_comparing_is_told_before_the_first_trial(tmp_path, arguments, told):
    ran = sweep(tmp_path, *arguments, "tracking=none")
    assert ran.status == 2
    (line,) = ran.err.splitlines()
    assert told in line
    assert list(tmp_path.iterdir()) == []


def test_a_baseline_without_a_candidate_is_told_before_the_first_trial(tmp_path):
    ran = sweep(tmp_path, "compare.baseline=v1", "dry_run=true")
    assert (ran.status, ran.out.count("compare.baseline=v1: there is one arm only, nothing is compared")) == (0, 1)
    off = sweep(tmp_path, "compare.baseline=nope", "compare.enabled=false", "dry_run=true")
    assert (off.status, "compare.baseline" in off.out) == (0, False)


def test_the_shipped_comparison_of_two_models_says_which_is_better_in_its_last_lines(tmp_path):
    ran = sweep(tmp_path, "+experiment=ab_model", "tracking=none", "compare.baseline=offline-hasty")
    assert ran.status == 0, ran.err
    assert "scenarios x 5 trials reveal a difference of about" in ran.err
    *_, heading, verdict, report, _, records, _ = ran.out.splitlines()
    assert heading == "Compared by model, baseline offline-hasty:"
    assert verdict.startswith("  offline-careful better: +")
    assert records.startswith("Records and transcripts: ")
    page = ran.folder / "comparison.html"
    assert report == f"  Report: {page.relative_to(tmp_path)}"
    assert "offline-careful better" in page.read_text(encoding="utf-8")
    assert "offline-careful better" in (ran.folder / "comparison.md").read_text(encoding="utf-8")


def test_two_copies_of_one_model_show_no_difference(tmp_path):
    models = tmp_path / "conf" / "model"
    models.mkdir(parents=True)
    for name in ("one", "other"):
        # The stand-in draws its luck from the model's own name: these two differ in nothing else.
        settings = ("provider: offline", f"model: {name}", "reliability: 0.9", "habit: 0.5")
        (models / f"{name}.yaml").write_text("\n".join([f"name: {name}", *settings]), encoding="utf-8")
    ran = sweep(tmp_path, "model=one,other", "prompt=v2", "scenario=glob(*)", "task.k=10", "tracking=none")
    assert ran.status == 0, ran.err
    found = json.loads((ran.folder / "comparison.json").read_text(encoding="utf-8"))["contrasts"][0]
    assert found["verdict"] in ("no_detectable_difference", "equivalent")
    assert found["flips"], "the copies were not even two"


def test_trials_are_added_until_the_arms_differ_and_what_was_finished_is_kept(tmp_path):
    few = ("prompt=v2", "scenario=order_latte,refund", "task.k=auto", "tracking=none")
    ran = sweep(tmp_path, "model=offline-careful,offline-steady", *few)
    assert ran.status == 0, ran.err
    assert "where that does not decide, 10 and then 20 trials" in ran.err
    assert "task.k=auto: undecided after 5 trials per cell (offline-steady); going on to 10" in ran.err
    assert "5 trials (5 kept)" in ran.err
    assert ran.out.splitlines()[-4].startswith("  task.k=auto: stopped after ")
    numbers = {len(read_trials(path.parent)) for path in ran.folder.glob("*/trials.jsonl")}
    assert len(numbers) == 1
    assert numbers <= {10, 20}
    known = json.loads((ran.folder / "sweep.json").read_text(encoding="utf-8"))
    assert {row["trials"] for row in known["plan"]} == numbers
    # Interrupted after its first round it goes on from there, and comes to the same.
    cut = shutil.copytree(ran.launched_in, tmp_path / "cut")
    (folder,) = (cut / "sweeps").iterdir()
    for path in folder.glob("*/trials.jsonl"):
        kept = [json.dumps(record) + "\n" for record in read_trials(path.parent)[:5]]
        path.write_text("".join(kept), encoding="utf-8")
    again = sweep(cut, "resume=last")
    assert again.status == 0, again.err
    assert again.out.replace(str(cut), "") == ran.out.replace(str(tmp_path), "")


def test_arms_that_differ_at_once_get_no_more_trials(tmp_path):
    few = ("prompt=v2", "scenario=glob(*)", "task.k=auto", "tracking=none")
    ran = sweep(tmp_path, "model=offline-careful,offline-hasty", *few)
    assert ran.status == 0, ran.err
    assert "  task.k=auto: stopped after 5 trials per cell: offline-hasty: a difference was found" in ran.out
    assert "REGRESSION: offline-hasty" in ran.out


def test_a_store_that_breaks_costs_neither_the_comparison_nor_its_publishing_afterwards(tmp_path):
    (tmp_path / "my_bots.py").write_text(BOTS, encoding="utf-8")
    few = ("prompt=v2", "scenario=order_latte,refund", "task.k=2", "tracking.experiment=e")
    ran = sweep(tmp_path, "model=offline-careful,offline-hasty", *few, "bot=mine", "bot.adapter=my_bots:Vandal")
    assert ran.status == 1
    assert "Compared by model, baseline offline-careful:" in ran.out
    (told,) = [line for line in ran.out.splitlines() if line.startswith("  Not published: ")]
    assert told.endswith(f"; afterwards: sonar-eval tracking publish {ran.folder.relative_to(tmp_path)}")
    assert (ran.folder / "comparison.html").is_file()
    empty_store(tmp_path)
    publish_sweep(ran.folder, tracker_of(ran.folder))
    assert set(Store(tmp_path).runs("arm")) == {"model=offline-careful", "model=offline-hasty"}
