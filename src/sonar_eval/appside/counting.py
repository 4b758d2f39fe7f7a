"""Counting spans where they are made, so that whoever receives them can tell whether all of them came.

A flush proves nothing: it reports success for batches that were refused or dropped. A count does.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
import weakref
from dataclasses import dataclass, field

import sonar_tracing
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from ..transcript import wire

_CONVERSATION = "sonar.conversation.id"


@dataclass
class _Count:
    started: int = 0
    ended: int = 0
    xor: int = 0
    open: set[int] = field(default_factory=set)


class CountingSpanProcessor(SpanProcessor):
    """Count the spans of each conversation; install it after `sonar_tracing.init()`, which names conversations."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        # A forked child inherits the counts of its parent, whose spans it will never export.
        self._lock = threading.Condition()
        self._counts: dict[str, _Count] = {}
        self.process_id = uuid.uuid4().hex

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Count a span of a conversation; all others are none of ours."""
        conversation = (span.attributes or {}).get(_CONVERSATION)
        context = span.get_span_context()
        if span.name == wire.MARKER_NAME or not isinstance(conversation, str) or context is None:
            return
        with self._lock:
            count = self._counts.setdefault(conversation, _Count())
            count.started += 1
            count.xor ^= context.span_id
            count.open.add(context.span_id)

    def on_end(self, span: ReadableSpan) -> None:
        """Note that a counted span has ended."""
        conversation = (span.attributes or {}).get(_CONVERSATION)
        context = span.get_span_context()
        if not isinstance(conversation, str) or context is None:
            return
        with self._lock:
            count = self._counts.get(conversation)
            if count is not None and context.span_id in count.open:
                count.open.discard(context.span_id)
                count.ended += 1
                self._lock.notify_all()

    def wait_until_ended(self, conversation_id: str, patience_s: float) -> bool:
        """Block until every span of a conversation has ended; returns whether that came in time."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._is_open(conversation_id), patience_s)

    def has_open(self, conversation_id: str) -> bool:
        """Tell whether a span of a conversation has begun and not ended."""
        with self._lock:
            return self._is_open(conversation_id)

    def _is_open(self, conversation_id: str) -> bool:
        count = self._counts.get(conversation_id)
        return bool(count and count.open)

    def take(self, conversation_id: str) -> _Count | None:
        """Return the counts of a conversation and forget them; None when this process made no span of it."""
        with self._lock:
            return self._counts.pop(conversation_id, None)

    def shutdown(self) -> None:
        """Keep nothing open."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Have nothing to flush."""
        return True


_installed: CountingSpanProcessor | None = None
_installed_on: TracerProvider | None = None
_install_lock = threading.Lock()


def count_spans() -> CountingSpanProcessor | None:
    """Install the counter in this process, once; returns None while nothing is traced."""
    global _installed, _installed_on
    state = sonar_tracing.current_state()
    provider = state.provider if state is not None else None
    if not isinstance(provider, TracerProvider):
        return None
    with _install_lock:
        if _installed is None or _installed_on is not provider:
            _installed, _installed_on = CountingSpanProcessor(), provider
            provider.add_span_processor(_installed)
        return _installed


async def end_trial(conversation_id: str, *, tenant_id: str | None = None, patience_s: float = 5.0) -> bool:
    """Flush, and send the end marker with what was counted; returns whether a marker was sent.

    Waits up to `patience_s` for spans that are still open, as of background work. A process that counted
    nothing sends no marker: what it knows of the conversation proves nothing.
    """
    counter = _installed
    if counter is None:
        await flush_spans()
        return False
    if counter.has_open(conversation_id):
        await asyncio.to_thread(counter.wait_until_ended, conversation_id, patience_s)
    count = counter.take(conversation_id)
    if count is None:
        await flush_spans()
        return False
    attributes: dict[str, str | int] = {
        wire.MARKER_STARTED: count.started,
        wire.MARKER_ENDED: count.ended,
        wire.MARKER_XOR: f"{count.xor:016x}",
        wire.MARKER_PROCESS: counter.process_id,
    }
    with sonar_tracing.identity(conversation_id=conversation_id, tenant_id=tenant_id, force_sample=True):
        tracer = trace.get_tracer("sonar_eval.appside")
        # A trace of its own: it must not look like part of a turn.
        tracer.start_span(wire.MARKER_NAME, context=Context(), attributes=attributes).end()
    await flush_spans()
    return True


class _Flusher:
    """Flush for everybody who asked before it began; who asks later shares the next one."""

    def __init__(self) -> None:
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def flush(self) -> None:
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
        # One who gives up waiting must not end it for the others.
        await asyncio.shield(self._next)

    async def _after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        await asyncio.to_thread(sonar_tracing.force_flush)


_flushers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Flusher] = weakref.WeakKeyDictionary()


async def flush_spans() -> None:
    """Export what this process has made so far; many who ask at once share one flush."""
    await _flushers.setdefault(asyncio.get_running_loop(), _Flusher()).flush()
