"""Bringing a database up to date, step by numbered step; a step that has shipped never changes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import orjson
from sqlalchemy import Connection, Engine, insert, inspect, select, text, update

from .engine import be_patient
from .schema import api_keys, conflicts, refusals, schema_version, seals, spans


def _first_tables(connection: Connection) -> None:
    """Make the table of spans as version 0.6.0 had it, unless that version made it already."""
    if inspect(connection).has_table("span"):
        return
    counter = "INTEGER PRIMARY KEY" if connection.dialect.name == "sqlite" else "BIGSERIAL PRIMARY KEY"
    connection.execute(
        text(
            f"CREATE TABLE span (seq {counter}, tenant VARCHAR NOT NULL, trace_id VARCHAR(32) NOT NULL, "
            "span_id VARCHAR(16) NOT NULL, conversation_id VARCHAR, start_ns BIGINT NOT NULL, body TEXT NOT NULL, "
            "UNIQUE (tenant, trace_id, span_id))"
        )
    )


def _digests_and_neighbours(connection: Connection) -> None:
    """Rebuild the table of spans with arrival times and digests, and add the tables beside it."""
    connection.execute(text("ALTER TABLE span RENAME TO span_0"))
    connection.execute(text("DROP INDEX IF EXISTS span_by_conversation"))
    for table in (spans, conflicts, seals, refusals, api_keys):
        table.create(connection)
    now = time.time()
    old = connection.execute(
        text("SELECT tenant, trace_id, span_id, conversation_id, start_ns, body FROM span_0 ORDER BY seq")
    )
    for rows in old.mappings().partitions(1000):
        connection.execute(insert(spans), [_completed(dict(row), now) for row in rows])
    connection.execute(text("DROP TABLE span_0"))


def _completed(row: dict[str, Any], now: float) -> dict[str, Any]:
    """Rewrite a span of version 0.6.0, so that the same span sent again has the same digest."""
    body = orjson.loads(row["body"])
    body = {key: value for key, value in body.items() if key not in ("trace_id", "span_id")}
    body["events"] = [(event["name"], event["time_ns"], event["attributes"]) for event in body["events"]]
    written = orjson.dumps(body)
    digest = hashlib.blake2b(written, digest_size=16).digest()
    return {**row, "body": written.decode(), "received_at": now, "digest": digest}


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_first_tables, _digests_and_neighbours)


def bring_up_to_date(engine: Engine) -> None:
    """Apply what is missing, all of it or nothing, while other processes that open the database wait.

    Raises `RuntimeError` for a database that a newer version has already changed.
    """
    with engine.connect() as connection:
        be_patient(connection, True)
        with connection.begin():
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7305805)")
            _migrate(connection)
        be_patient(connection, False)


def _migrate(connection: Connection) -> None:
    schema_version.create(connection, checkfirst=True)
    found = connection.execute(select(schema_version.c.version)).scalar()
    version = found or 0
    if version > len(MIGRATIONS):
        raise RuntimeError(f"the span database is of version {version}, this program knows up to {len(MIGRATIONS)}")
    for step in MIGRATIONS[version:]:
        step(connection)
    if found is None:
        connection.execute(insert(schema_version), {"version": len(MIGRATIONS)})
    elif version < len(MIGRATIONS):
        connection.execute(update(schema_version), {"version": len(MIGRATIONS)})
