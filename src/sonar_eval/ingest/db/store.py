"""Spans in SQLite or PostgreSQL: written once, flagged when contradicted, read back by conversation.

Every method blocks; none may be called on an event loop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import (
    Connection,
    Engine,
    Integer,
    String,
    and_,
    bindparam,
    column,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    values,
)
from sqlalchemy.dialects import postgresql, sqlite

from .. import span_json
from ..span import Span
from . import forget
from .bulk import SpanRow, write_spans
from .engine import for_single_statements, for_writing, is_sqlite, open_engine
from .gather import Gathering, belonging
from .migrations import bring_up_to_date
from .record import Added, Batch, Listed, Refused, Sealed, StoredConversation, digest_of
from .schema import conflicts, refusals, seals, spans

_KEYS_PER_QUERY = 300
_ROWS_AT_A_TIME = 500
_DIGESTS_PER_QUERY = 20
_REFUSALS_KEPT = 10_000
_EVERYTHING = 2**31 - 1

SpanKey = tuple[str, str, str]
"""Tenant, trace and span: ids are unique within these only."""


class SpanStore:
    """The database at `url`, brought up to date when it is opened; safe to use from threads."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        self._writing = for_writing(self._engine)
        self._near = is_sqlite(self._engine)
        self._dialect = sqlite if self._near else postgresql
        self._sealing = self._dialect.insert(seals).on_conflict_do_nothing()
        self._single = for_single_statements(self._engine)
        self._last_time = 0.0
        try:
            bring_up_to_date(self._writing)
        except BaseException:
            self._engine.dispose()
            raise

    @property
    def engine(self) -> Engine:
        """The engine, for the keys that live in the same database."""
        return self._engine

    def close(self) -> None:
        """Let the database go."""
        self._engine.dispose()

    def check(self) -> None:
        """Raise when the database does not answer."""
        with self._single.connect() as connection:
            connection.execute(select(1))

    def add(self, tenant: str, received: Sequence[Span]) -> Added:
        """Keep the spans of one request."""
        return self.add_all([Batch(tenant, received)])[0]

    def add_all(self, batches: Sequence[Batch]) -> list[Added]:
        """Keep several requests in one transaction; returns when it is committed.

        A span that is there already stays as it was first written; another one under its ids is counted as a
        conflict and flagged.
        """
        now = self._now()
        written = [[_row(batch.tenant, span, now) for span in batch.spans] for batch in batches]
        rows: dict[SpanKey, SpanRow] = {}
        for row in (row for batch in written for row in batch):
            rows.setdefault(row[:3], row)
        with self._writing.begin() as connection:
            stored = write_spans(connection, list(rows.values()))
            if stored == sum(map(len, written)):
                return [Added(len(batch)) for batch in written]
            results, contradicted = _compare(written, rows, _known(connection, list(rows), now))
            self._flag(connection, contradicted)
        return results

    def _now(self) -> float:
        """Return a time that no earlier transaction of this process has: by it, its rows are told from older ones."""
        self._last_time = max(time.time(), math.nextafter(self._last_time, math.inf))
        return self._last_time

    def _flag(self, connection: Connection, contradicted: Iterable[SpanKey]) -> None:
        names = ("tenant", "trace_id", "span_id")
        flags = [{**dict(zip(names, key, strict=True)), "times": 1} for key in sorted(contradicted)]
        if flags:
            statement = self._dialect.insert(conflicts)
            again = {"times": conflicts.c.times + 1}
            connection.execute(statement.on_conflict_do_update(index_elements=list(names), set_=again), flags)

    def conversation(
        self, tenant: str, conversation_id: str, *, most_spans: int = _EVERYTHING, most_bytes: int = _EVERYTHING
    ) -> StoredConversation:
        """Return a conversation; raises `TooLargeError` beyond the limits.

        A span without a conversation belongs to that of its trace, when its trace has just one.
        """
        # One more than allowed tells; spans of the same traces that belong elsewhere are few.
        asked = {"tenant": tenant, "conversation": conversation_id, "most": min(2 * most_spans + 1, _EVERYTHING)}
        found = Gathering(conversation_id, most_spans, most_bytes)
        # A server would be asked five more questions for a cursor and a transaction; a file is read as it is.
        if self._near or not _take_small(self._single, asked, found):
            with (self._single if self._near else self._engine).connect() as connection:
                with connection.execution_options(stream_results=True).execute(_SPANS, asked) as result:
                    for rows in result.partitions(_ROWS_AT_A_TIME):
                        found.take(rows)
        return StoredConversation(found.finish(), found.sealed_as, found.last_received_at)

    def seal(self, tenant: str, conversation_id: str, trial_id: str, seen: StoredConversation) -> Sealed:
        """Note that a conversation is graded as it was `seen`; the first seal stays, and is returned."""
        row = {
            "tenant": tenant,
            "conversation_id": conversation_id,
            "trial_id": trial_id,
            "last_seq": seen.last_seq,
            "digest": seen.digest,
            "sealed_at": time.time(),
        }
        with self._single.connect() as connection:
            if connection.execute(self._sealing, row).rowcount == 1:
                return Sealed(trial_id, seen.digest)
            found = connection.execute(_SEAL, {"tenant": tenant, "conversation": conversation_id}).one()
        return Sealed(found.trial_id, found.digest)

    def digest(self, tenant: str, conversation_id: str) -> str:
        """Return the digest of a conversation as it is now, without reading what is in its spans."""
        return self.digests(tenant, [conversation_id])[conversation_id]

    def digests(self, tenant: str, conversation_ids: Sequence[str]) -> dict[str, str]:
        """Return the digests of several conversations, one that is not there among them."""
        found: dict[str, str] = {}
        with self._single.connect() as connection:
            for start in range(0, len(conversation_ids), _DIGESTS_PER_QUERY):
                asked = conversation_ids[start : start + _DIGESTS_PER_QUERY]
                held = belonging(connection.execute(_DIGESTS, {"tenant": tenant, "conversations": asked}))
                for each in asked:
                    rows = held.get(each, ())
                    found[each] = digest_of((row.trace_id, row.span_id, row.digest) for row in rows)
        return found

    def list_conversations(self, tenant: str, *, limit: int, before: int | None = None) -> list[Listed]:
        """List conversations, the one that grew last first; `before` is the `last_seq` of the page before."""
        last = func.max(spans.c.seq)
        page = (
            select(spans.c.conversation_id, func.count().label("count"), last.label("last"))
            .where(spans.c.tenant == tenant, spans.c.conversation_id.is_not(None))
            .group_by(spans.c.conversation_id)
            .order_by(last.desc())
            .limit(limit)
        )
        page_rows = (page if before is None else page.having(last < before)).subquery()
        query = (
            select(page_rows.c.conversation_id, page_rows.c.count, spans.c.received_at, page_rows.c.last)
            .join(spans, spans.c.seq == page_rows.c.last)
            .order_by(page_rows.c.last.desc())
        )
        with self._engine.connect() as connection:
            return [Listed(*row) for row in connection.execute(query)]

    def refuse(self, tenant: str, status: int, reason: str, count: int | None = None) -> None:
        """Note a request, or spans of one, that was not taken; the last ones of each tenant are kept."""
        row = {"tenant": tenant, "at": time.time(), "status": status, "reason": reason[:500], "spans": count}
        with self._writing.begin() as connection:
            made = connection.execute(insert(refusals), row).inserted_primary_key
            assert made is not None
            old = (refusals.c.tenant == tenant, refusals.c.seq <= made[0] - _REFUSALS_KEPT)
            connection.execute(delete(refusals).where(*old))

    def refusals(self, since: float) -> list[Refused]:
        """List what was refused since a time, oldest first."""
        columns = (refusals.c.tenant, refusals.c.at, refusals.c.status, refusals.c.reason)
        query = select(*columns).where(refusals.c.at >= since).order_by(refusals.c.seq)
        with self._engine.connect() as connection:
            return [Refused(*row) for row in connection.execute(query)]

    def delete(
        self, *, tenant: str | None = None, conversation_id: str | None = None, older_than: float | None = None
    ) -> int:
        """Delete a tenant, one conversation of a tenant, or what came before a time; returns spans deleted.

        Everything derived goes with it: conflicts, seals, and for a tenant or a time the notes of refusals.
        """
        if conversation_id is not None and tenant is not None:
            asked = {"tenant": tenant, "conversations": [conversation_id]}
            with self._engine.connect() as connection:
                rows = belonging(connection.execute(_DIGESTS, asked)).get(conversation_id, ())
            return forget.delete_spans(self._writing, [row.seq for row in rows])
        if tenant is None and older_than is None:
            raise ValueError("delete needs a tenant or an age")
        return forget.delete_where(self._writing, tenant, older_than)


