"""Working unseen: in a process that is traced, the ingest must not make spans of keeping spans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context

# The instrumentations' own switch; older versions of the API have no name for it.
_SWITCHES = tuple(
    getattr(context, name)
    for name in ("_SUPPRESS_INSTRUMENTATION_KEY", "_SUPPRESS_HTTP_INSTRUMENTATION_KEY")
    if hasattr(context, name)
)


@contextmanager
def untraced() -> Iterator[None]:
    """Keep instrumentations from tracing what is done in here, and in tasks that are started in here."""
    token = context.attach(_silent())
    try:
        yield
    finally:
        context.detach(token)


def stay_untraced() -> None:
    """Keep instrumentations from tracing what this thread does, for good."""
    context.attach(_silent())


def _silent() -> context.Context:
    silent = context.get_current()
    for switch in (*_SWITCHES, "suppress_instrumentation"):
        silent = context.set_value(switch, True, silent)
    return silent
