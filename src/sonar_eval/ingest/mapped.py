"""A span with its meaning, and its place among the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .conventions import Reading
from .conventions.envelopes import Unwrapped
from .span import Span
from .values import Plain

# Real traces are a few dozen levels deep; one that is made to be deeper must not cost more.
_MAX_HEIGHT = 300


@dataclass(frozen=True)
class Mapped:
    """A span with what it means."""

    span: Span
    reading: Reading
    arguments: Plain | None = None
    """What a tool was called with, out of its envelope; None when the span does not tell."""
    result: Unwrapped | None = None

    @property
    def kind(self) -> str:
        return self.reading.kind or "other"

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from any other: span ids are unique only within a trace."""
        return self.span.trace_id, self.span.span_id


class Forest:
    """The spans of a conversation by their parents."""

    def __init__(self, mapped: Sequence[Mapped]) -> None:
        self._by_key = {entry.key: entry for entry in mapped}

    def above(self, entry: Mapped) -> Iterator[Mapped]:
        """Climb from the parent to the root, to where a parent is missing, or once around a circle."""
        current = self._parent(entry)
        for _ in range(_MAX_HEIGHT):
            if current is None or current.key == entry.key:
                return
            yield current
            current = self._parent(current)

    def has_parent(self, entry: Mapped) -> bool:
        """Tell whether the parent of a span is here."""
        return self._parent(entry) is not None

    def _parent(self, entry: Mapped) -> Mapped | None:
        if entry.span.parent_span_id is None:
            return None
        return self._by_key.get((entry.span.trace_id, entry.span.parent_span_id))
