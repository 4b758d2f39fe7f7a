"""Real ingest servers on loopback: in a thread of the tests, or in a process that may be killed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.rpc.status_pb2 import Status as RPCStatus
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from captures import JSON, PROTOBUF, as_json
from sonar_eval.ingest.app import IngestApp
from sonar_eval.ingest.server import listen, make_server
from sonar_eval.transcript.wire import conversation_path

ACME, OTHER = "key-of-acme", "key-of-other"
PATIENCE_S = 30.0


@dataclass
class Place:
    """Where an ingest listens, and what one may do there."""

    port: int
    client: httpx.Client

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(
        self,
        body: ExportTraceServiceRequest | bytes,
        encoding: str = PROTOBUF,
        *,
        key: str | None = ACME,
        **headers: Any,
    ) -> httpx.Response:
        """Post a trace request in either encoding; bytes go as they are."""
        content = body if isinstance(body, bytes) else encode(body, encoding)
        named = {"content-type": encoding, **({"x-sonar-api-key": key} if key is not None else {})}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post("/v1/traces", content=content, headers=named)

    def read(self, conversation: str, *, tenant: str = "acme", key: str | None = ACME, **params: Any) -> httpx.Response:
        """Ask for a conversation."""
        return self.get(conversation_path(conversation), tenant=tenant, key=key, **params)

    def get(self, path: str, *, key: str | None = ACME, **params: Any) -> httpx.Response:
        headers = {"x-sonar-api-key": key} if key is not None else {}
        return self.client.get(path, params=params, headers=headers)

    def spans(self, conversation: str, **where: Any) -> list[dict[str, Any]]:
        """Return the spans of a conversation, none when it is not there."""
        answer = self.read(conversation, **where)
        assert answer.status_code in (200, 404), answer.text
        found: list[dict[str, Any]] = answer.json().get("spans", [])
        return found

    def names(self, conversation: str, **where: Any) -> list[str]:
        return [span["name"] for span in self.spans(conversation, **where)]

    def metric(self, name: str, label: str) -> int:
        """Return one counter."""
        found = re.search(rf"^{name}{{{re.escape(label)}}} (\d+)$", self.get("/metrics").text, re.MULTILINE)
        return int(found[1]) if found else 0

    def talk(self, *parts: bytes, patience_s: float = 5.0) -> bytes:
        """Send bytes as they are, one part after the other, and return all that comes until silence or the end."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience_s) as link:
            for part in parts:
                link.sendall(part)
            link.settimeout(0.4)
            heard = b""
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline:
                try:
                    more = link.recv(65536)
                except TimeoutError:
                    if heard:
                        break
                    continue
                except ConnectionResetError:
                    break
                if not more:
                    break
                heard += more
        return heard


# For a test, or one of its parameters, that runs only when it is asked for by `-m slow`.
SLOW = (
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif("'slow' not in (config.getoption('markexpr') or '')", reason="takes minutes: -m slow"),
)


def slow(test: Any) -> Any:
    """Mark a test that runs only when it is asked for by `-m slow`."""
    for mark in SLOW:
        test = mark(test)
    return test


def encode(request: ExportTraceServiceRequest, encoding: str) -> bytes:
    """Write a request in either encoding."""
    if encoding == PROTOBUF:
        return request.SerializeToString()
    import json

    return json.dumps(as_json(request)).encode()


def reason(answer: httpx.Response) -> str:
    """Read the google.rpc.Status of a refusal, in whichever encoding it came."""
    if answer.headers["content-type"] == PROTOBUF:
        return RPCStatus.FromString(answer.content).message
    assert answer.headers["content-type"] == JSON
    return str(answer.json()["message"])


def partial(answer: httpx.Response) -> tuple[int, str]:
    """Read how many spans were rejected, and why."""
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"] == PROTOBUF:
        said = ExportTraceServiceResponse.FromString(answer.content).partial_success
        return said.rejected_spans, said.error_message
    told = answer.json().get("partialSuccess", {})
    return int(told.get("rejectedSpans", 0)), told.get("errorMessage", "")


@contextmanager
def serving(app: IngestApp) -> Iterator[Place]:
    """Serve an app from a thread."""
    listener = listen("127.0.0.1", 0)
    server = make_server(app)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    port = listener.getsockname()[1]
    thread.start()
    try:
        wait_for(lambda: server.started, "the server to start")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S) as client:
            yield Place(port, client)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


class ServerProcess:
    """`python -m sonar_eval.ingest` in a process of its own."""

    def __init__(self, url: str, *options: str, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        command = [sys.executable, "-m", "sonar_eval.ingest", "--port", "0", "--db", url, *options]
        with log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **(environment or {})})
        self.port = self._find_port()

    def _find_port(self) -> int:
        before = 0
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = re.findall(rb"sonar-eval ingest on http://[^ ]+:(\d+)", self._log.read_bytes())
            if len(found) > before and listens(int(found[-1])):
                return int(found[-1])
            assert self.process.poll() is None, self._log.read_text()
            time.sleep(0.02)
        raise AssertionError(f"no server after {PATIENCE_S:g} s: {self._log.read_text()}")

    def kill(self) -> None:
        """End it as a machine does that runs out of memory."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """End it as a service manager does; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def resident_mb(self, *, peak: bool = False) -> float:
        """Return the memory it holds, or has held at most, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+)" if peak else r"VmRSS:\s+(\d+)", status)
        assert found
        return int(found[1]) / 1024

    def cpu_s(self) -> float:
        """Return the seconds of processor time it has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Talk to it."""
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=PATIENCE_S) as client:
            yield Place(self.port, client)


def listens(port: int) -> bool:
    with socket.socket() as link:
        link.settimeout(1)
        return link.connect_ex(("127.0.0.1", port)) == 0


def wait_for(true: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(0.01)
