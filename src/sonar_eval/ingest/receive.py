"""`POST /v1/traces`: what is answered 200 is committed, and a GET shows it.

Speaks ASGI directly: single-span requests are the common case, and routing them costs more than storing them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from . import otlp
from .arrivals import Arrivals
from .counters import Counters
from .db import Added, SpanStore, SpanWriter, WriterClosedError, first_line, stay_untraced
from .keys import KeyRing
from .pool import run_in
from .span import Span

log = logging.getLogger(__name__)

Scope = dict[str, Any]
Headers = dict[bytes, bytes]

_IN_LINE_BYTES = {otlp.PROTOBUF: 64 * 1024, otlp.JSON: 16 * 1024}
"""Bodies up to this size, inflated, are decoded on the loop: handing them to a thread costs more."""
_DECODERS = 2
# Larger ones one at a time: what they become in memory may be a hundred times as large.
_HEAVY_BYTES = 1024 * 1024
# An index of PostgreSQL holds no more than 2,700 bytes.
_MAX_CONVERSATION_BYTES = 1024
_RETRY = [(b"retry-after", b"1")]
_CLOSE = [(b"connection", b"close")]


@dataclass(frozen=True)
class Limits:
    """How much is taken at a time; beyond it the answer is 503, come back in a second."""

    body_bytes: int = otlp.MAX_BODY_BYTES
    waiting_bytes: int = 2 * otlp.MAX_BODY_BYTES
    """Of all requests together, as they came and inflated."""
    waiting_requests: int = 512
    pause_s: float = 5.0
    """How long nothing may come in the middle of a body."""
    body_s: float = 30.0


class TraceReceiver:
    """Take trace requests in."""

    def __init__(
        self,
        store: SpanStore,
        writer: SpanWriter,
        keys: KeyRing,
        arrivals: Arrivals,
        counters: Counters,
        *,
        key_header: str,
        limits: Limits,
    ) -> None:
        self._store = store
        self._writer = writer
        self._keys = keys
        self._arrivals = arrivals
        self._counters = counters
        self._key_header = key_header.lower().encode("latin-1")
        self._limits = limits
        self._load = _Load(limits)
        self._decoders = ThreadPoolExecutor(_DECODERS, "otlp-decoder", stay_untraced)
        self._heavy_decoder = ThreadPoolExecutor(1, "large-otlp-decoder", stay_untraced)
        # One at a time: they would only wait for each other in the database.
        self._clerk = ThreadPoolExecutor(1, "refusals", stay_untraced)

    def close(self) -> None:
        """Finish what the threads are at."""
        self._decoders.shutdown()
        self._heavy_decoder.shutdown()
        self._clerk.shutdown()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer one request."""
        headers: Headers = dict(scope["headers"])
        if scope["method"] != "POST":
            await _respond(send, 405, otlp.JSON, b'{"message": "POST only"}', [(b"allow", b"POST")])
            return
        encoding = otlp.Encoding.guess(_text(headers, b"content-type"))
        status, extra = 200, []
        try:
            body = await self._answer(headers, receive)
        except otlp.OTLPError as error:
            status, body = error.status, encoding.error(str(error), error.status)
            # What was misunderstood must not be read on as the next request.
            extra = {503: _RETRY, 408: _CLOSE, 400: _CLOSE}.get(status, [])
        except asyncio.CancelledError:
            # Only a server that must stop now does this. What was handed to the writer is kept, the rest comes again.
            gone = encoding.error("the server is stopping; come back in a second", 503)
            await _respond(send, 503, encoding.media_type, gone, _RETRY)
            raise
        self._counters.add("sonar_ingest_requests_total", f'status="{status}"')
        await _respond(send, status, encoding.media_type, body, extra)

    async def _answer(self, headers: Headers, receive: Any) -> bytes:
        """Do what is asked; whatever goes wrong is an `OTLPError`, noted unless the sender will come again."""
        tenant = None
        try:
            tenant = await self._tenant(headers)
            encoding = otlp.Encoding.of(_text(headers, b"content-type"))
            self._check_framing(headers)
            with self._load.admit() as held:
                body = await self._read(receive, held)
                self._counters.add("sonar_ingest_bytes_total", by=len(body))
                decoded = await self._decode(body, _text(headers, b"content-encoding"), encoding, held)
                return encoding.answer(await self._keep(tenant, decoded))
        except otlp.OTLPError as error:
            await self._note_refusal(tenant, error.status, str(error))
            raise
        except Exception as error:
            log.exception("a trace request failed")
            failure = otlp.OTLPError(500, f"the server failed: {type(error).__name__}")
            await self._note_refusal(tenant, failure.status, str(failure))
            raise failure from error

    async def _tenant(self, headers: Headers) -> str:
        await self._keys.refresh()
        tenant = self._keys.tenant_of(headers.get(self._key_header))
        if tenant is None:
            raise otlp.OTLPError(401, f"no valid key in the header {self._key_header.decode('latin-1')}")
        return tenant

    def _check_framing(self, headers: Headers) -> None:
        announced = headers.get(b"content-length", b"")
        if announced and b"transfer-encoding" in headers:
            raise otlp.OTLPError(400, "expected either Content-Length or Transfer-Encoding, got both")
        if announced.isdigit() and int(announced[:18]) > self._limits.body_bytes:
            raise otlp.OTLPError(413, f"the body is larger than {self._limits.body_bytes} bytes")

    async def _read(self, receive: Any, held: _Held) -> bytes:
        """Read a body of bounded size in bounded time, however it is framed."""
        now = asyncio.get_running_loop().time
        chunks, end = bytearray(), now() + self._limits.body_s
        try:
            async with asyncio.timeout(self._limits.pause_s) as pause:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise otlp.OTLPError(400, "the body ends too early: the sender is gone")
                    chunk = message.get("body", b"")
                    held.grow(len(chunk))
                    chunks += chunk
                    if len(chunks) > self._limits.body_bytes:
                        raise otlp.OTLPError(413, f"the body is larger than {self._limits.body_bytes} bytes")
                    if not message.get("more_body"):
                        return bytes(chunks)
                    pause.reschedule(min(now() + self._limits.pause_s, end))
        except TimeoutError as error:
            raise otlp.OTLPError(408, f"the body did not come in time, {len(chunks)} bytes of it did") from error

    async def _decode(self, body: bytes, compression: str, encoding: otlp.Encoding, held: _Held) -> otlp.Decoded:
        small = _IN_LINE_BYTES[encoding.media_type]
        if len(body) <= small:
            try:
                return encoding.decode(otlp.inflate(body, compression, limit=small))
            except otlp.OTLPError as error:
                if error.status != 413:
                    raise
        inflate = partial(otlp.inflate, body, compression, limit=self._limits.body_bytes)
        inflated = await run_in(self._decoders, inflate)
        if inflated is not body:
            held.grow(len(inflated))
        decoder = self._heavy_decoder if len(inflated) > _HEAVY_BYTES else self._decoders
        return await run_in(decoder, partial(encoding.decode, inflated))

    async def _keep(self, tenant: str, decoded: otlp.Decoded) -> otlp.Decoded:
        decoded = _without_foreign(tenant, decoded)
        added = Added(0)
        if decoded.spans:
            self._arrivals.note(tenant, decoded.spans, stored=False)
            added = await self._write(tenant, decoded.spans)
            self._arrivals.note(tenant, decoded.spans)
        self._count(added, decoded.rejected)
        if decoded.rejected:
            await self._note_refusal(tenant, 200, decoded.reason, decoded.rejected)
        if added.conflicting:
            said = f"{added.conflicting} spans are there already with other content, which was kept"
            decoded = replace(decoded, reason="; ".join(filter(None, (decoded.reason, said))))
        return decoded

    async def _write(self, tenant: str, spans: list[Span]) -> Added:
        try:
            return await self._writer.add(tenant, spans)
        except (SQLAlchemyError, WriterClosedError) as error:
            log.error("spans were not stored: %s", first_line(error))
            raise otlp.OTLPError(503, "the spans could not be stored; come back in a second") from error

    def _count(self, added: Added, rejected: int) -> None:
        counts = {"stored": added.stored, "repeated": added.repeated, "conflicting": added.conflicting}
        for what, count in {**counts, "rejected": rejected}.items():
            if count:
                self._counters.add("sonar_ingest_spans_total", f'result="{what}"', count)

    async def _note_refusal(self, tenant: str | None, status: int, reason: str, spans: int | None = None) -> None:
        # After 503 the sender comes again, and what then succeeds was never lost; after all else it does not.
        if status == 503:
            return
        self._arrivals.refuse(tenant, status, reason)
        if tenant is None:
            return
        try:
            await run_in(self._clerk, partial(self._store.refuse, tenant, status, reason, spans))
        except SQLAlchemyError as error:
            log.error("a refusal was not written down: %s", first_line(error))


