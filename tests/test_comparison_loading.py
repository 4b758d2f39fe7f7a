"""Arms by what the command line names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulated import trials, write_sweep
from sonar_eval import ConfigError
from sonar_eval.cli import main
from sonar_eval.comparison.arms import load_arms
from sonar_eval.report import CellKey
from sonar_eval.tracking import CellRecord
from sonar_eval.tracking.mlflow import MLflowTracker

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")


def cells(models=("m1", "m2"), prompts=("v1",), scenarios=("s0", "s1"), faults=("none",)):
    return {
        (model, prompt, scenario, fault): trials(5 - models.index(model), 5, scenario=scenario)
        for model in models
        for prompt in prompts
        for scenario in scenarios
        for fault in faults
    }


@pytest.fixture
def sweep(tmp_path):
    return str(write_sweep(tmp_path / "sweep", cells(), command=["-m", "model=m1,m2"]))


def loaded(*specs, **settings):
    return [(one.arm.name, len(one.arm.cells)) for one in load_arms(specs, **settings)]


def test_the_models_of_a_sweep_are_its_arms_in_the_order_of_the_sweep(sweep):
    assert loaded(sweep, by="model") == [("m1", 2), ("m2", 2)]


def test_parts_of_a_sweep_are_named_behind_it_or_after_it(sweep):
    assert loaded(f"{sweep}@model=m2", f"{sweep}@model=m1,scenario=s0") == [("m2", 2), ("m1,s0", 1)]
    assert loaded(sweep, "model=m2", "model=m1") == [("m2", 2), ("m1", 2)]


def test_sweeps_of_one_variant_are_arms_whatever_their_model_is_called(tmp_path):
    old = write_sweep(tmp_path / "old", cells(models=("gpt-4",)))
    new = write_sweep(tmp_path / "new", cells(models=("gpt-4-renamed",)))
    one, other = load_arms([str(old), str(new)])
    assert [one.arm.name, other.arm.name] == ["gpt-4 v1", "gpt-4-renamed v1"]
    assert one.arm.cells.keys() == other.arm.cells.keys()


def test_arms_of_one_name_are_told_apart_by_their_place(tmp_path):
    for name in ("monday", "tuesday"):
        write_sweep(tmp_path / name, cells(models=("m1",)))
    assert loaded(str(tmp_path / "monday"), str(tmp_path / "tuesday")) == [
        ("m1 v1 (monday)", 2),
        ("m1 v1 (tuesday)", 2),
    ]


def test_a_single_cell_is_an_arm(tmp_path):
    folder = write_sweep(tmp_path / "sweep", cells(models=("m1",), scenarios=("s0",)))
    (arm,) = load_arms([str(folder / "m1.v1.s0.none")])
    assert arm.arm.cells[CellKey("s0", "none")].n == 5


def test_with_two_prompts_the_models_are_compared_prompt_by_prompt(tmp_path):
    folder = write_sweep(tmp_path / "sweep", cells(prompts=("v1", "v2"), scenarios=("s0",)))
    first, _ = load_arms([str(folder)], by="model")
    assert set(first.arm.cells) == {CellKey("s0", "none", "prompt=v1"), CellKey("s0", "none", "prompt=v2")}


def test_a_failed_cell_and_an_early_stop_are_kept_as_such(tmp_path):
    folder = write_sweep(tmp_path / "sweep", cells(models=("m1",)))
    broken, stopped = folder / "m1.v1.s0.none", folder / "m1.v1.s1.none"
    (broken / "trials.jsonl").unlink()
    result = json.loads((broken / "result.json").read_text())
    (broken / "result.json").write_text(json.dumps({**result, "report": None, "error": "no adapter"}))
    result = json.loads((stopped / "result.json").read_text())
    (stopped / "result.json").write_text(json.dumps({**result, "report": {"asked": 5, "stopped_early": True}}))
    (arm,) = load_arms([str(folder)])
    assert arm.arm.cells[CellKey("s0")].error == "no adapter"
    assert arm.arm.cells[CellKey("s1")].stopped


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (["nowhere"], "neither a folder of results nor the id of an MLflow run"),
        (["{empty}"], "holds no results"),
        (["{sweep}"], "holds several values of model: m1, m2; compare them with --by model"),
        (["{sweep}@model=m3"], "has no cell with model=m3; it has model: m1, m2"),
        (["model=m1"], "Name the folder of a sweep before it"),
        (["{sweep}", "model="], "expected key=value"),
        (["0123456789abcdef0123456789abcdef"], "there is no store sqlite:///mlflow.db"),
        (["{future}"], "has a record of schema 99"),
        (["{broken}"], "cannot be read"),
    ],
)
def test_what_names_no_arm_is_told_in_one_line(tmp_path, monkeypatch, sweep, specs, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    future = write_sweep(tmp_path / "future", {("m", "v", "s", "none"): trials(1, 1, schema_version=99)})
    broken = write_sweep(tmp_path / "broken", cells())
    (broken / "m1.v1.s0.none" / "result.json").write_text("{")
    places = {"empty": tmp_path / "empty", "sweep": sweep, "future": future, "broken": broken}
    with pytest.raises(ConfigError, match=said):
        load_arms([spec.format(**places) for spec in specs])


def test_the_command_compares_prints_and_writes(tmp_path, sweep):
    told = CliRunner().invoke(
        main,
        [
            "compare",
            sweep,
            "--by",
            "model",
            "--stats",
            "--json",
            f"{tmp_path}/c.json",
            "--markdown",
            f"{tmp_path}/c.md",
        ],
    )
    assert told.exit_code == 0, told.output
    assert "m1 (baseline)" in told.output
    assert "p (Holm)" in told.output
    assert json.loads((tmp_path / "c.json").read_text())["contrasts"][0]["candidate"] == "m2"
    assert (tmp_path / "c.md").read_text().startswith("## Comparison")


def test_the_command_writes_a_page_and_plots(tmp_path, sweep):
    asked = ["--by", "model", "--html", f"{tmp_path}/out/report.html", "--png", f"{tmp_path}/out/plots"]
    told = CliRunner().invoke(main, ["compare", sweep, *asked])
    assert told.exit_code == 0, told.output
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Trial 5: passed → not passed" in page
    drawn = sorted(path.name for path in (tmp_path / "out" / "plots").iterdir())
    assert drawn == ["heatmap.png", "intervals.png"]


def test_a_comparison_that_tells_nothing_exits_2_and_is_written_all_the_same(tmp_path):
    folder = write_sweep(tmp_path / "sweep", {("m1", "v1", "s", "none"): trials(4, 4, errors=1)})
    other = write_sweep(tmp_path / "other", {("m2", "v1", "s", "none"): trials(5, 5)})
    told = CliRunner().invoke(main, ["compare", str(other), str(folder), "--json", f"{tmp_path}/c.json"])
    assert told.exit_code == 2
    assert "Not comparable: 1 of 5 trials of m1 v1 errored" in told.output
    assert json.loads((tmp_path / "c.json").read_text())["contrasts"][0]["verdict"] == "not_comparable"


def test_plots_that_cannot_be_written_are_told_in_one_line(tmp_path, sweep):
    (tmp_path / "file").write_text("in the way")
    told = CliRunner().invoke(main, ["compare", sweep, "--by", "model", "--png", f"{tmp_path}/file/plots"])
    assert told.exit_code == 2
    assert f"sonar-eval: cannot write to {tmp_path}/file/plots" in told.output


def test_one_arm_is_no_comparison(sweep):
    told = CliRunner().invoke(main, ["compare", f"{sweep}@model=m1"])
    assert (told.exit_code, told.output.count("\n")) == (2, 1)
    assert "a comparison needs two arms" in told.output


def rewrite(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def planned(folder, *current):
    """Say in a sweep's folder which cells were asked for last."""
    rows = [
        {
            "key": key,
            "choices": dict(zip(("model", "prompt", "scenario", "fault"), key.split(".")[:4], strict=True)),
            "varies": {},
            "trials": 5,
            "place": place,
        }
        for place, key in enumerate(current)
    ]
    rewrite(folder / "sweep.json", current=list(current), plan=rows)


