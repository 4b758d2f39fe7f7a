"""Where spans are kept."""

from .store import SpanStore

__all__ = ["SpanStore"]