_KEY = (column("tenant", String), column("trace_id", String), column("span_id", String))
_MINE = spans.c.tenant == bindparam("tenant")
_TRACES = select(spans.c.trace_id).where(_MINE, spans.c.conversation_id == bindparam("conversation"))
_CONTRADICTED = exists(literal(1)).where(
    conflicts.c.tenant == spans.c.tenant,
    conflicts.c.trace_id == spans.c.trace_id,
    conflicts.c.span_id == spans.c.span_id,
)
_IDS = (spans.c.seq, spans.c.trace_id, spans.c.span_id, spans.c.conversation_id, spans.c.digest)
_THEIR_TRACES = select(spans.c.trace_id).where(
    _MINE, spans.c.conversation_id.in_(bindparam("conversations", expanding=True))
)
_DIGESTS = select(*_IDS).where(_MINE, spans.c.trace_id.in_(_THEIR_TRACES))
_SEALED = (seals.c.tenant == bindparam("tenant"), seals.c.conversation_id == bindparam("conversation"))
_SEAL = select(seals.c.trial_id, seals.c.last_seq, seals.c.digest).where(*_SEALED)
_SPANS = (
    select(
        *_IDS,
        spans.c.received_at,
        spans.c.body,
        _CONTRADICTED.label("conflict"),
        # With every row, for it saves a question.
        select(seals.c.last_seq).where(*_SEALED).scalar_subquery().label("last_sealed"),
        select(seals.c.trial_id).where(*_SEALED).scalar_subquery().label("sealed_as"),
    )
    .where(_MINE, spans.c.trace_id.in_(_TRACES))
    .limit(bindparam("most", type_=Integer))
)