def test_trials_beyond_those_asked_for_last_are_left_out(sweep):
    cell = f"{sweep}/m1.v1.s0.none"
    rewrite(Path(cell, "result.json"), report={"asked": 3})
    (arm,) = load_arms([cell])
    (found,) = arm.arm.cells.values()
    assert (found.n, found.asked, found.not_measured) == (3, 3, 0)
    Path(cell, "result.json").unlink()
    (arm,) = load_arms([cell])
    assert [found.n for found in arm.arm.cells.values()] == [5]


def test_cells_of_earlier_configurations_are_left_out_and_counted_in_one_line(tmp_path, sweep):
    shutil.copytree(f"{sweep}/m1.v1.s0.none", f"{sweep}/m1.v1.s0.none.before")
    planned(Path(sweep), *(f"{model}.v1.{scenario}.none" for model in ("m1", "m2") for scenario in ("s0", "s1")))
    told = CliRunner().invoke(main, ["compare", sweep, "--by", "model"])
    assert told.exit_code == 0, told.output
    assert told.stderr == f"{sweep}: 1 cell of earlier configurations left out\n"
    told = CliRunner().invoke(main, ["gate", "--baseline", f"{sweep}@model=m1", "--candidate", f"{sweep}@model=m1"])
    assert (told.exit_code, told.stderr.count("left out")) == (0, 1)


def test_a_cell_that_was_asked_for_and_left_nothing_is_known(sweep):
    planned(Path(sweep), "m1.v1.s0.none", "m1.v1.s9.none")
    (arm,) = load_arms([sweep])
    assert arm.arm.cells[CellKey("s9")].error == "left no result"
    assert arm.source.left_out == 3


