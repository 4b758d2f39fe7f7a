"""The HTTP application: traces in at `POST /v1/traces`, conversations out under `/v1/conversations`."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..transcript.wire import DEFAULT_KEY_HEADER, DIGESTS_PATH, TRACES_PATH
from .arrivals import Arrivals
from .counters import Counters
from .db import SpanStore, SpanWriter, first_line
from .keys import KeyRing
from .query import QueryDesk
from .receive import Limits, TraceReceiver

log = logging.getLogger(__name__)

# A redirect would count as success for the Python exporter, and the spans would be gone.
_TRACES = (TRACES_PATH, TRACES_PATH + "/")
# Trials do not last longer than this; older refusals say nothing about them.
_REFUSALS_RECALLED_S = 86_400


class _AnyText(Convertor[str]):
    """A path parameter of any text; Starlette's own `path` ends at a line break."""

    regex = r"(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anytext", _AnyText())


class IngestApp:
    """The ASGI application over `store`; the key is read from `key_header`.

    With `hosts`, a request whose Host header names another is refused: no web page may reach a loopback
    server under a name of its own. `close` writes what still waits.
    """

    def __init__(
        self,
        store: SpanStore,
        keys: KeyRing,
        *,
        key_header: str = DEFAULT_KEY_HEADER,
        limits: Limits | None = None,
        hosts: Collection[str] | None = None,
    ) -> None:
        self._arrivals, counters = Arrivals(), Counters()
        self._arrivals.recall(store.refusals(time.time() - _REFUSALS_RECALLED_S))
        self._writer = SpanWriter(store)
        self._receiver = TraceReceiver(
            store, self._writer, keys, self._arrivals, counters, key_header=key_header, limits=limits or Limits()
        )
        self._desk = QueryDesk(store, self._writer, keys, self._arrivals, counters, key_header=key_header.lower())
        self._pages = self._make_pages(self._desk)
        self._hosts = frozenset(host.lower() for host in hosts or ())

    def _make_pages(self, desk: QueryDesk) -> Starlette:
        pages = Starlette(
            routes=[
                Route(DIGESTS_PATH, desk.show_digests, methods=["GET"]),
                Route("/v1/conversations", desk.list_conversations, methods=["GET"]),
                Route("/v1/conversations/{conversation_id:anytext}", desk.show_conversation, methods=["GET"]),
                Route("/healthz", desk.show_health, methods=["GET"]),
                Route("/readyz", desk.show_readiness, methods=["GET"]),
                Route("/metrics", desk.show_metrics, methods=["GET"]),
                Route("/openapi.json", desk.show_openapi, methods=["GET"]),
            ],
            exception_handlers={HTTPException: self._show_problem, SQLAlchemyError: self._show_outage},
            lifespan=self._lifespan,
        )
        pages.router.redirect_slashes = False
        return pages

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> Any:
        yield
        # On the loop, where nobody waits any more: threads may not be had when the process ends.
        self.close()

    def stop_waiting(self) -> None:
        """Answer those who wait for more with what there is: the server is about to stop."""
        self._arrivals.close()

    def close(self) -> None:
        """Write what still waits to be stored, and end the threads."""
        self._writer.close()
        self._receiver.close()
        self._desk.close()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "http" and not self._knows_host(scope):
            await self._desk.problem(400, "the Host header names another host")(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] in _TRACES:
            await self._receiver(scope, receive, send)
        else:
            await self._pages(scope, receive, send)

    def _knows_host(self, scope: Any) -> bool:
        if not self._hosts:
            return True
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
        # An IPv6 address has colons of its own, and brackets around them.
        name, colon, port = host.rpartition(":")
        return (name if colon and port.isdigit() else host) in self._hosts

    async def _show_problem(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = self._desk.problem(error.status_code, error.detail)
        response.headers.update(error.headers or {})
        return response

    async def _show_outage(self, _: Request, error: Exception) -> Response:
        log.error("the database does not answer: %s", first_line(error))
        response = self._desk.problem(503, "the database does not answer; come back in a second")
        response.headers["retry-after"] = "1"
        return response


def create_app(
    store: SpanStore,
    keys: KeyRing,
    *,
    key_header: str = DEFAULT_KEY_HEADER,
    limits: Limits | None = None,
    hosts: Collection[str] | None = None,
) -> IngestApp:
    """Make the application; see `IngestApp`."""
    return IngestApp(store, keys, key_header=key_header, limits=limits, hosts=hosts)
