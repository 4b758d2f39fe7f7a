"""What uvicorn's HTTP protocol leaves open: slow heads, slow readers, and too many connections."""

from __future__ import annotations

import asyncio
import socket

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 800
"""Below the 1,024 files that a process may usually have open."""
_HEAD_TIMEOUT_S = 5.0
"""For a request's head, and for what still comes of a body that was refused unread."""
_READER_TIMEOUT_S = 60.0
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-type: application/json\r\n"
    b"content-length: 35\r\nconnection: close\r\n\r\n"
    b'{"message": "too many connections"}'
)


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 on one connection, which is closed when its other end takes too long."""

    _head_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        # asyncio does this only for sockets that were made with their protocol named. Without it, the body of an
        # answer waits 40 ms for the acknowledgement of its head on every connection that is used again.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.write(_FULL)
            transport.close()
        else:
            self._time_head()

    def data_received(self, data: bytes) -> None:
        """Handle what came."""
        super().data_received(data)
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._stop_timing_head()
        self._stop_timing_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait for a reader that is slower than we write."""
        super().pause_writing()
        self._reader_timer = self.loop.call_later(_READER_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        self._stop_timing_reader()
        super().resume_writing()

    def _time_head(self) -> None:
        """Run a timer while a request's head is on its way; once it is there, the application keeps time."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timing_head()
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(_HEAD_TIMEOUT_S, self.transport.close)

    def _stop_timing_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_timing_reader(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None
