"""Two records of one trial beside each other: what the verdicts were and are, and both conversations."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from .transcript import conversation_blocks
from .visible import score_in_words

_GAP = " | "
_NARROWEST = 24


def verdict_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say in lines what became of a trial's verdict: the whole first, then each part that differs."""
    head = f"trial {new['index'] + 1}: {_change(_whole(old), _whole(new))}"
    parts = [*_assertions(old, new)]
    before, after = _judged(old), _judged(new)
    why = (new.get("grader_failure") or {}).get("message")
    if before != after:
        parts.append(f"    judge: {before} -> {after}{f': {why}' if why else ''}")
    elif why:
        parts.append(f"    judge: {after}, as before: {why}")
    return [head, *parts]


def _change(before: str, after: str) -> str:
    return f"{before} -> {after}" if before != after else f"{before}, as before"


def _whole(record: Mapping[str, Any]) -> str:
    if record["outcome"] == "errored":
        return "errored"
    return "passed" if record["passed"] else "not passed"


def _assertions(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before = {row["name"]: row for row in old["assertions"]}
    after = {row["name"]: row for row in new["assertions"]}
    for name in dict.fromkeys([*before, *after]):
        was, now = _held(before.get(name)), _held(after.get(name))
        if was != now:
            detail = (after.get(name, {}).get("detail") or "").removeprefix("unknown: ")
            yield f"    {name}: {was} -> {now}{f': {detail}' if detail else ''}"


def _held(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not asked"
    return "unknown" if row["unknown"] else ("held" if row["passed"] else "NOT held")


def _judged(record: Mapping[str, Any]) -> str:
    if record["grader"]:
        return score_in_words(record["grader"]["score"])
    return "no verdict" if record["judge_asked"] else "not asked"


def side_by_side(left: Mapping[str, Any], right: Mapping[str, Any], *, width: int = 120) -> str:
    """Lay two trials out in two columns of plain text, turn by turn."""
    column = max((width - len(_GAP)) // 2, _NARROWEST)
    pairs = [
        (_head(left), _head(right)),
        *zip_longest(conversation_blocks(left), conversation_blocks(right), fillvalue=""),
        (_verdict(left), _verdict(right)),
    ]
    rule = "-" * column + "-+-" + "-" * column
    return "\n".join([rule, *(line for pair in pairs for line in (*_beside(*pair, column), rule))])


def _head(record: Mapping[str, Any]) -> str:
    failure = record["failure"]
    lines = [
        f"trial {record['index'] + 1}, {record['started_at'] or 'time unknown'}",
        f"conversation {record['conversation_id']}",
        f"random seed {record['random_seed']}",
        f"outcome: {_whole(record)}" + (f" ({failure['owner']}: {failure['message']})" if failure else ""),
    ]
    return "\n".join(lines)


def _verdict(record: Mapping[str, Any]) -> str:
    return "\n".join([*(f"{row['name']}: {_held(row)}" for row in record["assertions"]), f"judge: {_judged(record)}"])


def _beside(left: str, right: str, column: int) -> Iterator[str]:
    for one, other in zip_longest(_wrapped(left, column), _wrapped(right, column), fillvalue=""):
        yield f"{one.ljust(column)}{_GAP}{other}".rstrip()


def _wrapped(text: str, column: int) -> list[str]:
    lines = [textwrap.wrap(line, column, subsequent_indent="  ") or [""] for line in text.splitlines()]
    return [piece for line in lines for piece in line]
