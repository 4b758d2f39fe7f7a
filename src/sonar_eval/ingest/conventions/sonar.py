"""What sonar-tracing and this package write themselves: faults, and redaction markers."""

from __future__ import annotations

from ..span import Span
from .contract import Reading

_FAULT = "sonar.eval.fault."


class Sonar:
    """Read the `sonar.*` attributes."""

    def read(self, span: Span) -> Reading:
        """Say what fault the bot marked the span with."""
        fault = {key.removeprefix(_FAULT): value for key, value in span.attributes.items() if key.startswith(_FAULT)}
        return Reading(fault=fault or None)
