"""Memory stays bounded whatever is thrown at the server; it is a process of its own, and its resident set is read."""

from __future__ import annotations

import gzip
import os
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from captures import JSON, PROTOBUF, make_request, make_span
from serving import PATIENCE_S, ServerProcess, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

IDLE_MB = 110
BUSY_MB = 300


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(f"sqlite:///{tmp_path / 'spans.db'}", log=tmp_path / "log") as server:
        assert server.resident_mb() < IDLE_MB
        yield server


def post(server: ServerProcess, bodies: list[bytes], content_type: str = PROTOBUF, **headers: str) -> set[int]:
    """Post one body after the other over one connection; what is answered 503 comes again."""
    named = {"content-type": content_type, **{name.replace("_", "-"): value for name, value in headers.items()}}
    seen = set()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=PATIENCE_S) as client:
        for body in bodies:
            answer = client.post("/v1/traces", content=body, headers=named)
            while answer.status_code == 503:
                assert answer.headers["retry-after"] == "1"
                time.sleep(0.2)
                answer = client.post("/v1/traces", content=body, headers=named)
            seen.add(answer.status_code)
    return seen


@pytest.mark.parametrize("encoding", [PROTOBUF, JSON])
def test_bombs_do_not_grow(server, encoding):
    bomb = gzip.compress(bytes(200 * 1024 * 1024), 9)
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(lambda _: post(server, [bomb, bomb], encoding, content_encoding="gzip"), range(8)))
    assert seen == [{413}] * 8
    assert server.resident_mb(peak=True) < BUSY_MB


def test_sixty_four_exporters_at_once_are_served_in_bounded_memory(server):
    def batches(exporter: int) -> list[bytes]:
        return [
            make_request(
                *(
                    make_span(
                        "chat",
                        {"gen_ai.output.messages": "x" * 500},
                        conversation=f"talk-{exporter}",
                        trace_id=f"{exporter + 1:032x}",
                        span_id=os.urandom(8).hex(),
                    )
                    for _ in range(256)
                )
            ).SerializeToString()
            for _ in range(2)
        ]

    bodies = [batches(exporter) for exporter in range(64)]
    with ThreadPoolExecutor(64) as pool:
        seen = list(pool.map(lambda mine: post(server, mine), bodies))
    assert seen == [{200}] * 64
    assert server.resident_mb(peak=True) < BUSY_MB
    with server.place() as place:
        for exporter in (0, 63):
            assert len(place.spans(f"talk-{exporter}", tenant="local", key=None)) == 512


def test_large_bodies_that_do_not_fit_together_are_told_to_come_again(server):
    """Sixteen senders begin 15 MB each and stop in the middle: what is held is bounded, and the rest is told 503."""
    links = []
    try:
        for _ in range(16):
            link = socket.create_connection(("127.0.0.1", server.port))
            links.append(link)
            head = f"POST /v1/traces HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {PROTOBUF}\r\n"
            link.sendall(f"{head}content-length: {15 * 1024 * 1024}\r\n\r\n".encode())
            link.setblocking(False)
        piece, left = bytes(64 * 1024), dict.fromkeys(range(16), 10 * 1024 * 1024)
        deadline = time.monotonic() + 3
        while left and time.monotonic() < deadline:
            for number in list(left):
                try:
                    left[number] -= links[number].send(piece)
                except BlockingIOError:
                    continue
                except ConnectionError:
                    left[number] = 0
                if left[number] <= 0:
                    del left[number]
        assert server.resident_mb(peak=True) < BUSY_MB
        with server.place() as place:
            assert place.get("/healthz", key=None).status_code == 200
            assert 'status="503"' in place.get("/metrics", key=None).text
    finally:
        for link in links:
            link.close()


def test_idle_and_dawdling_connections_are_closed_and_too_many_are_refused(tmp_path):
    import resource

    from sonar_eval.ingest.protocol import MAX_CONNECTIONS

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    links = []
    try:
        with ServerProcess(f"sqlite:///{tmp_path / 'spans.db'}", log=tmp_path / "log") as server:
            links = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MAX_CONNECTIONS)]
            for link in links[:10]:
                link.sendall(b"POST /v1/traces HTTP/1.1\r\nhost: ")
            wait_for(lambda: _is_full(server.port), "the server to be full")
            # Nobody finished a request's head in time.
            wait_for(lambda: not _is_full(server.port), "the server to be free again")
            links[0].settimeout(5)
            assert links[0].recv(100) == b""
            with server.place() as place:
                assert place.post(make_request(make_span()), key=None).status_code == 200
            assert server.resident_mb(peak=True) < BUSY_MB
    finally:
        for link in links:
            link.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _is_full(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.settimeout(0.5)
        try:
            return link.recv(1000).startswith(b"HTTP/1.1 503 ")
        except TimeoutError:
            return False
