"""Telling which spans belong to a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .. import span_json
from .record import StoredSpan, TooLargeError

_Row = Sequence[Any]
"""Number, trace, id, conversation, digest, time of arrival, body, whether it was contradicted; and of the
conversation the last number that was sealed, and as which trial."""


class Gathering:
    """Collect the spans of a conversation out of the rows of its traces."""

    def __init__(self, conversation_id: str, most_spans: int, most_bytes: int) -> None:
        self._id = conversation_id
        self._most_spans = most_spans
        self._left_bytes = most_bytes
        self.sealed_as: str | None = None
        self.last_received_at = 0.0
        self._rows = 0
        self._spans: list[StoredSpan] = []
        self._nobodys: list[_Row] = []
        self._owners: dict[str, set[str]] = {}

    def take(self, rows: Sequence[_Row]) -> None:
        """Take in some more rows; raises `TooLargeError` when it is too much."""
        self._rows += len(rows)
        for row in rows:
            conversation_id = row[3]
            if conversation_id is None:
                self._nobodys.append(row)
                self._left_bytes -= len(row[6])
            else:
                self._owners.setdefault(row[1], set()).add(conversation_id)
                if conversation_id == self._id:
                    self._keep(row)
                    self._left_bytes -= len(row[6])
        if len(self._spans) > self._most_spans or self._rows > 2 * self._most_spans or self._left_bytes < 0:
            raise TooLargeError(f"the conversation is beyond what is shown at once, {self._most_spans} spans")

    def _keep(self, row: _Row) -> None:
        seq, trace_id, span_id, _, digest, received_at, body, conflict, last_sealed, self.sealed_as = row
        self.last_received_at = max(self.last_received_at, received_at)
        late = last_sealed is not None and seq > last_sealed
        self._spans.append(StoredSpan(span_json.load(trace_id, span_id, body), conflict, late, seq, bytes(digest)))

    def finish(self) -> list[StoredSpan]:
        """Return the spans, oldest first, with those of no conversation in a trace that has no other."""
        for row in self._nobodys:
            if self._owners.get(row[1]) == {self._id}:
                self._keep(row)
        self._nobodys.clear()
        self.take(())
        self._spans.sort(key=lambda entry: (entry.span.start_ns, entry.seq))
        return self._spans


def belonging(rows: Iterable[Any]) -> dict[str, list[Any]]:
    """Sort the rows of whole traces by conversation; one without any goes with its trace, where that has just one."""
    rows = list(rows)
    owners: dict[str, set[str]] = {}
    for row in rows:
        if row.conversation_id is not None:
            owners.setdefault(row.trace_id, set()).add(row.conversation_id)
    found: dict[str, list[Any]] = {}
    for row in rows:
        owned_by = owners.get(row.trace_id, ()) if row.conversation_id is None else (row.conversation_id,)
        if len(owned_by) == 1:
            found.setdefault(next(iter(owned_by)), []).append(row)
    return found
