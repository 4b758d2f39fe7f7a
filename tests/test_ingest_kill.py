"""What was answered 200 is there after the server died, once; what a server that is stopped has taken as well."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from captures import PROTOBUF, make_request, make_span
from serving import PATIENCE_S, ServerProcess, slow, wait_for

pytest_plugins = ["databases"]

WRITERS = 6


class Writer(threading.Thread):
    """Sends spans of a conversation of its own until the server is gone, and remembers what was answered 200."""

    def __init__(self, port: int, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.conversation = name
        self.confirmed: set[str] = set()
        self.sent: set[str] = set()
        self.answers: set[int] = set()
        self.first_answer = threading.Event()
        self._port = port
        self._random = random.Random(seed)

    def run(self) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{self._port}", trust_env=False, timeout=PATIENCE_S) as client:
            while True:
                ids = [os.urandom(8).hex() for _ in range(self._random.choice((1, 1, 7, 60)))]
                spans = [make_span(conversation=self.conversation, span_id=span_id) for span_id in ids]
                self.sent |= set(ids)
                body = make_request(*spans).SerializeToString()
                try:
                    answer = client.post("/v1/traces", content=body, headers={"content-type": PROTOBUF})
                except httpx.TransportError:
                    return
                self.answers.add(answer.status_code)
                if answer.status_code == 200:
                    self.confirmed |= set(ids)
                self.first_answer.set()


def start_writers(server: ServerProcess, seed: int) -> list[Writer]:
    writers = [Writer(server.port, f"talk-{seed}-{number}", seed * 100 + number) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        assert writer.first_answer.wait(PATIENCE_S)
    return writers


def check(server: ServerProcess, writers: list[Writer]) -> None:
    """Compare what is there with what was answered."""
    with server.place() as place:
        for writer in writers:
            writer.join(PATIENCE_S)
            answer = place.read(writer.conversation, tenant="local", key=None)
            assert answer.status_code == 200, answer.text
            found = [span["span_id"] for span in answer.json()["spans"]]
            assert len(found) == len(set(found)), "a span is there twice"
            assert writer.confirmed <= set(found), "a span that was confirmed is lost"
            assert set(found) <= writer.sent
            assert not any(span["conflict"] for span in answer.json()["spans"])


def kill_under_load(url: str, folder: Path, times: int) -> None:
    log = folder / "log"
    written = 0
    for seed in range(times):
        with ServerProcess(url, log=log) as server:
            writers = start_writers(server, seed)
            time.sleep(random.Random(seed).uniform(0.0, 0.7))
            server.kill()
        with ServerProcess(url, log=log) as server:
            check(server, writers)
            assert server.stop() in (0, -15)
        written += sum(len(writer.confirmed) for writer in writers)
        assert {status for writer in writers for status in writer.answers} == {200}
    assert written > 50 * times


def test_what_was_confirmed_outlives_kill_9(database_url, tmp_path):
    kill_under_load(database_url, tmp_path, 2)


@slow
def test_what_was_confirmed_outlives_kill_9_twenty_times(database_url, tmp_path):
    kill_under_load(database_url, tmp_path, 20)


def test_a_server_that_is_stopped_loses_nothing_of_what_it_confirmed(database_url, tmp_path):
    with ServerProcess(database_url, log=tmp_path / "log") as server:
        writers = start_writers(server, 77)
        time.sleep(0.3)
        began = time.monotonic()
        assert server.stop() in (0, -15)
        assert time.monotonic() - began < 10
    with ServerProcess(database_url, log=tmp_path / "log") as server:
        check(server, writers)
    # Nobody was told anything but that it is stored, or nothing at all.
    assert {status for writer in writers for status in writer.answers} == {200}
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_server_that_is_interrupted_at_the_keyboard_ends_well(tmp_path):
    with ServerProcess(f"sqlite:///{tmp_path / 'spans.db'}", log=tmp_path / "log") as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE_S) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_request_under_way_is_finished_before_the_server_stops(database_url, tmp_path):
    body = make_request(make_span(conversation="slow")).SerializeToString()
    halves = [body[:50], body[50:]]
    stopping = threading.Event()

    def slowly() -> Iterator[bytes]:
        yield halves[0]
        assert stopping.wait(PATIENCE_S)
        time.sleep(0.5)
        yield halves[1]

    answers: list[Any] = []
    with ServerProcess(database_url, log=tmp_path / "log") as server:

        def send() -> None:
            headers = {"content-type": PROTOBUF, "content-length": str(len(body))}
            url = f"http://127.0.0.1:{server.port}/v1/traces"
            answers.append(httpx.post(url, content=slowly(), headers=headers, trust_env=False))

        sender = threading.Thread(target=send)
        sender.start()
        time.sleep(0.3)
        server.process.terminate()
        stopping.set()
        sender.join(PATIENCE_S)
        server.process.wait(PATIENCE_S)
    assert [answer.status_code for answer in answers] == [200]
    with ServerProcess(database_url, log=tmp_path / "log") as server, server.place() as place:
        assert len(place.spans("slow", tenant="local", key=None)) == 1


def test_those_who_wait_are_answered_when_the_server_stops(database_url, tmp_path):
    answers: list[Any] = []
    with ServerProcess(database_url, log=tmp_path / "log") as server, server.place() as place:
        assert place.post(make_request(make_span(conversation="c")), key=None).status_code == 200

        def ask(conversation: str) -> None:
            url = f"http://127.0.0.1:{server.port}/v1/conversations/{conversation}?tenant=local&wait=25&first=25"
            answers.append(httpx.get(url, trust_env=False, timeout=PATIENCE_S))

        askers = [threading.Thread(target=ask, args=(name,)) for name in ("c", "never")]
        for asker in askers:
            asker.start()
        time.sleep(0.5)
        began = time.monotonic()
        assert server.stop() in (0, -15)
        for asker in askers:
            asker.join(PATIENCE_S)
        assert time.monotonic() - began < 5
    told = {answer.status_code: answer.json() for answer in answers}
    assert sorted(told) == [200, 404]
    assert told[200]["completeness"]["complete"] is False


def test_a_second_server_on_the_same_database_sees_and_adds(database_url, tmp_path):
    with (
        ServerProcess(database_url, log=tmp_path / "log1") as one,
        ServerProcess(database_url, log=tmp_path / "log2") as two,
        one.place() as here,
        two.place() as there,
    ):
        for number in range(20):
            place = (here, there)[number % 2]
            span = make_span(conversation="c", span_id=f"{number + 1:016x}")
            assert place.post(make_request(span), key=None).status_code == 200
        wait_for(lambda: len(here.spans("c", tenant="local", key=None)) == 20, "all spans")
        # What one has taken is no quiet for the other.
        time.sleep(0.5)
        assert place.post(make_request(make_span(conversation="c")), key=None).status_code == 200
        for each in (here, there):
            said = each.read("c", tenant="local", key=None, quiet=0.4).json()["completeness"]
            assert said["quiet_ms"] < 400
        assert len(there.spans("c", tenant="local", key=None)) == 21