class _Load:
    """What is held at the moment, by all requests together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.requests = self.bytes = 0

    @contextmanager
    def admit(self) -> Iterator[_Held]:
        """Let one more request in; raises `OTLPError` 503 when there is too much already."""
        if self.requests >= self._limits.waiting_requests or self.bytes >= self._limits.waiting_bytes:
            raise _too_much()
        held = _Held(self)
        self.requests += 1
        try:
            yield held
        finally:
            self.requests -= 1
            self.bytes -= held.bytes

    @property
    def is_too_much(self) -> bool:
        """Tell whether somebody must go; one alone may be as large as it is allowed to be."""
        return self.bytes > self._limits.waiting_bytes and self.requests > 1


class _Held:
    """What one request holds."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self.bytes = 0

    def grow(self, by: int) -> None:
        self.bytes += by
        self._load.bytes += by
        if self._load.is_too_much:
            raise _too_much()


def _too_much() -> otlp.OTLPError:
    return otlp.OTLPError(503, "too much is waiting to be stored; come back in a second")


def _without_foreign(tenant: str, decoded: otlp.Decoded) -> otlp.Decoded:
    """Reject the spans that cannot be kept for this tenant."""
    kept, reason = [], decoded.reason
    for span in decoded.spans:
        if span.claimed_tenant not in (None, tenant):
            reason = reason or "the span names a tenant that the key does not open"
        elif len((span.conversation_id or "").encode()) > _MAX_CONVERSATION_BYTES:
            reason = reason or f"the id of the conversation is longer than {_MAX_CONVERSATION_BYTES} bytes"
        else:
            kept.append(span)
    rejected = decoded.rejected + len(decoded.spans) - len(kept)
    return otlp.Decoded(kept, rejected, reason)


def _text(headers: Headers, name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


async def _respond(send: Any, status: int, media_type: str, body: bytes, extra: list[tuple[bytes, bytes]]) -> None:
    headers = [
        (b"content-type", media_type.encode()),
        (b"content-length", str(len(body)).encode()),
        *extra,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
