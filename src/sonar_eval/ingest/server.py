"""Serving the app: for a command line, or in a thread of the process that evaluates."""

from __future__ import annotations

import secrets
import socket
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..errors import HarnessError
from .app import create_app
from .db import SpanStore
from .keys import KeyRing

_START_TIMEOUT_S = 20.0


class EmbeddedIngest:
    """An ingest on a free loopback port with a random key, in a thread of this process.

    Its file is temporary unless `path` is given. Spans reach it over HTTP like any other.
    """

    def __init__(self, tenant: str, *, path: Path | None = None) -> None:
        self.tenant = tenant
        self.api_key = secrets.token_urlsafe(24)
        self._path = path
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self._store: SpanStore | None = None
        self.port = 0

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start serving; returns when requests are answered."""
        import uvicorn

        path = self._path
        if path is None:
            self._folder = tempfile.TemporaryDirectory(prefix="sonar-ingest-")
            path = Path(self._folder.name) / "ingest.db"
        self._store = SpanStore(f"sqlite:///{path}")
        app = create_app(self._store, KeyRing({self.api_key: self.tenant}))
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="sonar-ingest", daemon=True)
        self._thread.start()
        self._wait()
        return self

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._server.started:
            if time.monotonic() > deadline or self._thread is None or not self._thread.is_alive():
                raise HarnessError(f"the embedded ingest did not start within {_START_TIMEOUT_S:g} s")
            time.sleep(0.01)

    def stop(self) -> None:
        """Finish what is under way and end; does nothing when it is not running."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(10)
        self._server = self._thread = None
        if self._store is not None:
            self._store.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
