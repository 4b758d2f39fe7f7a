import json
import math
import threading
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pytest

from fakes import errored_trial, judged_trial
from sonar_eval import ConfigError, JSONFileStore, NullStore
from sonar_eval.records import trial_record
from sonar_eval.store import finished_trials, read_jsonl


def records(folder, name="trials.jsonl"):
    return list(read_jsonl(folder / name))


def test_records_come_back_in_order_and_one_a_line(tmp_path):
    store = JSONFileStore(tmp_path / "deep" / "down")
    store.save_trial({"index": 0, "text": "two\nlines, a café and \u2028"})
    store.save_trial({"index": 1})
    store.save_scenario({"scenario": "s"})
    assert [record["index"] for record in records(tmp_path / "deep" / "down")] == [0, 1]
    assert records(tmp_path / "deep" / "down")[0]["text"] == "two\nlines, a café and \u2028"
    assert records(tmp_path / "deep" / "down", "scenarios.jsonl") == [{"scenario": "s"}]
    assert (tmp_path / "deep" / "down" / "trials.jsonl").read_bytes().count(b"\n") == 2


def test_a_record_is_on_disk_when_the_call_returns(tmp_path):
    JSONFileStore(str(tmp_path)).save_trial({"index": 0})
    assert (tmp_path / "trials.jsonl").read_text() == '{"index":0}\n'


def test_a_later_run_adds_to_the_file(tmp_path):
    for index in range(3):
        JSONFileStore(tmp_path).save_trial({"index": index})
    assert [record["index"] for record in records(tmp_path)] == [0, 1, 2]


def test_what_json_cannot_hold_does_not_lose_the_record(tmp_path):
    JSONFileStore(tmp_path).save_trial({"path": tmp_path, "text": "half a \ud83d character"})
    (record,) = records(tmp_path)
    assert record == {"path": str(tmp_path), "text": "half a ? character"}


