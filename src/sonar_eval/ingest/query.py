"""The GET side: one conversation, with how far it is known to be whole; the list of them; health and counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from .arrivals import Arrivals
from .completeness import Assessment, Circumstances, assess
from .counters import Counters
from .db import SpanStore, SpanWriter, StoredConversation, TooLargeError, stay_untraced
from .keys import KeyRing
from .mapping import Mapped, answer, map_spans, tools_unobservable
from .openapi import description
from .pool import run_in
from .question import BadQuery, ConversationQuery, ListQuery, digest_ids
from .strict import cut_content, strict_json

MAX_SPANS = 100_000
MAX_BYTES = 256 * 1024 * 1024
_READERS = 4
# Beyond this, conversations are read one at a time: each may take hundreds of megabytes while it is mapped.
_LIGHT_SPANS = 5_000
_LIGHT_BYTES = 16 * 1024 * 1024
# A look that takes longer is not repeated at once: a long conversation that grows must not be all there is to do.
_SHORT_LOOK_S = 0.05

_V = TypeVar("_V")


class _Limits(NamedTuple):
    spans: int
    bytes: int


@dataclass(frozen=True)
class _NotYet:
    """The conversation is not as far as the asker wants it; it may be in `pause_s`."""

    pause_s: float
    look_s: float = 0.0


class QueryDesk:
    """Answer questions about what was stored."""

    def __init__(
        self,
        store: SpanStore,
        writer: SpanWriter,
        keys: KeyRing,
        arrivals: Arrivals,
        counters: Counters,
        *,
        key_header: str,
    ) -> None:
        self._store = store
        self._writer = writer
        self._keys = keys
        self._arrivals = arrivals
        self._counters = counters
        self._key_header = key_header
        self._readers = ThreadPoolExecutor(_READERS, "conversation-reader", stay_untraced)
        self._heavy_reader = ThreadPoolExecutor(1, "long-conversation-reader", stay_untraced)

    def close(self) -> None:
        """Finish what the threads are at."""
        self._readers.shutdown()
        self._heavy_reader.shutdown()

    async def show_conversation(self, request: Request) -> Response:
        """Answer `GET /v1/conversations/{id}`."""
        try:
            tenant = await self._tenant(request)
            query = ConversationQuery.of(request.query_params)
            conversation_id = request.path_params["conversation_id"]
            if "\x00" in conversation_id:
                # PostgreSQL keeps no text with a NUL in it, and cannot be asked for any.
                raise BadQuery(404, self._nothing(tenant, query))
            if query.view == "digest":
                found = await self._run(lambda: self._store.digest(tenant, conversation_id))
                return self._strict(200, {"conversation_id": conversation_id, "digest": found})
            return self._written(200, await self._conversation(tenant, conversation_id, query))
        except BadQuery as error:
            return self.problem(error.status, str(error))

    async def show_digests(self, request: Request) -> Response:
        """Answer `GET /v1/digests`: what tells the present states of several conversations from any other."""
        try:
            tenant = await self._tenant(request)
            asked = digest_ids(request.query_params.getlist("id"))
        except BadQuery as error:
            return self.problem(error.status, str(error))
        found = await self._run(lambda: self._store.digests(tenant, asked))
        return self._strict(200, {"tenant": tenant, "digests": found})

    async def list_conversations(self, request: Request) -> Response:
        """Answer `GET /v1/conversations`: newest first, by pages."""
        try:
            tenant = await self._tenant(request)
            query = ListQuery.of(request.query_params)
        except BadQuery as error:
            return self.problem(error.status, str(error))
        found = await self._run(lambda: self._store.list_conversations(tenant, limit=query.limit, before=query.before))
        rows = [
            {"conversation_id": row.conversation_id, "spans": row.spans, "last_received_at": row.last_received_at}
            for row in found
        ]
        following = found[-1].last_seq if len(found) == query.limit else None
        return self._strict(200, {"tenant": tenant, "conversations": rows, "next_before": following})

    async def show_health(self, _: Request) -> Response:
        """Say that the process lives."""
        return self._strict(200, {"status": "ok"})

    async def show_readiness(self, _: Request) -> Response:
        """Say whether spans can be written and read; without its database the answer is 503."""
        if not self._writer.is_alive or self._arrivals.closing:
            return self.problem(503, "the server is stopping")
        await self._run(self._store.check)
        return self._strict(200, {"status": "ready"})

    async def show_metrics(self, _: Request) -> Response:
        """Show the counters as Prometheus reads them."""
        return PlainTextResponse(self._counters.render(), media_type="text/plain; version=0.0.4")

    async def show_openapi(self, _: Request) -> Response:
        """Describe this side in OpenAPI."""
        return self._strict(200, description(self._key_header))

    def problem(self, status: int, message: str) -> Response:
        """Answer that something is wrong."""
        return self._strict(status, {"error": message})

    async def _run(self, work: Callable[[], _V], *, heavy: bool = False) -> _V:
        readers = self._heavy_reader if heavy else self._readers
        return await run_in(readers, work)

    async def _tenant(self, request: Request) -> str:
        """Return the tenant that both the key and the query name; anybody else's is as if it did not exist."""
        await self._keys.refresh()
        given = request.headers.get(self._key_header)
        tenant = self._keys.tenant_of(None if given is None else given.encode("latin-1"))
        if tenant is None:
            raise BadQuery(401, f"no valid key in the header {self._key_header}")
        asked = request.query_params.getlist("tenant")
        if len(asked) != 1 or not asked[0]:
            raise BadQuery(400, "expected the query parameter tenant, once")
        if asked[0] != tenant:
            raise BadQuery(404, "no such conversation")
        return tenant

    async def _conversation(self, tenant: str, conversation_id: str, query: ConversationQuery) -> bytes:
        """Look until the conversation is as far as it is wanted, or the time is over; returns what is sent."""
        heavy = False
        with self._arrivals.watch(tenant, conversation_id) as watch:
            while True:
                watch.begin()
                try:
                    look = partial(self._look, tenant, conversation_id, query, heavy)
                    seen = await self._run(look, heavy=heavy)
                except TooLargeError as error:
                    if heavy:
                        raise BadQuery(413, str(error)) from error
                    heavy = True
                    continue
                if isinstance(seen, bytes):
                    return seen
                if seen.look_s > _SHORT_LOOK_S:
                    await asyncio.sleep(seen.look_s)
                await watch.wait(seen.pause_s)

    def _look(self, tenant: str, conversation_id: str, query: ConversationQuery, heavy: bool) -> bytes | _NotYet:
        """Read, map and assess; write the answer when it is time for it. Runs in a thread."""
        began = time.monotonic()
        most = _Limits(MAX_SPANS, MAX_BYTES) if heavy else _Limits(_LIGHT_SPANS, _LIGHT_BYTES)
        stored = self._store.conversation(tenant, conversation_id, most_spans=most.spans, most_bytes=most.bytes)
        if not stored.spans:
            left = self._left(query.asked + min(query.first_s, query.wait_s))
            if left <= 0:
                raise BadQuery(404, self._nothing(tenant, query))
            return _NotYet(left)
        if query.seal is not None and stored.sealed_as not in (None, query.seal):
            raise BadQuery(409, f"conversation {conversation_id} was graded before, as trial {stored.sealed_as}")
        mapped = map_spans([entry.span for entry in stored.spans])
        around = self._around(tenant, conversation_id, query, stored.last_received_at)
        found = assess(mapped, around)
        left = self._left(query.asked + query.wait_s)
        if not (found.final or left <= 0 or (found.complete and found.level >= query.min_level)):
            return _NotYet(min(left, _until_it_matters(around)), time.monotonic() - began)
        completeness = _completeness(found, around, stored, mapped)
        if query.seal is not None and (found.complete or found.final):
            completeness["digest"] = self._seal(tenant, conversation_id, query.seal, stored)
        body = answer(tenant, conversation_id, mapped, _flags(stored))
        cut_content(body["content"])
        return strict_json({**body, "completeness": completeness})

    def _left(self, deadline: float) -> float:
        return 0.0 if self._arrivals.closing else deadline - time.monotonic()

    def _seal(self, tenant: str, conversation_id: str, trial_id: str, stored: StoredConversation) -> str:
        """Seal what was seen, not what has come since; returns its digest."""
        sealed = self._store.seal(tenant, conversation_id, trial_id, stored)
        if sealed.trial_id != trial_id:
            raise BadQuery(409, f"conversation {conversation_id} was graded before, as trial {sealed.trial_id}")
        return stored.digest

    def _around(
        self, tenant: str, conversation_id: str, query: ConversationQuery, last_received_at: float
    ) -> Circumstances:
        quiet_s = self._arrivals.quiet_s(tenant, conversation_id)
        # Another server on the same database may have taken spans of which this one has heard nothing.
        written_s = time.time() - last_received_at
        refused = () if query.began is None else self._arrivals.refusals(tenant, since=query.began)
        return Circumstances(
            written_s if 0 <= written_s < quiet_s else quiet_s,
            query.quiet_s,
            query.turns,
            query.traces,
            len(refused),
        )

    def _nothing(self, tenant: str, query: ConversationQuery) -> str:
        said = ["no such conversation"]
        if query.began is not None:
            refused = self._arrivals.refusals(tenant, since=query.began)
            strangers = self._arrivals.refusals(None, since=query.began)
            if refused:
                last = f"{refused[-1].status} {refused[-1].reason}"
                said.append(f"{len(refused)} requests were refused meanwhile, last: {last}")
            if strangers:
                said.append(f"{len(strangers)} requests without a valid key were refused meanwhile")
        return "; ".join(said)

    def _strict(self, status: int, body: Any) -> Response:
        return self._written(status, strict_json(body))

    def _written(self, status: int, body: bytes) -> Response:
        self._counters.add("sonar_ingest_queries_total", f'status="{status}"')
        headers = {"cache-control": "no-store"}
        return Response(body, status, media_type="application/json", headers=headers)


def _until_it_matters(around: Circumstances) -> float:
    """Return how long quiet must still last to mean something; the grace after a marker is shorter than that."""
    wanted = [limit - around.quiet_s for limit in (1.0, around.quiet_wanted_s) if limit > around.quiet_s]
    return max(min(wanted, default=1.0), 0.005)


def _completeness(
    found: Assessment, around: Circumstances, stored: StoredConversation, mapped: Sequence[Mapped]
) -> dict[str, Any]:
    return {
        **asdict(found),
        "quiet_ms": round(around.quiet_s * 1000),
        "refused": around.refused,
        "conflicts": sum(entry.conflict for entry in stored.spans),
        "late": sum(entry.late for entry in stored.spans),
        "marker": found.expected is not None,
        "tools_unobservable": tools_unobservable(mapped),
    }


def _flags(stored: StoredConversation) -> dict[tuple[str, str], tuple[bool, bool]]:
    return {(entry.span.trace_id, entry.span.span_id): (entry.conflict, entry.late) for entry in stored.spans}
