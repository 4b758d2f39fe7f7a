"""The tables, as the newest migration leaves them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()
# SQLite counts by itself only in a column that is spelt INTEGER.
_Counter = BigInteger().with_variant(Integer, "sqlite")

spans = Table(
    "span",
    metadata,
    Column("seq", _Counter, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("trace_id", String(32), nullable=False),
    Column("span_id", String(16), nullable=False),
    Column("conversation_id", String),
    Column("start_ns", BigInteger, nullable=False),
    # Seconds since the epoch by the server's clock, for retention only.
    Column("received_at", Float, nullable=False),
    # The whole span as it came: the mapping is done when it is read, so that it can be done again, better.
    Column("body", Text, nullable=False),
    # Of the body: tells a span sent again from another span under the same ids.
    Column("digest", LargeBinary(16), nullable=False),
    UniqueConstraint("tenant", "trace_id", "span_id", name="span_once"),
    # Lists of conversations, and the traces of one, are read from this index alone.
    Index("span_by_conversation", "tenant", "conversation_id", "trace_id", "seq"),
    Index("span_by_age", "received_at"),
    # A number must not be given twice: late spans are told by it.
    sqlite_autoincrement=True,
)

conflicts = Table(
    "span_conflict",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("trace_id", String(32), primary_key=True),
    Column("span_id", String(16), primary_key=True),
    Column("times", Integer, nullable=False),
)

seals = Table(
    "seal",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("conversation_id", String, primary_key=True),
    Column("trial_id", String, nullable=False),
    # Spans of a higher number came after what was graded.
    Column("last_seq", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("sealed_at", Float, nullable=False),
)

refusals = Table(
    "refusal",
    metadata,
    Column("seq", _Counter, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("at", Float, nullable=False),
    Column("status", Integer, nullable=False),
    Column("reason", String, nullable=False),
    Column("spans", Integer),
    Index("refusal_by_tenant", "tenant", "at"),
    sqlite_autoincrement=True,
)

api_keys = Table(
    "api_key",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("tenant", String, nullable=False),
    Column("name", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
)

schema_version = Table("schema_version", metadata, Column("version", Integer, primary_key=True))