# Of all that the traces hold, so that no more than this comes at once.
_SMALL = 4 * 1024 * 1024
_TOTALLED = _SPANS.add_columns(func.sum(func.octet_length(spans.c.body)).over().label("total")).subquery()
_SMALL_SPANS = select(*list(_TOTALLED.c)[:-1]).where(_TOTALLED.c.total <= _SMALL)


def _take_small(engine: Engine, asked: Mapping[str, object], found: Gathering) -> bool:
    """Take a conversation that is small, in one question."""
    with engine.connect() as connection:
        rows = connection.execute(_SMALL_SPANS, asked).all()
    found.take(rows)
    return bool(rows)


def _row(tenant: str, span: Span, now: float) -> SpanRow:
    body = span_json.dump(span)
    return SpanRow(
        tenant,
        span.trace_id,
        span.span_id,
        span.conversation_id,
        # OTLP times are unsigned 64 bit; SQL has the signed kind.
        min(span.start_ns, 2**63 - 1),
        now,
        body.decode(),
        span_json.digest(body),
    )


def _known(connection: Connection, keys: Sequence[SpanKey], now: float) -> dict[SpanKey, bytes]:
    """Return the digests of those spans that had been there before `now`."""
    known = {}
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        # A join, because SQLite looks through the whole table for a list of pairs.
        asked = values(*_KEY, name="asked").data(keys[start : start + _KEYS_PER_QUERY]).cte("asked")
        same = and_(*(spans.c[column.name] == asked.c[column.name] for column in _KEY))
        query = select(*(spans.c[column.name] for column in _KEY), spans.c.digest).select_from(asked.join(spans, same))
        for row in connection.execute(query.where(spans.c.received_at != now)):
            known[row.tenant, row.trace_id, row.span_id] = bytes(row.digest)
    return known


def _compare(
    written: Sequence[Sequence[SpanRow]], rows: dict[SpanKey, SpanRow], known: dict[SpanKey, bytes]
) -> tuple[list[Added], set[SpanKey]]:
    """Tell for each batch what was new, came again or contradicted; the first of two new ones counts."""
    results, contradicted, first_seen = [], set[SpanKey](), set[SpanKey]()
    for batch in written:
        stored, mine = 0, set[SpanKey]()
        for row in batch:
            key = row[:3]
            if key not in known and key not in first_seen:
                first_seen.add(key)
                stored += 1
            elif row.digest != known.get(key, rows[key].digest):
                mine.add(key)
        results.append(Added(stored, len(batch) - stored - len(mine), len(mine)))
        contradicted |= mine
    return results, contradicted
