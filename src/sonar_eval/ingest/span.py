"""One span as it arrived: nothing interpreted, nothing thrown away."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

StatusCode = Literal["UNSET", "OK", "ERROR"]

CONVERSATION_ID = "sonar.conversation.id"
TENANT_ID = "sonar.tenant.id"


@dataclass(frozen=True)
class SpanEvent:
    """Something that happened inside a span."""

    name: str
    time_ns: int
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Span:
    """A span; times are nanoseconds of the bot's clock, 0 when it gave none."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: int = 0
    start_ns: int = 0
    end_ns: int = 0
    status: StatusCode = "UNSET"
    status_message: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    flags: int = 0
    scope: str = ""
    resource: dict[str, Any] = field(default_factory=dict)

    @property
    def conversation_id(self) -> str | None:
        """The conversation it was made in; some frameworks make spans outside of any."""
        value = self.attributes.get(CONVERSATION_ID)
        # PostgreSQL keeps no text with a NUL in it, and no id that anybody would ask for has one.
        return value if isinstance(value, str) and value and "\x00" not in value else None

    @property
    def claimed_tenant(self) -> str | None:
        """The tenant it says it belongs to."""
        value = self.attributes.get(TENANT_ID) or self.resource.get(TENANT_ID)
        return value if isinstance(value, str) else None

    @property
    def has_remote_parent(self) -> bool:
        """Tell whether the parent is known to live in another process."""
        return self.flags & 0x300 == 0x300

    def first(self, *keys: str) -> Any:
        """Return the first of these attributes that is there and not empty."""
        for key in keys:
            value = self.attributes.get(key)
            if value is not None and value != "":
                return value
        return None
