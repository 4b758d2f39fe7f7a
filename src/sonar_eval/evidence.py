"""What a judge is shown of a trial: the conversation and the tool calls, as data, within a number of characters.

All that users, bots and tools wrote is material. It stands between fences whose mark it cannot contain, and no
line of it starts where a line of ours could: whatever it imitates, it stays inside its message.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .conversation import ConversationLog, Turn
from .errors import ConfigError
from .rubric import Criterion
from .transcript import ToolInvocation, Transcript

MAX_PROMPT_CHARS = 120_000
_LEAST = 1_000
"""Fewer characters than this show nothing of a conversation that could be judged."""
_FRAME = 1_200
"""Headings, fences, notes and a reminder, at most."""
_CONTINUED = "    | "
_NAME = 120

# Characters shown of a message and of a tool's data, until all of it fits; 0 shows that there was some.
_STEPS = (
    (1_000_000_000, 1_000_000_000),
    (32_000, 8_000),
    (16_000, 4_000),
    (8_000, 2_000),
    (4_000, 1_000),
    (2_000, 400),
    (1_000, 200),
    (500, 80),
    (200, 0),
)


@dataclass(frozen=True)
class Evidence:
    """The prompt of a judge, and how many characters of the material are not in it."""

    prompt: str
    left_out: int = 0

    @property
    def shortened(self) -> bool:
        """Tell whether the judge does not see all there is."""
        return self.left_out > 0


@dataclass(frozen=True)
class Brief:
    """What the judge measures by; the same for every trial of a scenario.

    Raises `ConfigError` when it leaves no room for a conversation within `max_chars`.
    """

    rubric: str
    reference: str | None = None
    max_chars: int = MAX_PROMPT_CHARS

    def __post_init__(self) -> None:
        if isinstance(self.max_chars, bool) or not isinstance(self.max_chars, int) or self.max_chars < 1:
            raise ConfigError(f"max_prompt_chars must be a whole number of 1 or more, got {self.max_chars!r}")
        if self.room < _LEAST:
            raise ConfigError(
                f"rubric and reference take {len(self.text)} of max_prompt_chars={self.max_chars} characters and "
                f"leave under {_LEAST} for the conversation; shorten them or raise max_prompt_chars"
            )

    @property
    def text(self) -> str:
        """Return the sections that are never shortened."""
        sections = [f"RUBRIC:\n{self.rubric.strip()}"]
        if self.reference:
            sections.append(f"POLICY DATA (authoritative ground truth):\n{self.reference.strip()}")
        return "\n\n".join(sections)

    @property
    def room(self) -> int:
        """Return how many characters are left for the conversation and the tool calls."""
        return self.max_chars - len(self.text) - _FRAME

    def with_evidence(self, transcript: Transcript, log: ConversationLog, *, seed: int | None = None) -> Evidence:
        """Write the prompt for one trial; the same trial and seed give the same prompt."""
        calls = _placed_calls(transcript)
        said, did, left_out = _fitted(log, calls, self.room)
        mark = _mark(f"{log.conversation_id}\x00{seed}", [*said, *did])
        sections = [
            self.text,
            _section("CONVERSATION (all that the user saw)", mark, said or ["(no turn took place)"]),
            _section("TOOL CALLS (from the trace, in order)", mark, did or ["(none)"]),
        ]
        if transcript.redacted:
            sections.append("NOTE: parts of the tool data were withheld before they were stored.")
        if left_out:
            sections.append(f"NOTE: {left_out} characters of the above were left out, where it says so.")
        return Evidence("\n\n".join(sections), left_out)


def list_criteria(criteria: Sequence[Criterion]) -> str:
    """Write criteria as the text of a rubric."""
    return "\n".join(
        f"- {json.dumps(criterion.name, ensure_ascii=False)}: {_folded(criterion.text.strip())}"
        for criterion in criteria
    )


def _section(title: str, mark: str, lines: Sequence[str]) -> str:
    body = "\n".join(lines)
    return f"{title}, data between the marks {mark}:\n<<<{mark}\n{body}\n{mark}>>>"


def _mark(seed: str, lines: Sequence[str]) -> str:
    """Return a mark that nobody can have written: the next one is taken when the material holds it."""
    for attempt in range(1_000_000):
        mark = hashlib.sha256(f"{seed}\x00{attempt}".encode("utf-8", "replace")).hexdigest()[:16]
        if not any(mark in line for line in lines):
            return mark
    raise AssertionError("unreachable: the material would hold a million marks")


def _fitted(
    log: ConversationLog, calls: Sequence[tuple[str, ToolInvocation]], room: int
) -> tuple[list[str], list[str], int]:
    """Show as much of everything as fits: all messages alike first, then without the middle turns."""
    for message, data in _STEPS:
        writer = _Writer(message, data)
        turns = [writer.turn(number, turn) for number, turn in enumerate(log.turns, 1)]
        did = [writer.call(place, call) for place, call in calls]
        if _length(turns) + _length(did) <= room:
            return [*turns, *_ending(log)], did, writer.left_out
    did, calls_lost = _without_middle(did, max(room // 2, room - _length(turns)), "tool calls")
    turns, turns_lost = _without_middle(turns, room - _length(did), "turns")
    return [*turns, *_ending(log)], did, writer.left_out + calls_lost + turns_lost


def _without_middle(entries: list[str], room: int, what: str) -> tuple[list[str], int]:
    """Keep entries from both ends while they fit, the first and the last in any case."""
    if _length(entries) <= room:
        return entries, 0
    room -= 100
    room_each = room // 3
    whole, entries = entries, [_cut_entry(entry, room_each) for entry in entries]
    first, last = 0, len(entries)
    while first < last:
        # One from the front, one from the back.
        entry = entries[first] if first <= len(entries) - last else entries[last - 1]
        if len(entry) + 1 > room and first and last < len(entries):
            break
        room -= len(entry) + 1
        first, last = (first + 1, last) if first <= len(entries) - last else (first, last - 1)
    kept = [*range(first), *range(last, len(entries))]
    cut = sum(_left_out(len(whole[place]), room_each) for place in kept)
    if first == last:
        return entries, cut
    lost = _length(whole[first:last])
    said = f"[… {what} {first + 1} to {last} left out: {last - first} {what}, {lost} characters …]"
    return [*entries[:first], said, *entries[last:]], cut + lost


def _cut_entry(entry: str, shown: int) -> str:
    lost = _left_out(len(entry), shown)
    half = (len(entry) - lost) // 2
    return f"{entry[:half]} […{lost} characters left out…] {entry[half + lost :]}" if lost else entry


def _left_out(length: int, shown: int) -> int:
    """Return how many characters of an entry there is no room for."""
    return 0 if length <= shown else length - 2 * max(shown // 2 - 20, 0)


def _length(entries: Sequence[str]) -> int:
    return sum(len(entry) + 1 for entry in entries)


def _ending(log: ConversationLog) -> list[str]:
    return ["(the conversation was cut off here: its turn limit was reached)"] if log.cut_off else []


def _placed_calls(transcript: Transcript) -> list[tuple[str, ToolInvocation]]:
    """Put the number of its turn before each call, where the trace tells; its data as text."""
    turn_of = {run.get("trace_id"): number for number, run in enumerate(transcript.runs, 1)}
    return [
        (
            f"[{turn}] " if (turn := turn_of.get(call.trace_id)) and call.trace_id else "",
            replace(call, args=_text(call.args), result=_text(call.result)),
        )
        for call in transcript.tool_calls
    ]


class _Writer:
    """Write entries, each part of them within its number of characters, and count what was left out."""

    def __init__(self, message: int, data: int) -> None:
        self._message = message
        self._data = data
        self.left_out = 0

    def turn(self, number: int, turn: Turn) -> str:
        lines = [f"[{number}] user: {self._words(turn.user)}"]
        if turn.submission:
            values = self._datum(str(turn.submission.values))
            lines.append(f"[{number}] user submitted form {self._name(turn.submission.form)}: {values}")
        lines += [f"[{number}] bot: {self._words(message)}" for message in turn.delivered]
        lines += [f"[{number}] bot sent a file or picture: {self._datum(media)}" for media in turn.media]
        lines += [f"[{number}] bot sent the form {self._name(form.name)}" for form in turn.forms]
        if not (turn.delivered or turn.media or turn.forms):
            lines.append(f"[{number}] bot: (nothing)")
        if turn.latency_s is not None:
            lines.append(f"[{number}] (the bot took {turn.latency_s:.1f} s)")
        return "\n".join(lines)

    def call(self, place: str, call: ToolInvocation) -> str:
        return f"{place}{self._name(call.name)}({self._datum(call.args)}) -> {self._outcome(call)}"

    def _outcome(self, call: ToolInvocation) -> str:
        took = f" after {call.duration_ms:.0f} ms" if call.duration_ms is not None else ""
        action = self._name(str((call.fault or {}).get("action") or ""))
        injected = f" (fault injected by the test{': ' if action else ''}{action})" if call.fault else ""
        if call.failed:
            said = self._datum(call.error_message)
            return f"FAILED {self._name(call.error_type or '')}{took}: {said}{injected}"
        known = "outcome unknown" if call.outcome_unknown else "ok"
        return f"{known}{took}: {self._datum(call.result)}{injected}"

    def _words(self, text: str) -> str:
        """Return a message in which only the first line starts a line of ours."""
        return _folded(self._cut(text, self._message))

    def _datum(self, value: Any) -> str:
        """Return a value on one line."""
        return r"\n".join(_lines(self._cut(_text(value), self._data)))

    def _name(self, name: str) -> str:
        return r"\n".join(_lines(self._cut(name, _NAME)))

    def _cut(self, text: str, shown: int) -> str:
        """Leave the middle of a text out, and say how much."""
        lost = len(text) - shown
        said = f"[…{lost} characters left out…]"
        if lost <= len(said):
            return text
        self.left_out += lost
        head = shown - shown // 4
        return f"{text[:head]} {said} {text[len(text) - shown // 4 :]}".strip()


def _folded(text: str) -> str:
    return f"\n{_CONTINUED}".join(_lines(text))


def _lines(text: str) -> list[str]:
    """Cut at whatever any reader may take for the end of a line."""
    return text.splitlines() or [""]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
