"""How fast the trace ingest is: `python tests/benchmarks/ingest.py [--million] [--no-mlflow] [--no-postgresql]`.

Prints one JSON line per case. The server is a process of its own, spans count when they were answered 200, which is
when a GET shows them. Every figure is the median of several runs; the load comes from this process, over loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from captures import PROTOBUF, make_request, make_span
from databases import PostgreSQL, find_binaries
from serving import ServerProcess, listens
from sonar_eval.transcript import wire

RUNS = 5
CASES = ((1, 8, 4_000), (1, 64, 6_000), (50, 8, 500), (512, 8, 60))
"""Spans per request, connections, requests."""
MILLION = 1_000_000


def make_body(count: int, conversation: str, tenant: str = "local") -> bytes:
    """Make a request of model calls, about 750 bytes each, in a trace of its own."""
    trace = os.urandom(16).hex()
    attributes = {
        "sonar.tenant.id": tenant,
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "a-model-of-the-year",
        "gen_ai.usage.input_tokens": 101,
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": "x" * 380}]}]
        ),
    }
    spans = (
        make_span("chat", attributes, conversation=conversation, trace_id=trace, span_id=os.urandom(8).hex())
        for _ in range(count)
    )
    return make_request(*spans, resource={"service.name": "bot", "sonar.framework": "none"}).SerializeToString()


class Connection(asyncio.Protocol):
    """Send the next request as soon as the last one is answered, as cheaply as Python can."""

    def __init__(self, requests: list[bytes], done: asyncio.Future[None], answers: dict[bytes, int]) -> None:
        self._requests = requests
        self._done = done
        self._answers = answers
        self._heard = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        if self._requests:
            self._transport.write(self._requests.pop())
        else:
            self._transport.close()
            self._done.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, end, rest = self._heard.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) >= length:
            status = head[9:12]
            self._answers[status] = self._answers.get(status, 0) + 1
            self._heard = rest[length:]
            self._next()


async def load(port: int, bodies: list[bytes], connections: int, header: str = "") -> float:
    """Post the bodies; returns the seconds it took. All must be answered 200."""
    head = f"POST /v1/traces HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {PROTOBUF}\r\n{header}"
    requests = [f"{head}content-length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
    loop = asyncio.get_running_loop()
    answers: dict[bytes, int] = {}
    waiting = [loop.create_future() for _ in range(connections)]
    began = time.perf_counter()
    for done in waiting:
        await loop.create_connection(lambda done=done: Connection(requests, done, answers), "127.0.0.1", port)
    await asyncio.gather(*waiting)
    took = time.perf_counter() - began
    assert answers == {b"200": len(bodies)}, answers
    return took


def measure_writing(
    port: int, receiver: str, cases: Any = CASES, runs: int = RUNS, header: str = ""
) -> dict[int, float]:
    """Measure spans per second; returns the best case per size of request."""
    found: dict[int, float] = {}
    for per_request, connections, requests in cases:
        rates = []
        for run in range(runs):
            bodies = [make_body(per_request, f"{run}-{per_request}-{connections}-{n // 4}") for n in range(requests)]
            rates.append(per_request * requests / asyncio.run(load(port, bodies, connections, header)))
        rate = statistics.median(rates)
        found[per_request] = max(rate, found.get(per_request, 0.0))
        tell(
            receiver,
            "write",
            per_request=per_request,
            connections=connections,
            spans_per_s=round(rate),
            range=[round(min(rates)), round(max(rates))],
        )
    return found


def measure_reading(server: ServerProcess, receiver: str) -> None:
    """Measure a GET of 100 spans, and how soon a long poll sees the last span of a conversation."""
    asyncio.run(load(server.port, [make_body(50, "hundred") for _ in range(2)], 1))
    with server.place() as place:
        times, cpu_s = [], server.cpu_s()
        for _ in range(500):
            began = time.perf_counter()
            answer = place.read("hundred", tenant="local", key=None)
            times.append((time.perf_counter() - began) * 1000)
            assert len(answer.json()["spans"]) == 100
        tell(
            receiver,
            "GET of 100 spans",
            median_ms=round(statistics.median(times), 2),
            p99_ms=percentile(times, 99),
            server_cpu_ms=round((server.cpu_s() - cpu_s) / 500 * 1000, 2),
        )
    delays = asyncio.run(notice(server.port))
    tell(
        receiver,
        "last span stored to long poll answered",
        median_ms=round(statistics.median(delays), 2),
        p99_ms=percentile(delays, 99),
    )


async def notice(port: int) -> list[float]:
    """Measure how long after the answer to the last span a long poll for the count is answered."""
    delays = []
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client:
        for number in range(200):
            talk, span_id = f"notice-{number}", os.urandom(8).hex()
            told = {wire.MARKER_STARTED: 1, wire.MARKER_ENDED: 1, wire.MARKER_XOR: span_id, wire.MARKER_PROCESS: "p"}
            ending = make_span(wire.MARKER_NAME, told, conversation=talk, trace_id=os.urandom(16).hex())
            last = make_span("last", conversation=talk, trace_id=os.urandom(16).hex(), span_id=span_id)
            headers = {"content-type": PROTOBUF}
            await client.post("/v1/traces", content=make_request(ending).SerializeToString(), headers=headers)
            url = f"/v1/conversations/{talk}?tenant=local&wait=20&min_level=3"
            asked = asyncio.create_task(client.get(url))
            await asyncio.sleep(0.03)
            await client.post("/v1/traces", content=make_request(last).SerializeToString(), headers=headers)
            stored = time.perf_counter()
            answer = await asked
            delays.append((time.perf_counter() - stored) * 1000)
            assert answer.json()["completeness"]["level"] == 3
    return delays


def measure_a_million(url: str, folder: Path) -> None:
    """Measure what is resident after a million spans, in a server that did nothing else."""
    with ServerProcess(url, log=folder / "log") as server:
        idle = server.resident_mb()
        began = time.perf_counter()
        for part in range(100):
            bodies = [make_body(50, f"talk-{part}-{n // 2}") for n in range(200)]
            asyncio.run(load(server.port, bodies, 8))
        took = time.perf_counter() - began
        with server.place() as place:
            began = time.perf_counter()
            page = place.get("/v1/conversations", tenant="local", key=None).json()
            listed_ms = (time.perf_counter() - began) * 1000
            assert len(page["conversations"]) == 100
            began = time.perf_counter()
            assert len(place.spans("talk-50-50", tenant="local", key=None)) == 100
            read_ms = (time.perf_counter() - began) * 1000
        tell(
            "sqlite",
            "a million spans",
            resident_mb=round(server.resident_mb()),
            idle_mb=round(idle),
            peak_mb=round(server.resident_mb(peak=True)),
            minutes=round(took / 60, 1),
            list_ms=round(listed_ms),
            get_ms=round(read_ms, 1),
        )


@contextmanager
def mlflow_server(folder: Path) -> Iterator[tuple[int, str]]:
    """Start MLflow's server with one worker on SQLite; gives its port and the header its OTLP endpoint wants."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--port",
        str(port),
        "--workers",
        "1",
        "--backend-store-uri",
        f"sqlite:///{folder / 'mlflow.db'}",
        "--artifacts-destination",
        str(folder),
    ]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not listens(port) and time.monotonic() < deadline:
            time.sleep(0.2)
        url = f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/create"
        made = httpx.post(url, json={"name": "spans"}, trust_env=False, timeout=60).raise_for_status().json()
        yield port, f"x-mlflow-experiment-id: {made['experiment_id']}\r\n"
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def tell(receiver: str, case: str, **figures: Any) -> None:
    sys.stdout.write(json.dumps({"receiver": receiver, "case": case, **figures}) + "\n")
    sys.stdout.flush()


