"""Where spans are kept."""

from .engine import first_line
from .record import Added, Batch, Listed, Refused, Sealed, StoredConversation, StoredSpan, TooLargeError
from .store import SpanStore
from .untraced import stay_untraced, untraced
from .writer import SpanWriter, WriterClosedError

__all__ = [
    "Added",
    "Batch",
    "Listed",
    "Refused",
    "Sealed",
    "SpanStore",
    "SpanWriter",
    "StoredConversation",
    "StoredSpan",
    "TooLargeError",
    "WriterClosedError",
    "first_line",
    "stay_untraced",
    "untraced",
]