def judged_again(cell, name, passes):
    """Write a cell's trials judged again below it, as rejudging does."""
    folder = cell / name
    folder.mkdir()
    result = json.loads((cell / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "varies": {"judged": name}}))
    records = trials(passes, 5, scenario=result["choices"]["scenario"])
    (folder / "trials.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_two_judgings_of_the_same_trials_are_arms(sweep):
    cell = Path(sweep, "m1.v1.s0.none")
    again, once_more = judged_again(cell, "rejudged-1", 3), judged_again(cell, "rejudged-2", 1)
    arms = load_arms([str(cell), str(again), str(once_more)])
    assert [list(one.arm.cells) for one in arms] == [[CellKey("s0")]] * 3
    assert [one.arm.name for one in arms] == [f"m1 v1 ({name})" for name in (cell.name, "rejudged-1", "rejudged-2")]
    told = CliRunner().invoke(main, ["compare", str(cell), str(again)])
    assert told.exit_code == 0, told.output


def test_judgings_are_paired_by_their_cell_and_not_by_their_number(sweep):
    one, other = (judged_again(Path(sweep, f"{model}.v1.s0.none"), name, 3) for model, name in NUMBERED)
    first, second = load_arms([str(one), str(other)])
    assert list(first.arm.cells) == list(second.arm.cells) == [CellKey("s0")]
    assert [first.arm.name, second.arm.name] == ["m1 v1", "m2 v1"]


NUMBERED = [("m1", "rejudged-1"), ("m2", "rejudged-2")]


def test_arms_of_one_name_in_folders_of_one_name_are_told_apart_by_where_they_lie(tmp_path):
    places = [str(write_sweep(tmp_path / name / "sweep", cells(models=("m1",)))) for name in ("a", "b")]
    assert [name for name, _ in loaded(*places)] == [f"m1 v1 (sweep) ({place})" for place in places]


def test_in_mlflow_what_was_judged_again_is_no_part_of_the_sweep_and_has_a_name_of_its_own(tmp_path):
    folder = write_sweep(tmp_path / "sweep", cells(models=("m1",)))
    judged_again(folder / "m1.v1.s0.none", "rejudged-1", 2)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracker = MLflowTracker(uri, "e")
    sweep_id = tracker.start_sweep("a-sweep", "sonar-eval sweep")
    for result in sorted(folder.glob("**/result.json")):
        name = result.parent.name
        tracker.publish(CellRecord(name, name, {}, {}, result.parent), sweep_id)
    assert loaded(sweep_id, tracking_uri=uri) == [("m1 v1", 2)]
    (again,) = load_arms([f"{sweep_id}@judged=rejudged-1"], tracking_uri=uri)
    assert [cell.passes for cell in again.arm.cells.values()] == [2]


def test_in_mlflow_too_cells_of_earlier_configurations_are_left_out(tmp_path):
    folder = write_sweep(tmp_path / "sweep", cells(models=("m1",), scenarios=("s0",)))
    before = shutil.copytree(folder / "m1.v1.s0.none", folder / "before")
    for cell in (folder / "m1.v1.s0.none", before):
        rewrite(cell / "result.json", key=cell.name)
    judged_again(folder / "m1.v1.s0.none", "rejudged-1", 2)
    rewrite(folder / "m1.v1.s0.none" / "rejudged-1" / "result.json", key="m1.v1.s0.none.rejudged-1")
    planned(folder, "m1.v1.s0.none")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracker = MLflowTracker(uri, "e")
    sweep_id = tracker.start_sweep("a-sweep", "sonar-eval sweep")
    tracker.keep_file(sweep_id, folder / "sweep.json")
    for result in sorted(folder.glob("**/result.json")):
        tracker.publish(CellRecord(result.parent.name, result.parent.name, {}, {}, result.parent), sweep_id)
    (arm,) = load_arms([sweep_id], tracking_uri=uri)
    assert (list(arm.arm.cells), arm.source.left_out) == ([CellKey("s0")], 1)
    (again,) = load_arms([f"{sweep_id}@judged=rejudged-1"], tracking_uri=uri)
    assert [cell.passes for cell in again.arm.cells.values()] == [2]


def test_runs_in_mlflow_are_arms(tmp_path):
    folder = write_sweep(tmp_path / "sweep", cells())
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracker = MLflowTracker(uri, "e")
    sweep_id = tracker.start_sweep("a-sweep", "sonar-eval sweep")
    run_ids = [
        tracker.publish(CellRecord(cell.name, cell.name, {}, {}, cell), sweep_id)
        for cell in sorted(folder.iterdir())
        if cell.is_dir()
    ]
    assert loaded(sweep_id, by="model", tracking_uri=uri) == [("m1", 2), ("m2", 2)]
    assert loaded(run_ids[0], run_ids[2], tracking_uri=uri) == [("m1 v1", 1), ("m2 v1", 1)]
    with pytest.raises(ConfigError, match="MLflow at"):
        load_arms(["0" * 32], tracking_uri=uri)