def percentile(values: list[float], percent: int) -> float:
    return round(statistics.quantiles(values, n=100)[percent - 1], 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("million", "no-mlflow", "no-postgresql"):
        parser.add_argument(f"--{option}", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {"sqlite": f"sqlite:///{folder / 'spans.db'}"}
        binaries = find_binaries()
        if binaries is not None and not options.no_postgresql:
            postgresql = PostgreSQL(binaries, durable=True)
            stack.callback(postgresql.stop)
            postgresql.start()
            urls["postgresql"] = postgresql.new_database()
        rates = {}
        for receiver, url in urls.items():
            with ServerProcess(url, log=folder / "log") as server:
                rates[receiver] = measure_writing(server.port, receiver)
                measure_reading(server, receiver)
                tell(receiver, "after all this", resident_mb=round(server.resident_mb()))
        if not options.no_mlflow:
            with mlflow_server(folder) as (port, header):
                peer = measure_writing(port, "mlflow", ((1, 4, 60), (50, 4, 16), (512, 4, 4)), 3, header)
            tell("sqlite", "times MLflow", **{f"of {size}": round(rates["sqlite"][size] / peer[size]) for size in peer})
        if options.million:
            measure_a_million(f"sqlite:///{folder / 'million.db'}", folder)


if __name__ == "__main__":
    main()
