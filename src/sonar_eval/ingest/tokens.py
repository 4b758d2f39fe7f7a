"""How many tokens a run used, each model call counted once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .mapped import Forest, Mapped


class Tokens(NamedTuple):
    """What a run used; None where nothing tells."""

    input: int | None = None
    output: int | None = None
    basis: str | None = None


def tokens_by_trace(traces: Mapping[str, Sequence[Mapped]], forest: Forest) -> dict[str, Tokens]:
    """Count each trace by its model calls, else by its agents; `traces` are in the order of the conversation."""
    # Agents that go on where they stopped count on, so their earlier totals are part of the later ones.
    earlier: dict[tuple[str, str], Tokens] = {}
    return {
        trace_id: _of_calls(trace, forest) or _of_agents(trace, forest, earlier) for trace_id, trace in traces.items()
    }


def has_tokens(entry: Mapped) -> bool:
    """Tell whether a span has a count of its own."""
    return entry.reading.input_tokens is not None or entry.reading.output_tokens is not None


def _of_calls(trace: Sequence[Mapped], forest: Forest) -> Tokens | None:
    counted: dict[object, Tokens] = {}
    for entry in _outermost(trace, "llm", forest):
        tokens = _own(entry)
        # One response may be told by two instrumentors side by side.
        told = entry.reading.response_id
        counted.setdefault(entry.key if told is None else (told, tokens), tokens)
    return _sum(list(counted.values()), "llm spans") if counted else None


def _of_agents(trace: Sequence[Mapped], forest: Forest, earlier: dict[tuple[str, str], Tokens]) -> Tokens:
    used = []
    for entry in _outermost(trace, "agent", forest):
        agent = (entry.span.scope, entry.span.name)
        total = _own(entry)
        used.append(_since(earlier.get(agent), total) if entry.reading.cumulative else total)
        earlier[agent] = total
    return _sum(used, "agent totals") if used else Tokens()


def _outermost(trace: Sequence[Mapped], kind: str, forest: Forest) -> list[Mapped]:
    """List the spans of a kind that have tokens, and none of that kind with tokens above them."""
    return [
        entry
        for entry in trace
        if entry.kind == kind
        and has_tokens(entry)
        and not any(above.kind == kind and has_tokens(above) for above in forest.above(entry))
    ]


def _own(entry: Mapped) -> Tokens:
    return Tokens(entry.reading.input_tokens, entry.reading.output_tokens)


def _since(before: Tokens | None, total: Tokens) -> Tokens:
    """Subtract an earlier total; one that is larger belongs to an agent that no longer counts on."""
    if before is None or _is_less(total.input, before.input) or _is_less(total.output, before.output):
        return total
    return Tokens(_minus(total.input, before.input), _minus(total.output, before.output))


def _is_less(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one < other


def _minus(one: int | None, other: int | None) -> int | None:
    return None if one is None else one - (other or 0)


def _sum(tokens: Sequence[Tokens], basis: str) -> Tokens:
    inputs = [entry.input for entry in tokens if entry.input is not None]
    outputs = [entry.output for entry in tokens if entry.output is not None]
    return Tokens(sum(inputs) if inputs else None, sum(outputs) if outputs else None, basis)
