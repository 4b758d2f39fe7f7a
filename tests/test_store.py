import threading

import pytest

from sonar_eval import JSONFileStore, NullStore
from sonar_eval.store import read_jsonl


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
    assert (tmp_path / "trials.jsonl").read_text() == '{"index": 0}\n'


def test_a_later_run_adds_to_the_file(tmp_path):
    for index in range(3):
        JSONFileStore(tmp_path).save_trial({"index": index})
    assert [record["index"] for record in records(tmp_path)] == [0, 1, 2]


def test_what_json_cannot_hold_does_not_lose_the_record(tmp_path):
    JSONFileStore(tmp_path).save_trial({"path": tmp_path, "text": "half a \ud83d character"})
    (record,) = records(tmp_path)
    assert record == {"path": str(tmp_path), "text": "half a ? character"}


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


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError, match="taken"):
        JSONFileStore(tmp_path / "taken").save_trial({"index": 0})


def test_a_null_store_keeps_nothing():
    store = NullStore()
    assert store.save_trial({"index": 0}) is None
    assert store.save_scenario({"scenario": "s"}) is None
