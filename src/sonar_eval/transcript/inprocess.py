"""Asking an ingest that lives in this process: the same requests and answers, without a socket between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

ASGIApp = Callable[..., Awaitable[None]]


class InProcessTransport(httpx.AsyncBaseTransport):
    """Hand requests to `app` on the event loop `loop` that serves it, which may run in another thread.

    What the app raises, and a loop that is closed, come as `httpx.TransportError`.
    """

    def __init__(self, app: ASGIApp, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = httpx.ASGITransport(app)
        self._loop = loop

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request; raises `httpx.ReadTimeout` when that takes longer than the request allows."""
        limits: dict[str, Any] = request.extensions.get("timeout", {})
        answering = self._inner.handle_async_request(request)
        try:
            asked = asyncio.run_coroutine_threadsafe(answering, self._loop)
        except RuntimeError as error:
            answering.close()
            raise httpx.ConnectError("the ingest of this process has stopped") from error
        try:
            async with asyncio.timeout(limits.get("read")):
                return await asyncio.wrap_future(asked)
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"no answer within {limits.get('read'):g} s") from error
        except httpx.HTTPError:
            raise
        except Exception as error:
            raise httpx.RemoteProtocolError(f"the ingest of this process failed: {error!r}") from error
