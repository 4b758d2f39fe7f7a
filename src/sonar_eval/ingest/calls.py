"""Which spans and messages are the same tool call, and which calls no span tells of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .conventions import MessageReading
from .mapped import Forest, Mapped

_Key = tuple[str, str]


@dataclass(frozen=True)
class UnseenCall:
    """A call that only the output of a model tells of."""

    asker: Mapped
    number: int
    """Its place among the unseen calls of the asker."""
    asked: MessageReading
    result: MessageReading | None

    @property
    def span_id(self) -> str:
        """An id for its row, which no span has."""
        return f"{self.asker.span.span_id}/{self.number}"


def with_ids(mapped: list[Mapped]) -> list[Mapped]:
    """Give calls that a model's output has no ids for those that later inputs have, by name and order."""
    asked = [(entry, place) for entry in mapped for place in _asked_without_id(entry)]
    if not asked:
        return mapped
    taken = {message.call_id for entry in mapped for message in entry.reading.messages if message.output}
    ids: dict[str | None, dict[str, None]] = defaultdict(dict)
    for entry in mapped:
        for message in entry.reading.messages:
            if _is_call(message) and not message.output and message.call_id and message.call_id not in taken:
                ids[message.name][message.call_id] = None
    for entry, place in asked:
        messages = entry.reading.messages
        call_id = next(iter(ids[messages[place].name]), None)
        if call_id is not None:
            del ids[messages[place].name][call_id]
            messages[place] = replace(messages[place], call_id=call_id)
    return mapped


def _asked_without_id(entry: Mapped) -> list[int]:
    messages = enumerate(entry.reading.messages)
    return [place for place, message in messages if message.output and _is_call(message) and not message.call_id]


def _is_call(message: MessageReading) -> bool:
    return message.kind == "tool_arguments"


def fold_nested(mapped: Sequence[Mapped]) -> list[Mapped]:
    """Make one call of a tool span and the spans of the same tool below it, as when a framework's tool asks MCP."""
    if sum(entry.kind == "tool" for entry in mapped) < 2:
        return list(mapped)
    forest = Forest(mapped)
    outers = {entry.key: outer.key for entry in mapped if entry.kind == "tool" and (outer := _outer(entry, forest))}
    if not outers:
        return list(mapped)
    whole = _absorb({entry.key: entry for entry in mapped}, outers)
    return [_demoted(entry) if entry.key in outers else whole[entry.key] for entry in mapped]


def _absorb(whole: dict[_Key, Mapped], outers: Mapping[_Key, _Key]) -> dict[_Key, Mapped]:
    """Let every call take in those directly below it, from the bottom up."""
    waiting = Counter(outers.values())
    inner: dict[_Key, list[Mapped]] = defaultdict(list)
    ready = [key for key in outers if key not in waiting]
    while ready:
        key = ready.pop()
        outer = outers[key]
        inner[outer].append(whole[key])
        waiting[outer] -= 1
        if not waiting[outer]:
            whole[outer] = _with_inner(whole[outer], inner[outer])
            if outer in outers:
                ready.append(outer)
    return whole


def _outer(entry: Mapped, forest: Forest) -> Mapped | None:
    """Find the span of the same call above: a model or agent in between makes it another one."""
    for above in forest.above(entry):
        if above.kind in ("llm", "agent"):
            return None
        if above.kind == "tool" and above.reading.tool_name == entry.reading.tool_name:
            return above
    return None


def _demoted(entry: Mapped) -> Mapped:
    return replace(entry, reading=replace(entry.reading, kind="other"), arguments=None, result=None)


def _with_inner(outer: Mapped, inner: Sequence[Mapped]) -> Mapped:
    """Take from the spans below what the outer one lacks, and the failure of the last attempt."""
    reading = replace(outer.reading)
    last = max(inner, key=lambda entry: (entry.span.start_ns, entry.span.end_ns))
    if last.reading.success is False and reading.success is not False:
        reading.success, reading.success_basis = False, f"nested span: {last.reading.success_basis}"
        reading.error_type = last.reading.error_type
        reading.error_message = last.reading.error_message
    reading.call_id = reading.call_id or last.reading.call_id
    return replace(
        outer,
        reading=reading,
        arguments=outer.arguments or last.arguments,
        result=outer.result or last.result,
    )


def repeated_models(mapped: Sequence[Mapped], forest: Forest) -> set[_Key]:
    """Name the model spans that repeat one above them: two instrumentors told of the same call."""
    speaking = {entry.key for entry in mapped if entry.kind == "llm" and entry.reading.messages}
    return {
        entry.key
        for entry in mapped
        if entry.kind == "llm" and any(above.key in speaking for above in forest.above(entry) if above.kind == "llm")
    }


def unseen_calls(mapped: Sequence[Mapped], repeated: set[_Key]) -> list[UnseenCall]:
    """List the calls that models asked for and no span shows, each with the result that a later message brings."""
    asked = list(_asked(mapped, repeated))
    if not asked:
        return []
    unseen = _without_spans(asked, [entry for entry in mapped if entry.kind == "tool"])
    results = _results(mapped)
    numbers: dict[_Key, int] = defaultdict(int)
    found = []
    for asker, message in unseen:
        result = results.get(message.call_id) if message.call_id else None
        found.append(UnseenCall(asker, numbers[asker.key], message, result))
        numbers[asker.key] += 1
    return found


def _asked(mapped: Iterable[Mapped], repeated: set[_Key]) -> Iterator[tuple[Mapped, MessageReading]]:
    seen = set()
    for entry in mapped:
        if entry.kind != "llm" or entry.key in repeated:
            continue
        for message in entry.reading.messages:
            if message.output and _is_call(message):
                if message.call_id is None or (message.call_id, message.name) not in seen:
                    yield entry, message
                seen.add((message.call_id, message.name))


def _without_spans(
    asked: Sequence[tuple[Mapped, MessageReading]], tools: Iterable[Mapped]
) -> list[tuple[Mapped, MessageReading]]:
    """Drop the calls that a span shows: one with the same id, else the next one of that name that has no other call."""
    asked_ids = {message.call_id for _, message in asked if message.call_id}
    shown_ids: set[str | None] = set()
    spare: dict[str | None, int] = defaultdict(int)
    for tool in tools:
        if tool.reading.call_id in asked_ids:
            shown_ids.add(tool.reading.call_id)
        else:
            spare[tool.reading.tool_name] += 1
    unseen = []
    for asker, message in asked:
        if message.call_id in shown_ids:
            continue
        if spare[message.name] > 0:
            spare[message.name] -= 1
        else:
            unseen.append((asker, message))
    return unseen


def _results(mapped: Iterable[Mapped]) -> dict[str, MessageReading]:
    found: dict[str, MessageReading] = {}
    for entry in mapped:
        for message in entry.reading.messages:
            if message.kind == "tool_result" and message.call_id:
                found.setdefault(message.call_id, message)
    return found
