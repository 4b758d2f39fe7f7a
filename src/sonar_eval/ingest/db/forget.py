"""Deleting spans for good, with all that speaks of them, in steps that let writers in between."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, Engine, delete, exists, func, literal, select

from .schema import conflicts, refusals, seals, spans

_ROWS_PER_STEP = 2000


def delete_spans(engine: Engine, numbers: Sequence[int]) -> int:
    """Delete spans by their `seq`; returns how many there were."""
    count = 0
    for start in range(0, len(numbers), _ROWS_PER_STEP):
        count += _step(engine, spans.c.seq.in_(numbers[start : start + _ROWS_PER_STEP]))
    _finish(engine)
    return count


def delete_where(engine: Engine, tenant: str | None, older_than: float | None) -> int:
    """Delete what belongs to a tenant, what came before a time, or what is both; returns how many spans."""
    chosen: list[ColumnElement[bool]] = []
    noted: list[ColumnElement[bool]] = []
    if tenant is not None:
        chosen.append(spans.c.tenant == tenant)
        noted.append(refusals.c.tenant == tenant)
    if older_than is not None:
        chosen.append(spans.c.received_at < older_than)
        noted.append(refusals.c.at < older_than)
    # What comes while it deletes is left alone, or it might never end.
    with engine.connect() as connection:
        last = connection.execute(select(func.max(spans.c.seq))).scalar() or 0
    some = spans.c.seq.in_(select(spans.c.seq).where(spans.c.seq <= last, *chosen).limit(_ROWS_PER_STEP))
    count = step = _step(engine, some)
    while step:
        step = _step(engine, some)
        count += step
    with engine.begin() as connection:
        connection.execute(delete(refusals).where(*noted))
    _finish(engine)
    return count


def _step(engine: Engine, some: ColumnElement[bool]) -> int:
    began = time.monotonic()
    with engine.begin() as connection:
        count = connection.execute(delete(spans).where(some)).rowcount
    # SQLite's lock is not fair: without a pause those who wait for it would wait until the end.
    time.sleep(time.monotonic() - began)
    return count


def _finish(engine: Engine) -> None:
    with engine.begin() as connection:
        _sweep_up(connection)
    if engine.dialect.name == "sqlite":
        # Old pages live on in the log until it is emptied.
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _sweep_up(connection: Connection) -> None:
    """Delete what speaks of spans and conversations that are gone."""
    span_there = exists(literal(1)).where(
        spans.c.tenant == conflicts.c.tenant,
        spans.c.trace_id == conflicts.c.trace_id,
        spans.c.span_id == conflicts.c.span_id,
    )
    connection.execute(delete(conflicts).where(~span_there))
    talk_there = exists(literal(1)).where(
        spans.c.tenant == seals.c.tenant, spans.c.conversation_id == seals.c.conversation_id
    )
    connection.execute(delete(seals).where(~talk_there))
