"""Records are on disk before whoever made them goes on, and no write is a reason to lose one."""

import asyncio
import threading

import pytest

from fakes import MemoryStore, run
from sonar_eval.recorder import Recorder


class GatedStore(MemoryStore):
    """Write only once the gate is open; counts how many writes it was asked to do as one."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.writes = []
        self.threads = set()

    def together(self):
        return self

    def __enter__(self):
        self.writes.append(0)

    def __exit__(self, *_):
        pass

    def save_trial(self, record):
        self.begun.set()
        assert self.gate.wait(10)
        self.threads.add(threading.get_ident())
        self.writes[-1] += 1
        super().save_trial(record)


async def until_begun(store):
    assert await asyncio.to_thread(store.begun.wait, 10)


def test_what_comes_during_a_write_shares_the_next_one():
    async def story():
        store = GatedStore()
        recorder = Recorder(store)
        keeping = [asyncio.create_task(recorder.keep_trial({"index": index})) for index in range(5)]
        await until_begun(store)
        assert not any(task.done() for task in keeping)
        store.gate.set()
        await asyncio.gather(*keeping)
        assert [record["index"] for record in store.trials] == [0, 1, 2, 3, 4]
        assert store.writes in ([1, 4], [5])
        assert len(store.threads) == 1

    run(story())


def test_nobody_is_told_before_the_store_has_synced():
    synced = []

    class Syncing(GatedStore):
        def __exit__(self, *_):
            synced.append(len(self.trials))

    async def story():
        store = Syncing()
        store.gate.set()
        recorder = Recorder(store)
        for index in range(3):
            await recorder.keep_trial({"index": index})
            assert synced[-1] == index + 1

    run(story())


def test_a_record_is_kept_although_whoever_waits_for_it_is_cancelled():
    async def story():
        store = GatedStore()
        recorder = Recorder(store)
        keeping = [asyncio.create_task(recorder.keep_trial({"index": index})) for index in range(3)]
        await until_begun(store)
        for task in keeping:
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)
        store.gate.set()
        await recorder.keep_scenario({"scenario": "s"})
        return store

    store = run(story())
    assert [record["index"] for record in store.trials] == [0, 1, 2]
    assert store.scenarios == [{"scenario": "s"}]


def test_a_record_is_kept_although_the_loop_ends_before_it_is_written():
    store = GatedStore()

    async def story():
        recorder = Recorder(store)
        keeping = [asyncio.create_task(recorder.keep_trial({"index": index})) for index in range(3)]
        await until_begun(store)
        threading.Timer(0.05, store.gate.set).start()
        return keeping

    run(story())
    assert [record["index"] for record in store.trials] == [0, 1, 2]


def test_a_record_that_cannot_be_kept_does_not_cost_those_beside_it():
    class Picky(MemoryStore):
        def save_trial(self, record):
            if record["index"] == 1:
                raise ValueError("not this one")
            super().save_trial(record)

    async def story():
        store = Picky()
        recorder = Recorder(store)
        keeping = [recorder.keep_trial({"index": index}) for index in range(3)]
        told = await asyncio.gather(*keeping, return_exceptions=True)
        assert [type(answer) for answer in told] == [type(None), ValueError, type(None)]
        assert [record["index"] for record in store.trials] == [0, 2]
        await recorder.keep_trial({"index": 3})
        assert len(store.trials) == 3

    run(story())


def test_a_sync_that_fails_is_told_to_all_it_was_for():
    class Full(GatedStore):
        def __exit__(self, *_):
            raise OSError("disk full")

    async def story():
        store = Full()
        store.gate.set()
        recorder = Recorder(store)
        told = await asyncio.gather(*(recorder.keep_trial({"index": 0}) for _ in range(3)), return_exceptions=True)
        assert [str(answer) for answer in told] == ["disk full"] * 3
        with pytest.raises(OSError, match="disk full"):
            await recorder.keep_trial({"index": 1})

    run(story())
