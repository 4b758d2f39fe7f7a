"""One way to open an HTTP client, for every edge of the harness.

Knows nothing of bots, models or traces.
"""

from __future__ import annotations

import ipaddress
import json
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import httpx

QUOTED = 500


def is_loopback(url: str) -> bool:
    """Tell whether `url` points at this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hide(text: str, key: str | None) -> str:
    """Take a key out of a text that may repeat it, as it is or the way it stands in JSON or in Python."""
    for written in (key, json.dumps(key)[1:-1], repr(key)[1:-1]) if key else ():
        text = text.replace(written, "[key]")
    return text


def excerpt(text: str, key: str | None, limit: int = QUOTED) -> str:
    """Return the beginning of what a server said, for an error, without the key even where the cut goes through it."""
    return hide(text, key)[:limit]


def is_address(url: str) -> bool:
    """Tell whether a request can be sent to `url`: it names a scheme and a host, and its port is one."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # A port that is no number, or half of an IPv6 address.
        return False


def _limits(timeout_s: float) -> httpx.Timeout:
    import httpx

    return httpx.Timeout(timeout_s, connect=min(10.0, timeout_s))


def open_client(
    url: str,
    *,
    timeout_s: float,
    headers: dict[str, str] | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> httpx.AsyncClient:
    """Return a client for `url`, bound to no event loop until it is used.

    A proxy from the environment is never asked for this machine, and no certificates are loaded for plain
    HTTP: that alone costs 30 ms of CPU per client.
    """
    import httpx

    return httpx.AsyncClient(
        timeout=_limits(timeout_s),
        headers=headers,
        transport=transport,
        trust_env=not is_loopback(url),
        verify=not url.startswith("http://"),
    )


class Line:
    """Requests to `url`, sent as they stand: no cookies, no redirects; open while it is entered.

    For this machine, and with a `transport`, they go out without an `httpx.AsyncClient`, which takes a third of the
    CPU of a small request.
    """

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        import httpx

        self._client: httpx.AsyncClient | None = None
        if transport is not None:
            self._transport = transport
        elif is_loopback(url) and "@" not in url:
            self._transport = httpx.AsyncHTTPTransport(verify=not url.startswith("http://"))
        else:
            # It knows the proxies of the environment, and what to do with a user in the address.
            self._client = open_client(url, timeout_s=10)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self._client or self._transport).aclose()

    async def get(self, url: str, *, headers: dict[str, str], timeout_s: float) -> httpx.Response:
        """Return the answer, read to its end; raises `httpx.RequestError` when there is none."""
        import httpx

        request = httpx.Request("GET", url, headers=headers, extensions={"timeout": _limits(timeout_s).as_dict()})
        if self._client is not None:
            return await self._client.send(request)
        response = await self._transport.handle_async_request(request)
        try:
            await response.aread()
        finally:
            await response.aclose()
        return response
