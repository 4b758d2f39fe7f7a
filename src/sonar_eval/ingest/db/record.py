"""What goes into the store and what comes out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..span import Span


@dataclass(frozen=True)
class Batch:
    """The spans of one request, on behalf of one tenant."""

    tenant: str
    spans: Sequence[Span]


@dataclass(frozen=True)
class Added:
    """What became of a batch: how many were new, came again, or contradicted what was there."""

    stored: int
    repeated: int = 0
    conflicting: int = 0


@dataclass(frozen=True)
class StoredSpan:
    """A span with what the store knows about it."""

    span: Span
    conflict: bool = False
    late: bool = False
    """Whether it came after the conversation had been graded."""
    seq: int = 0
    digest: bytes = b""


@dataclass(frozen=True)
class StoredConversation:
    """The spans of a conversation, oldest first, at one moment."""

    spans: list[StoredSpan] = field(default_factory=list)
    sealed_as: str | None = None
    """The trial it was graded as."""
    last_received_at: float = 0.0
    """When the newest span was written, in seconds since the epoch."""

    @property
    def last_seq(self) -> int:
        """The number of the span that was written last."""
        return max((entry.seq for entry in self.spans), default=0)

    @cached_property
    def digest(self) -> str:
        """What tells this state of the conversation from any other: ids and contents of all its spans."""
        return digest_of((entry.span.trace_id, entry.span.span_id, entry.digest) for entry in self.spans)


@dataclass(frozen=True)
class Sealed:
    """What a conversation looked like when it was graded."""

    trial_id: str
    digest: str


@dataclass(frozen=True)
class Listed:
    """One conversation in a list."""

    conversation_id: str
    spans: int
    last_received_at: float
    last_seq: int


@dataclass(frozen=True)
class Refused:
    """A request, or some spans of one, that was not taken; `at` is seconds since the epoch."""

    tenant: str
    at: float
    status: int
    reason: str


class TooLargeError(Exception):
    """A conversation is beyond what may be read at once."""


def digest_of(entries: Iterable[tuple[str, str, bytes]]) -> str:
    """Sum up the traces, ids and digests of spans, in whatever order they are given."""
    summed = hashlib.sha256()
    for trace_id, span_id, digest in sorted(entries):
        summed.update(trace_id.encode() + span_id.encode() + bytes(digest))
    return summed.hexdigest()
