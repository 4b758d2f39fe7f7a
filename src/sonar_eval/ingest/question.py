"""What may be asked about a conversation, read out of the parameters of a query."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..transcript.wire import MOST_DIGESTS

MAX_WAIT_S = 25.0
QUIET_S = 11.0
"""A bot with the default 5 s export timer, and one retry, fit into this."""
MAX_LEVEL = 3
MAX_PAGE = 1000
VIEWS = ("conversation", "digest")
_PAGE = 100
_WHOLE = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?([eE][-+]?[0-9]{1,3})?")
_LARGEST = 1e9


class BadQuery(Exception):
    """A query that is answered with `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ConversationQuery:
    """What the asker wants to know, and how long it is willing to wait; moments are the monotonic clock."""

    wait_s: float = 0.0
    first_s: float = 0.0
    """Of that, how long for the first span."""
    min_level: int = 1
    turns: int | None = None
    traces: tuple[str, ...] = ()
    began: float | None = None
    """When the conversation began."""
    quiet_s: float = QUIET_S
    seal: str | None = None
    """The trial that is graded by the answer."""
    view: str = VIEWS[0]
    asked: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, params: Mapping[str, str]) -> ConversationQuery:
        """Read query parameters; unknown ones are left alone. Raises `BadQuery` for those that make no sense."""
        asked = time.monotonic()
        since = _number(params, "since")
        seal, view = params.get("seal") or None, params.get("view", VIEWS[0])
        if seal is not None and "\x00" in seal:
            raise BadQuery(400, "seal: expected the id of a trial")
        if view not in VIEWS:
            raise BadQuery(400, f"view: expected one of {', '.join(VIEWS)}, got {view[:40]!r}")
        quiet, min_level = _number(params, "quiet"), _whole(params, "min_level", most=MAX_LEVEL)
        return cls(
            min(_number(params, "wait") or 0.0, MAX_WAIT_S),
            min(_number(params, "first") or 0.0, MAX_WAIT_S),
            1 if min_level is None else min_level,
            _whole(params, "turns"),
            tuple(part.lower() for part in params.get("traces", "").split(",") if part),
            # Now, as the window would wander while the asker waits.
            None if since is None else asked - since,
            QUIET_S if quiet is None else quiet,
            seal,
            view,
            asked,
        )


@dataclass(frozen=True)
class ListQuery:
    """Which page of the list of conversations."""

    limit: int = _PAGE
    before: int | None = None

    @classmethod
    def of(cls, params: Mapping[str, str]) -> ListQuery:
        """Read query parameters; raises `BadQuery` for those that make no sense."""
        limit = _whole(params, "limit", least=1, most=MAX_PAGE)
        return cls(_PAGE if limit is None else limit, _whole(params, "before", most=2**62))


def digest_ids(ids: Sequence[str]) -> list[str]:
    """Read which conversations are asked about; raises `BadQuery` for none, or too many."""
    if not 1 <= len(ids) <= MOST_DIGESTS:
        raise BadQuery(400, f"id: expected 1 to {MOST_DIGESTS} conversations, got {len(ids)}")
    # PostgreSQL keeps no text with a NUL in it, and cannot be asked for any.
    return [each for each in ids if "\x00" not in each]


def _number(params: Mapping[str, str], name: str) -> float | None:
    if name not in params:
        return None
    value = float(params[name]) if _NUMBER.fullmatch(params[name]) else -1.0
    if not 0 <= value <= _LARGEST:
        raise BadQuery(400, f"{name}: expected a number from 0 to {_LARGEST:.0f}, got {params[name][:40]!r}")
    return value


def _whole(params: Mapping[str, str], name: str, *, least: int = 0, most: int = int(_LARGEST)) -> int | None:
    if name not in params:
        return None
    value = int(params[name]) if _WHOLE.fullmatch(params[name]) else -1
    if not least <= value <= most:
        raise BadQuery(400, f"{name}: expected a whole number from {least} to {most}, got {params[name][:40]!r}")
    return value
