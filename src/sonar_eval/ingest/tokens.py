"""How many tokens a run used, each model call counted once.

A model call of which nothing tells what it took, itself or through its agent, leaves the sum unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .mapped import Forest, Mapped

_CALLS, _AGENTS = "llm spans", "agent totals"
_Key = tuple[str, str]
_Pair = tuple[int | None, int | None]
"""Input and output."""


class Tokens(NamedTuple):
    """What a run used; None where nothing tells."""

    input: int | None = None
    output: int | None = None
    basis: str | None = None
    input_at_least: int = 0
    """The part that is known where not all of it is."""
    output_at_least: int = 0


class _Agent(NamedTuple):
    """An agent with a total of its own."""

    entry: Mapped
    used: _Pair
    """In this run alone, as far as the span tells."""
    returned: bool
    """Whether it had a run before: its total may go back to then, which not every framework says."""


class _Sum(NamedTuple):
    """One side of a run's tokens, input or output."""

    known: int
    whole: bool
    bases: frozenset[str]

    @property
    def total(self) -> int | None:
        return self.known if self.whole and self.bases else None


def tokens_by_trace(traces: Mapping[str, Sequence[Mapped]], forest: Forest) -> dict[str, Tokens]:
    """Count each trace by its model calls, else by its agents; `traces` are in the order of the conversation."""
    # Agents that go on where they stopped count on, so their earlier totals are part of the later ones.
    earlier: dict[tuple[str, str], _Pair] = {}
    return {trace_id: _of_trace(_Trace(trace, forest), earlier) for trace_id, trace in traces.items()}


def has_tokens(entry: Mapped) -> bool:
    """Tell whether a span has a count of its own."""
    return entry.reading.input_tokens is not None or entry.reading.output_tokens is not None


class _Trace:
    """The models of one trace, and the agents that count for them."""

    def __init__(self, trace: Sequence[Mapped], forest: Forest) -> None:
        self._models = [entry for entry in trace if entry.kind == "llm"]
        self.agents = [
            entry
            for entry in trace
            if entry.kind == "agent"
            and has_tokens(entry)
            and not any(above.kind == "agent" and has_tokens(above) for above in forest.above(entry))
        ]
        self._wrappers: set[_Key] = set()
        self._told_above: set[tuple[_Key, int]] = set()
        self._agent: dict[_Key, _Key] = {}
        for entry in self._models:
            self._look_up_from(entry, forest)

    def _look_up_from(self, entry: Mapped, forest: Forest) -> None:
        for above in forest.above(entry):
            if above.kind == "llm":
                self._wrappers.add(above.key)
                self._told_above |= {(entry.key, side) for side in (0, 1) if _own(above)[side] is not None}
            elif above.kind == "agent" and has_tokens(above):
                # The topmost is the last one met.
                self._agent[entry.key] = above.key

    def told(self, side: int) -> list[Mapped]:
        """List the model calls that tell this side, each once."""
        counted: dict[object, Mapped] = {}
        for entry in self._models:
            if _own(entry)[side] is not None and (entry.key, side) not in self._told_above:
                # One response may be told by two instrumentors side by side.
                told = entry.reading.response_id
                counted.setdefault(entry.key if told is None else (told, _own(entry)), entry)
        return list(counted.values())

    def silent(self, side: int, told: Iterable[Mapped]) -> list[Mapped]:
        """List the model calls that do not tell this side, nor does anything of the same call."""
        tellers: dict[str | None, set[str]] = defaultdict(set)
        for entry in told:
            tellers[entry.reading.response_id].add(entry.span.scope)
        return [
            entry
            for entry in self._models
            if _own(entry)[side] is None
            and entry.key not in self._wrappers
            and (entry.key, side) not in self._told_above
            and not (entry.reading.response_id and tellers[entry.reading.response_id] - {entry.span.scope})
        ]

    def by_agent(self, entries: Iterable[Mapped]) -> dict[_Key | None, list[Mapped]]:
        """Sort model calls under the agents that count for them; None where there is none."""
        found: dict[_Key | None, list[Mapped]] = defaultdict(list)
        for entry in entries:
            found[self._agent.get(entry.key)].append(entry)
        return found


def _of_trace(trace: _Trace, earlier: dict[tuple[str, str], _Pair]) -> Tokens:
    agents = _agents(trace, earlier)
    prompt, completion = (_count(trace, agents, side) for side in (0, 1))
    bases = sorted(prompt.bases | completion.bases, reverse=True)
    return Tokens(
        prompt.total, completion.total, " and ".join(bases) if bases else None, prompt.known, completion.known
    )


def _agents(trace: _Trace, earlier: dict[tuple[str, str], _Pair]) -> list[_Agent]:
    """Say what each agent of a trace used, and note its total."""
    before = set(earlier)
    found = []
    for entry in trace.agents:
        name, total = (entry.span.scope, entry.span.name), _own(entry)
        used = _since(earlier.get(name), total) if entry.reading.cumulative else total
        found.append(_Agent(entry, used, name in before))
        earlier[name] = total
    return found


def _count(trace: _Trace, agents: Sequence[_Agent], side: int) -> _Sum:
    told = trace.told(side)
    silent = trace.silent(side, told)
    told_by, silent_by = trace.by_agent(told), trace.by_agent(silent)
    totals: dict[_Key, int] = {}
    whole = True
    for agent in agents:
        key, total = agent.entry.key, agent.used[side]
        below = sum(_own(entry)[side] or 0 for entry in told_by[key])
        if total is None:
            whole = whole and bool(told)
        elif silent_by[key]:
            # A total that is no more than what the others told counts a silent call as nothing.
            if total > below and not (told_by[key] and agent.returned):
                totals[key] = total
        elif not told:
            totals[key] = total
    under = {entry.key for key in totals for entry in (*told_by[key], *silent_by[key])}
    calls = [_own(entry)[side] or 0 for entry in told if entry.key not in under]
    bases = {basis for basis, found in ((_CALLS, calls), (_AGENTS, totals)) if found}
    return _Sum(
        sum(calls) + sum(totals.values()),
        whole and all(entry.key in under for entry in silent),
        frozenset(bases),
    )


def _own(entry: Mapped) -> _Pair:
    return entry.reading.input_tokens, entry.reading.output_tokens


def _since(before: _Pair | None, total: _Pair) -> _Pair:
    """Subtract an earlier total; one that is larger belongs to an agent that no longer counts on."""
    if before is None or any(map(_is_less, total, before)):
        return total
    return _minus(total[0], before[0]), _minus(total[1], before[1])


def _is_less(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one < other


def _minus(one: int | None, other: int | None) -> int | None:
    return None if one is None else one - (other or 0)
