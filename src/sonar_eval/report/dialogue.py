"""Two trials side by side: what was said and called, and where they part."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .comparison import FlippedTrial
from .divergence import words
from .transcript import called_and_outcome, spans_by_turn
from .visible import bounded, score_in_words, visible

MOST_TURNS = 200
LONGEST_TEXT = 4_000
SHORTEST_BOUND = 200
LONGEST_CONVERSATION = 40_000
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """One thing that happened."""

    who: str
    """user, submission, call, bot, media or form."""
    text: str
    outcome: str = ""
    """What came of a call."""
    parts: bool = False
    """Whether the calls of the two trials differ from here on."""


@dataclass(frozen=True)
class TurnPair:
    """The same turn of two trials; number None holds the calls that belong to no turn."""

    number: int | None
    a: list[Line]
    b: list[Line]
    same: bool
    parts: bool
    """Whether the words of the two trials differ from here on."""


@dataclass(frozen=True)
class Side:
    """What one of the two trials came to."""

    passed: bool
    conversation_id: str
    notes: list[str]
    """Why it did not pass."""


@dataclass(frozen=True)
class Dialogue:
    """A pair of trials."""

    index: int
    a: Side
    b: Side
    turns: list[TurnPair]
    left_out: int = 0
    """Turns that are not shown."""

    @property
    def size(self) -> int:
        """Estimate its length on a page."""
        lines = [line for turn in self.turns for line in (*turn.a, *turn.b)]
        texts = [part for line in lines for part in (line.text, line.outcome)]
        return sum(len(html.escape(text).encode("utf-8", "replace")) for text in texts) + 120 * len(lines) + 600


def dialogue(flipped: FlippedTrial, one: Record, other: Record) -> Dialogue:
    """Lay two trials out turn by turn."""
    side_a, side_b = _lines(one, flipped.tool_call), _lines(other, flipped.tool_call)
    said_a, said_b = words(one), words(other)
    count = max(len(said_a), len(said_b))
    turns = [
        _pair(number, side_a, side_b, said_a[number : number + 1] == said_b[number : number + 1], flipped.turn)
        for number in range(min(count, MOST_TURNS))
    ]
    if -1 in side_a or -1 in side_b:
        loose_a, loose_b = side_a.get(-1, []), side_b.get(-1, [])
        turns.append(TurnPair(None, loose_a, loose_b, loose_a == loose_b, False))
    return Dialogue(flipped.index, _side(one), _side(other), turns, max(0, count - MOST_TURNS))


Sides = Mapping[int, list[Line]]


def _pair(number: int, a: Sides, b: Sides, same_words: bool, parted: int | None) -> TurnPair:
    mine, theirs = a.get(number, []), b.get(number, [])
    return TurnPair(number + 1, mine, theirs, same_words and mine == theirs, number == parted)


def _lines(record: Record, parted_call: int | None) -> dict[int, list[Line]]:
    """Write the lines of each turn: the user, the calls, the bot."""
    turns = record.get("conversation") or []
    spans = spans_by_turn(record)
    parts = sum(1 + len(turn["delivered"]) for turn in turns) + 1
    limit = max(SHORTEST_BOUND, min(LONGEST_TEXT, LONGEST_CONVERSATION // parts))
    content = (record.get("transcript") or {}).get("content") or []
    calls = {turn: [_call(span, place, content, parted_call) for place, span in found] for turn, found in spans.items()}
    lines = {
        number: [*_user(turn, limit), *calls.get(number, []), *_bot(turn, limit)] for number, turn in enumerate(turns)
    }
    if calls.get(-1):
        lines[-1] = calls[-1]
    return lines


def _call(span: Record, place: int, content: Sequence[Record], parted: int | None) -> Line:
    called, outcome = called_and_outcome(span, content)
    return Line("call", visible(called), visible(outcome), place == parted)


def _user(turn: Record, limit: int) -> Iterator[Line]:
    yield Line("user", _text(turn["user"], limit))
    submission = turn.get("submission")
    if submission:
        values = json.dumps(submission["values"], ensure_ascii=False, default=str)
        yield Line("submission", _text(f"{submission['form']}: {values}", limit))


def _bot(turn: Record, limit: int) -> Iterator[Line]:
    media, forms = turn.get("media") or [], turn.get("forms") or []
    for message in turn["delivered"]:
        yield Line("bot", _text(message, limit))
    for sent in media:
        yield Line("media", _text(sent, limit))
    for form in forms:
        yield Line("form", _text(f"{form['name']}: {', '.join(field['name'] for field in form['fields'])}", limit))
    if not (turn["delivered"] or media or forms):
        yield Line("bot", "(nothing)")


def _text(value: Any, limit: int) -> str:
    return bounded(visible(str(value)), limit)


def _side(record: Record) -> Side:
    return Side(bool(record["passed"]), str(record["conversation_id"]), list(_notes(record)))


def _notes(record: Record) -> Iterator[str]:
    failure = record.get("failure")
    if failure:
        yield bounded(f"{failure['owner']} failed at {failure['step']}: {failure['message']}", LONGEST_TEXT // 4)
    for row in record["assertions"]:
        if not row["passed"]:
            mark = "unknown" if row.get("unknown") else "not held"
            detail = f": {row['detail']}" if row.get("detail") else ""
            yield bounded(f"{row['name']} {mark}{detail}", LONGEST_TEXT // 4)
    grader = record.get("grader")
    if grader and not grader.get("passed", True):
        yield bounded(
            f"judge {score_in_words(grader.get('score'))}: {grader.get('reasoning') or ''}", LONGEST_TEXT // 4
        )
