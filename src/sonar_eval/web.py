"""One way to open an HTTP client, for every edge of the harness.

Knows nothing of bots, models or traces.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import httpx


def is_loopback(url: str) -> bool:
    """Tell whether `url` points at this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
        timeout=httpx.Timeout(timeout_s, connect=min(10.0, timeout_s)),
        headers=headers,
        transport=transport,
        trust_env=not is_loopback(url),
        verify=not url.startswith("http://"),
    )
