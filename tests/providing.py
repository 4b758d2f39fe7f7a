"""A provider of models on loopback: real HTTP, scripted answers, and the troubles that real ones have."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
Answer = Body | str
"""A whole answer, or the text of one."""


class Refused(Exception):
    """Answer with another status than 200."""

    def __init__(self, status: int, body: str = '{"error": {"message": "slow down"}}', **headers: str) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers


class HangUp(Exception):
    """Drop the connection without an answer."""


class Hang(Exception):
    """Never answer."""


class Trickle(Exception):
    """Begin to answer, send a blank every now and then for `seconds`, and drop the connection."""

    def __init__(self, seconds: float, *, every_s: float = 0.05) -> None:
        super().__init__(seconds)
        self.seconds, self.every_s = seconds, every_s


class ModelServer(ThreadingHTTPServer):
    """Answer by `answer`, a function of the request's body, and keep what was asked.

    `answer` is asked one request after the other, unless `at_once`.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Callable[[Body], Answer], *, at_once: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.at_once = at_once
        self.bodies: list[Body] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.stopped = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def of(self, model: str) -> list[Body]:
        """List the requests for one model."""
        return [body for body in self.bodies if body["model"] == model]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            self.server.requests.append((self.path, {key.lower(): value for key, value in self.headers.items()}))
            answer = None if self.server.at_once else self._ask(body)
        answer = self._ask(body) if answer is None else answer
        if isinstance(answer, HangUp):
            self.connection.shutdown(socket.SHUT_RDWR)
        elif isinstance(answer, Hang):
            self.server.stopped.wait(60)
        elif isinstance(answer, Trickle):
            self._trickle(answer)
        elif isinstance(answer, Refused):
            self._send(answer.status, answer.body, answer.headers)
        else:
            self._send(200, json.dumps(said(answer) if isinstance(answer, str) else answer), {})

    def _ask(self, body: Body) -> Answer | Exception:
        try:
            return self.server.answer(body)
        except (HangUp, Hang, Refused, Trickle) as trouble:
            return trouble

    def _trickle(self, trickle: Trickle) -> None:
        self.send_response(200)
        self.send_header("content-length", "100000")
        self.end_headers()
        ends = time.monotonic() + trickle.seconds
        while time.monotonic() < ends and not self.server.stopped.is_set():
            self.wfile.write(b"\n")
            self.server.stopped.wait(trickle.every_s)
        self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, text: str, headers: dict[str, str]) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in {**headers, "content_type": "application/json"}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def providing(answer: Callable[[Body], Answer], *, at_once: bool = False) -> Iterator[ModelServer]:
    """Serve models from threads of this process."""
    with ModelServer(answer, at_once=at_once) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stopped.set()
            server.shutdown()
            thread.join(10)


def said(text: str | None, *, finish: str = "stop", cached: int = 0, **message: Any) -> Body:
    """Make an answer of OpenAI's form that took 100 tokens in and 10 out."""
    return {
        "model": "served",
        "choices": [{"message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


def calling(name: str, arguments: str, call_id: str = "call_1") -> Body:
    """Make an answer that calls a tool."""
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return said(None, finish="tool_calls", tool_calls=[call])