def test_records_saved_together_are_synced_once(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("sonar_eval.store.os.fsync", synced.append)
    store = JSONFileStore(tmp_path)
    with store.together():
        for index in range(5):
            store.save_trial({"index": index})
        assert synced == []
    assert len(synced) == 1
    store.save_trial({"index": 5})
    assert len(synced) == 2
    assert len(records(tmp_path)) == 6


def test_what_one_thread_saves_together_does_not_hold_up_another(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("sonar_eval.store.os.fsync", synced.append)
    store = JSONFileStore(tmp_path)
    with store.together():
        thread = threading.Thread(target=store.save_trial, args=({"index": 0},))
        thread.start()
        thread.join()
        assert len(synced) == 1


def test_a_folder_that_went_away_is_made_again(tmp_path):
    store = JSONFileStore(tmp_path / "a")
    (tmp_path / "a").rmdir()
    store.save_trial({"index": 0})
    assert records(tmp_path / "a") == [{"index": 0}]


def test_numbers_beyond_64_bits_are_kept_to_the_digit(tmp_path):
    JSONFileStore(tmp_path).save_trial({"amount": 10**30, "plain": 2**53 + 1})
    assert records(tmp_path) == [{"amount": 10**30, "plain": 2**53 + 1}]


def test_kinds_of_numbers_and_tuples_are_kept_as_such(tmp_path):
    class Point(NamedTuple):
        x: int
        y: int

    record = {"score": np.float64(0.25), "count": IntEnum("N", "one").one, "at": Point(1, 2), "none": math.nan}
    JSONFileStore(tmp_path).save_trial(record)
    assert records(tmp_path) == [{"score": 0.25, "count": 1, "at": [1, 2], "none": None}]
    assert "NaN" not in (tmp_path / "trials.jsonl").read_text()


def test_threads_do_not_mix_their_lines(tmp_path):
    store = JSONFileStore(tmp_path)
    start = threading.Barrier(8)

    def write(worker):
        start.wait()
        for turn in range(5):
            store.save_trial({"worker": worker, "turn": turn, "text": str(worker) * 50_000})

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = records(tmp_path)
    assert len(found) == 40
    assert all(record["text"] == str(record["worker"]) * 50_000 for record in found)


@pytest.mark.parametrize("cut", [b'{"index": 1, "te', b'{"index": 1, "text": "caf\xc3'])
def test_a_last_line_cut_off_by_a_crash_is_left_out(tmp_path, cut):
    JSONFileStore(tmp_path).save_trial({"index": 0})
    with (tmp_path / "trials.jsonl").open("ab") as file:
        file.write(cut)
    assert records(tmp_path) == [{"index": 0}]


def test_what_is_written_after_a_crash_is_whole(tmp_path):
    (tmp_path / "trials.jsonl").write_bytes(b'{"index": 0}\n{"index": 1, "te')
    JSONFileStore(tmp_path).save_trial({"index": 2})
    assert records(tmp_path) == [{"index": 0}, {"index": 2}]


def test_a_file_that_was_never_written_holds_no_records(tmp_path):
    assert records(tmp_path) == []


def test_a_folder_is_there_once_there_is_a_store(tmp_path):
    JSONFileStore(tmp_path / "deep" / "down")
    assert (tmp_path / "deep" / "down").is_dir()


def test_a_folder_that_cannot_be_made_is_an_error_before_the_first_trial(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError, match="taken"):
        JSONFileStore(tmp_path / "taken")


def test_a_null_store_keeps_nothing():
    store = NullStore()
    assert store.save_trial({"index": 0}) is None
    assert store.save_scenario({"scenario": "s"}) is None


# Going on from what was kept.


def keep(folder, *trials, scenario="s"):
    store = JSONFileStore(folder)
    for trial in trials:
        store.save_trial(trial_record(scenario, trial))


def test_finished_trials_come_back_by_scenario_and_in_trial_order(tmp_path):
    keep(tmp_path, judged_trial(1, True), judged_trial(0, False))
    keep(tmp_path, judged_trial(0, True), scenario="other")
    assert finished_trials(tmp_path) == {
        "s": [judged_trial(0, False), judged_trial(1, True)],
        "other": [judged_trial(0, True)],
    }


def test_of_several_records_of_a_trial_the_last_holds(tmp_path):
    keep(tmp_path, errored_trial(0), judged_trial(1, True), judged_trial(0, True), judged_trial(1, False))
    assert finished_trials(str(tmp_path)) == {"s": [judged_trial(0, True), judged_trial(1, False)]}


@pytest.mark.parametrize("cut", [b'{"schema_version": 1, "scen', b'{"text": "caf\xc3', b"12", b"\n"])
def test_a_trial_cut_off_by_a_crash_is_not_finished(tmp_path, cut):
    keep(tmp_path, judged_trial(0, True))
    with (tmp_path / "trials.jsonl").open("ab") as file:
        file.write(cut)
    keep(tmp_path, judged_trial(1, True))
    assert [trial.index for trial in finished_trials(tmp_path)["s"]] == [0, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 2}, "line 2: trial record of schema 2; this version reads up to 1"),
        ({"schema_version": None}, "line 2: trial record of schema None"),
        ({"outcome": "unheard of"}, "line 2: 'unheard of' is not a valid Outcome"),
        ({"conversation": None}, "line 2: "),
    ],
)
def test_a_record_that_cannot_be_read_is_told_by_its_line_and_never_left_out(tmp_path, change, said):
    keep(tmp_path, judged_trial(0, True))
    JSONFileStore(tmp_path).save_trial({**trial_record("s", judged_trial(1, True)), **change})
    with pytest.raises(ConfigError, match=said):
        finished_trials(tmp_path)


def test_a_record_that_lacks_what_it_must_have_is_told(tmp_path):
    record = trial_record("s", judged_trial(0, True))
    del record["index"]
    (tmp_path / "trials.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(ConfigError, match="line 1: lacks 'index'"):
        finished_trials(tmp_path)


def test_a_folder_without_records_holds_no_finished_trials(tmp_path):
    assert finished_trials(tmp_path / "nowhere") == {}
