"""Markup around a sign in a text: which of it belongs to the sign, and which to the words beside it."""

from __future__ import annotations

import re

_MARKS = r"[`*_~\"'“”„‘’«»()<>]"
_RUN_BEFORE = re.compile(rf"{_MARKS}{{1,12}}\Z")
_RUN_AFTER = re.compile(rf"{_MARKS}{{1,12}}")
_FENCE_BEFORE = re.compile(r"```\w*\s*\Z")
_FENCE_AFTER = re.compile(r"\s*```")
_QUOTED_LINE = re.compile(r"^[ \t]*>[ \t]*\Z", re.MULTILINE)
_SAME = re.compile(r"(.)\1*")
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")

_CLOSERS = {
    **{mark: mark for mark in "`*_~\"'”’"},
    **{"(": ")", "<": ">", "“": "”", "„": "“”", "‘": "’", "«": "»", "»": "«"},
}
_OPENERS = {")": "(", ">": "<", "”": "“„", "’": "‘", "»": "«"}


def undressed(before: str, after: str) -> tuple[str, str]:
    """Take the clothes of a sign off the texts before and after it.

    Markup before it is its own when it stands alone, or when the same markup closes behind the sign. Markup behind it
    that closes what words before the sign have opened is theirs, and goes to them.
    """
    fence = _FENCE_BEFORE.search(before)
    if fence is not None and before.count("```") % 2:
        closed = _FENCE_AFTER.match(after)
        if closed is not None or _ends_blank(before[: fence.start()]):
            return before[: fence.start()], after[closed.end() :] if closed else after
    worn, run = _run(_RUN_BEFORE.search(before)), _run(_RUN_AFTER.match(after))
    mirrored = _mirrored(worn, run)
    said, own, rest = before[: len(before) - len(worn)], worn[: len(worn) - mirrored], after[len(run) :]
    if _ends_blank(said):
        said = _QUOTED_LINE.sub("", said + _closing(own, said))
    else:
        said += own
    return _closed(said, run[mirrored:], rest)


def _closed(said: str, run: str, rest: str) -> tuple[str, str]:
    """Give the words before a sign what closes behind it; what is left goes unless it is part of a word there."""
    fence = _FENCE_AFTER.match(run + rest)
    if fence is not None and said.count("```") % 2:
        return f"{said.rstrip()}\n```", (run + rest)[fence.end() :]
    closing = _closing(run, said)
    if closing:
        said, run = said.rstrip() + closing, run[len(closing) :]
    return said, rest if not rest or rest[0].isspace() else run + rest


def _run(found: re.Match[str] | None) -> str:
    return found.group() if found else ""


def _ends_blank(text: str) -> bool:
    return not text or text[-1].isspace()


def _mirrored(before: str, after: str) -> int:
    """Count the marks before a sign that close behind it, from the sign outwards."""
    count = 0
    for opener, closer in zip(reversed(before), after, strict=False):
        if closer not in _CLOSERS.get(opener, ""):
            break
        count += 1
    return count


def _closing(run: str, said: str) -> str:
    """Return the marks at the beginning of a run that close what a text has opened."""
    text, found = _APOSTROPHE.sub("", said), ""
    for same in _SAME.finditer(run):
        marks = same.group()
        if marks[0] in _OPENERS:
            opened = sum(map(text.count, _OPENERS[marks[0]])) - text.count(marks[0])
            marks = marks[: max(opened, 0)]
        elif text.count(marks) % 2 == 0:
            marks = ""
        found, text = found + marks, text + marks
        if marks != same.group():
            break
    return found
