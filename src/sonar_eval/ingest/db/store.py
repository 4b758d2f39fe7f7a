"""Writing spans once, and reading a conversation back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine, create_engine, event, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.pool import QueuePool

from ..span import Span, SpanEvent
from .schema import metadata, spans


class SpanStore:
    """Spans in the SQLite file of `url`, for instance `sqlite:////tmp/ingest.db`; safe to use from threads."""

    def __init__(self, url: str) -> None:
        self._engine: Engine = create_engine(url, poolclass=QueuePool)
        event.listen(self._engine, "connect", _tune)
        metadata.create_all(self._engine)

    def add(self, tenant: str, received: Sequence[Span]) -> None:
        """Keep spans; one that is there already stays as it was first written."""
        if not received:
            return
        rows = [
            {
                "tenant": tenant,
                "trace_id": span.trace_id,
                "span_id": span.span_id,
                "conversation_id": span.conversation_id,
                "start_ns": _signed(span.start_ns),
                "body": asdict(span),
            }
            for span in received
        ]
        with self._engine.begin() as connection:
            connection.execute(insert(spans).on_conflict_do_nothing(), rows)

    def conversation(self, tenant: str, conversation_id: str) -> list[Span]:
        """Return the spans of a conversation, oldest first.

        A span without a conversation belongs to that of its trace, when its trace has just one.
        """
        mine = spans.c.tenant == tenant
        traces = select(spans.c.trace_id).where(mine, spans.c.conversation_id == conversation_id)
        query = (
            select(spans.c.trace_id, spans.c.conversation_id, spans.c.body)
            .where(mine, spans.c.trace_id.in_(traces))
            .order_by(spans.c.start_ns, spans.c.seq)
        )
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        owners: dict[str, set[str]] = {}
        for row in rows:
            if row.conversation_id is not None:
                owners.setdefault(row.trace_id, set()).add(row.conversation_id)
        return [
            _read(row.body)
            for row in rows
            if row.conversation_id == conversation_id
            or (row.conversation_id is None and len(owners[row.trace_id]) == 1)
        ]

    def close(self) -> None:
        """Let the file go."""
        self._engine.dispose()


def _tune(connection: Any, _: Any) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=20000"):
        connection.execute(f"PRAGMA {pragma}")


def _signed(nanoseconds: int) -> int:
    # OTLP times are unsigned 64 bit; SQL has the signed kind.
    return min(nanoseconds, 2**63 - 1)


def _read(body: dict[str, Any]) -> Span:
    events = tuple(SpanEvent(**entry) for entry in body["events"])
    return Span(**{**body, "events": events})
