"""Serving the app: for a command line, or in a thread of the process that evaluates."""

from __future__ import annotations

import asyncio
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..errors import HarnessError
from .app import IngestApp, create_app
from .db import SpanStore, untraced
from .keys import KeyRing

if TYPE_CHECKING:
    import uvicorn

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_START_TIMEOUT_S = 20.0
# Above the 5 s after which exporters send again: an idle connection must not close under the next batch.
_KEEP_ALIVE_S = 75
# Long enough for the slowest body that is let in.
_STOP_TIMEOUT_S = 35


def make_server(app: IngestApp) -> uvicorn.Server:
    """Make a server for the app; when it stops, those who wait for more spans are answered first."""
    import uvicorn

    from .protocol import GuardedProtocol

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.stop_waiting()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        # Whichever else is installed: the limits are those of this parser.
        http=GuardedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        # Handlers are the process's own affair; that a server starts and stops is no news to it.
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
    )
    return Server(config)


def listen(host: str, port: int) -> socket.socket:
    """Open a port (0: any that is free); raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


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
        self._app: IngestApp | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.port = 0

    def __repr__(self) -> str:
        return f"EmbeddedIngest({self.tenant!r}, port={self.port})"

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop it is served on; raises `HarnessError` while it is not."""
        if self._loop is None:
            raise HarnessError("the embedded ingest is not running")
        return self._loop

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request of this process without a socket; to be awaited on `loop`."""
        assert self._app is not None
        # The asker's tracing comes along with its context.
        with untraced():
            await self._app(scope, receive, send)

    def start(self) -> Self:
        """Start serving; returns when requests are answered."""
        path = self._path
        if path is None:
            self._folder = tempfile.TemporaryDirectory(prefix="sonar-ingest-")
            path = Path(self._folder.name) / "ingest.db"
        self._store = SpanStore(f"sqlite:///{path}")
        self._app = create_app(self._store, KeyRing({self.api_key: self.tenant}), hosts=LOOPBACK)
        listener = listen("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self._server = make_server(self._app)
        self._thread = threading.Thread(target=self._serve, args=([listener],), name="sonar-ingest", daemon=True)
        self._thread.start()
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def _serve(self, listeners: Sequence[socket.socket]) -> None:
        with untraced():
            asyncio.run(self._run(listeners))

    async def _run(self, listeners: Sequence[socket.socket]) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve(list(listeners))

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._server.started:
            if time.monotonic() > deadline or self._thread is None or not self._thread.is_alive():
                raise HarnessError(f"the embedded ingest did not start within {_START_TIMEOUT_S:g} s")
            time.sleep(0.01)

    def stop(self) -> None:
        """Finish what is under way and end; does nothing when it is not running."""
        server, thread, self._server, self._thread = self._server, self._thread, None, None
        if server is None or thread is None:
            return
        server.should_exit = True
        thread.join(_STOP_TIMEOUT_S + 10)
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
