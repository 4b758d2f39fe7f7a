"""What one call took, over all that was asked for it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from .contract import Usage, add_usage


class Tab:
    """Add up what is noted; an exception that leaves the block carries the sum as its `usage`.

    A cancellation too: that time ran out makes nothing free of what was answered before.
    """

    def __init__(self) -> None:
        self._noted: list[Usage] = []

    @property
    def total(self) -> Usage | None:
        """Tell what was taken so far; None for nothing."""
        return add_usage(self._noted) if self._noted else None

    def note(self, usage: Usage | None) -> None:
        """Put one answer on the tab; None is no answer."""
        if usage is not None:
            self._noted.append(usage)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._noted:
            error.__dict__["usage"] = self.total
