"""How many of a run's input tokens came from a provider's cache, each model call counted once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .mapped import Forest, Mapped


def cached_by_trace(traces: Mapping[str, Sequence[Mapped]], forest: Forest) -> dict[str, int]:
    """Count each trace by its model calls, else by its agents; `traces` are in the order of the conversation.

    Of calls that do not tell, none: a discount is not made up.
    """
    # Agents that go on where they stopped count on, as they do with all their tokens.
    earlier: dict[tuple[str, str], int] = {}
    found = {}
    for trace_id, trace in traces.items():
        if not any(entry.reading.cached_tokens for entry in trace):
            found[trace_id] = 0
            continue
        agents = _of_agents(trace, forest, earlier)
        calls = _of_calls(trace, forest)
        found[trace_id] = agents if calls is None else calls
    return found


def _of_calls(trace: Sequence[Mapped], forest: Forest) -> int | None:
    counted: dict[object, int] = {}
    for entry in _outermost(trace, "llm", forest):
        # One response may be told by two instrumentors side by side, and by one of them without its cache.
        told, tokens = entry.reading.response_id, entry.reading.input_tokens
        call = entry.key if told is None else (told, tokens)
        counted[call] = max(counted.get(call, 0), _cached(entry))
    return sum(counted.values()) if counted else None


def _of_agents(trace: Sequence[Mapped], forest: Forest, earlier: dict[tuple[str, str], int]) -> int:
    used = 0
    for entry in _outermost(trace, "agent", forest):
        agent, total = (entry.span.scope, entry.span.name), _cached(entry)
        before = earlier.get(agent, 0) if entry.reading.cumulative else 0
        used += total - before if before <= total else total
        earlier[agent] = total
    return used


def _outermost(trace: Sequence[Mapped], kind: str, forest: Forest) -> list[Mapped]:
    """List the spans of a kind that tell their input, and none of that kind above them that does."""
    return [
        entry
        for entry in trace
        if entry.kind == kind
        and entry.reading.input_tokens is not None
        and not any(above.kind == kind and above.reading.input_tokens is not None for above in forest.above(entry))
    ]


def _cached(entry: Mapped) -> int:
    """Return the part of the input that was cached, and never more than there was of it."""
    return min(entry.reading.cached_tokens or 0, entry.reading.input_tokens or 0)
