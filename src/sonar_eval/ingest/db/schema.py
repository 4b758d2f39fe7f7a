"""The tables."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Index, Integer, MetaData, String, Table, UniqueConstraint

metadata = MetaData()

spans = Table(
    "span",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("trace_id", String(32), nullable=False),
    Column("span_id", String(16), nullable=False),
    Column("conversation_id", String),
    Column("start_ns", BigInteger, nullable=False),
    # The whole span as it came: the mapping is done when it is read, so that it can be done again, better.
    Column("body", JSON, nullable=False),
    UniqueConstraint("tenant", "trace_id", "span_id"),
    Index("span_by_conversation", "tenant", "conversation_id"),
)
