"""The HTTP side: `POST /v1/traces`, `GET /v1/conversations/{id}?tenant=`, `GET /healthz`."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..transcript.wire import DEFAULT_KEY_HEADER, TRACES_PATH
from . import otlp
from .db import SpanStore
from .keys import KeyRing
from .mapping import answer


class _AnyText(Convertor[str]):
    """A path parameter of any text; Starlette's own `path` ends at a line break."""

    regex = r"(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anytext", _AnyText())


def create_app(store: SpanStore, keys: KeyRing, *, key_header: str = DEFAULT_KEY_HEADER) -> Starlette:
    """Make the ASGI app over `store`; the key is read from `key_header`."""
    service = _Service(store, keys, key_header.lower())
    app = Starlette(
        routes=[
            Route(TRACES_PATH, service.take_traces, methods=["POST"]),
            Route(TRACES_PATH + "/", service.take_traces, methods=["POST"]),
            Route("/v1/conversations/{conversation_id:anytext}", service.show_conversation, methods=["GET"]),
            Route("/healthz", service.show_health, methods=["GET"]),
        ],
    )
    # A redirect would count as success for the Python exporter, and the spans would be gone.
    app.router.redirect_slashes = False
    return app


class _Service:
    def __init__(self, store: SpanStore, keys: KeyRing, key_header: str) -> None:
        self._store = store
        self._keys = keys
        self._key_header = key_header

    async def show_health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def take_traces(self, request: Request) -> Response:
        encoding = otlp.Encoding(otlp.JSON)
        try:
            encoding = otlp.Encoding.of(request.headers.get("content-type", ""))
            tenant = self._tenant(request)
            body = await _body(request)
            decoded = await asyncio.to_thread(self._store_spans, tenant, encoding, request, body)
        except otlp.OTLPError as error:
            headers = {"retry-after": "1"} if error.status == 503 else None
            return Response(encoding.error(str(error)), error.status, headers, encoding.media_type)
        return Response(encoding.answer(decoded), media_type=encoding.media_type)

    def _tenant(self, request: Request) -> str:
        tenant = self._keys.tenant_of(request.headers.get(self._key_header))
        if tenant is None:
            raise otlp.OTLPError(401, f"no valid key in the header {self._key_header}")
        return tenant

    def _store_spans(self, tenant: str, encoding: otlp.Encoding, request: Request, body: bytes) -> otlp.Decoded:
        plain = otlp.inflate(body, request.headers.get("content-encoding", ""))
        decoded = encoding.decode(plain)
        mine = [span for span in decoded.spans if span.claimed_tenant in (None, tenant)]
        foreign = len(decoded.spans) - len(mine)
        if foreign:
            reason = decoded.reason or "the span names a tenant that the key does not open"
            decoded = replace(decoded, spans=mine, rejected=decoded.rejected + foreign, reason=reason)
        # Written before it is answered: what was answered 200 can be read back at once.
        try:
            self._store.add(tenant, decoded.spans)
        except SQLAlchemyError as error:
            # Of all refusals, exporters send again only after this kind.
            raise otlp.OTLPError(503, "the spans could not be stored; send them again") from error
        return decoded

    async def show_conversation(self, request: Request) -> Response:
        try:
            tenant = self._tenant(request)
        except otlp.OTLPError as error:
            return _problem(error.status, str(error))
        asked = request.query_params.getlist("tenant")
        if len(asked) != 1:
            return _problem(400, "expected the query parameter tenant, once")
        conversation_id = request.path_params["conversation_id"]
        spans = await asyncio.to_thread(self._store.conversation, tenant, conversation_id) if asked[0] == tenant else []
        if not spans:
            return _problem(404, "no such conversation")
        body = await asyncio.to_thread(answer, tenant, conversation_id, spans)
        return JSONResponse(body, headers={"cache-control": "no-store"})


def _problem(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status, headers={"cache-control": "no-store"})


async def _body(request: Request) -> bytes:
    """Read a body of bounded size, however it is framed."""
    limit = otlp.MAX_BODY_BYTES
    too_large = otlp.OTLPError(413, f"the body is larger than {limit} bytes")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise too_large
    except ClientDisconnect as error:
        raise otlp.OTLPError(400, "the body ends too early") from error
    return bytes(body)
