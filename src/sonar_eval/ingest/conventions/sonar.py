"""What sonar-tracing and this package write themselves: faults, and redaction markers."""

from __future__ import annotations

from ..span import Span
from ..values import plain_text
from .contract import Convention, Reading

_FAULT = "sonar.eval.fault."


class Sonar(Convention):
    """Read the `sonar.*` attributes."""

    roots = frozenset(("sonar",))

    def read(self, span: Span, kind: str) -> Reading | None:
        """Say what fault the bot marked the span with."""
        fault = {
            key.removeprefix(_FAULT): plain_text(value).value
            for key, value in span.attributes.items()
            if key.startswith(_FAULT)
        }
        return Reading(fault=fault) if fault else None
