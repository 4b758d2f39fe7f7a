"""What stands in an answer of a model: data, sound or slightly damaged, and the words around it, without its thinking.

What was opened is read to its end before anything within it is looked at: a tag, a brace or a verdict that is quoted
in a text of the data is a word of that text and nothing else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_TAG = r"<(?P<closing>/?)(?:think(?:ing)?|thoughts?|reasoning|reflection)(?:\s[^<>]*)?>"
_THINK = re.compile(_TAG, re.IGNORECASE)
_MARK = re.compile(rf"[{{\[]|{_TAG}", re.IGNORECASE)
_KEY = re.compile(r"[A-Za-z_][\w-]*")
_BARE = re.compile(r"(?:[^,}\]\n\"']|,(?=\s*\d))+")
"""A value without quotes; a decimal comma is part of it, so that 0,8 is no 0."""
_ONE_WORD = re.compile(r"[\w.%/+-]*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_MARKUP = re.compile(r"```\w*|<[^<>\n]*>")
_QUOTES = "\"'`“”‘’«»"
_LITERALS = {"true": True, "false": False, "null": None, "none": None}
_TRIED = 500
_DEEPEST = 40


@dataclass
class Piece:
    """Data in an answer, from `start` to `end`."""

    body: Any
    start: int
    end: int
    sound: bool = True
    """Whether it is JSON as it stands; else it was made out in spite of some damage."""
    broken: bool = False
    """Whether it stops in its middle: it is cut off, or does not make sense from there."""
    rest: str = ""
    """What follows the place at which it makes no sense any more."""
    quoted: bool = False
    """Whether it stands in the midst of a sentence."""


@dataclass
class Answer:
    """What a model said: its data in order, and its words beside them."""

    pieces: list[Piece] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is left of it."""
        return not self.pieces and not "".join(self.words).strip()

    @property
    def text(self) -> str:
        """Return the words alone."""
        return "\n".join(self.words).strip()


def read_answer(text: str) -> Answer:
    """Part an answer into data and words; reasoning blocks are taken out, nested ones and one that never closes too.

    A block that only closes was opened by the prompt: everything before it is thinking. It is taken for a word where
    data stands before it that may be the answer itself.
    """
    answer, openings = Answer(), _openings(text)
    depth = place = begun = 0
    while mark := _MARK.search(text, place):
        place = mark.end()
        if mark.group() in "{[":
            piece = _piece(text, mark.start(), sound_only=depth > 0) if mark.start() in openings else None
            if piece is not None:
                place = piece.end
                if depth == 0:
                    answer.words.append(text[begun : piece.start])
                    answer.pieces.append(piece)
                    begun = place
        elif not mark.group("closing"):
            if depth == 0:
                answer.words.append(text[begun : mark.start()])
            depth += 1
        elif depth > 0:
            depth -= 1
            begun = place
        elif _ends_thinking(text, mark, answer.pieces):
            answer, begun = Answer(), place
    if depth == 0:
        answer.words.append(text[begun:])
    return answer


def without_thinking(text: str) -> str:
    """Take reasoning blocks out of a text, nested ones and one that never closes too.

    A block that only closes was opened by the prompt: everything before it is thinking.
    """
    kept, depth, place = [], 0, 0
    for tag in _THINK.finditer(text):
        if depth == 0:
            kept.append(text[place : tag.start()])
        if tag.group("closing") and depth == 0:
            kept.clear()
        depth = max(depth - 1, 0) if tag.group("closing") else depth + 1
        place = tag.end()
    if depth == 0:
        kept.append(text[place:])
    return "".join(kept)


def _ends_thinking(text: str, tag: re.Match[str], pieces: list[Piece]) -> bool:
    """Tell whether a tag that only closes ends a thinking that began with the answer."""
    bodies = [piece.body if isinstance(piece.body, list) else [piece.body] for piece in pieces]
    if not any(isinstance(one, dict) for body in bodies for one in body):
        return True
    if not _MARKUP.sub("", text[: pieces[0].start]).strip():
        # An answer that begins with its data is no thinking.
        return False
    after = _MARKUP.sub("", text[tag.end() :]).strip()
    piece = _sound(after, 0) if after[:1] in ("{", "[") else None
    return piece is not None and piece.end == len(after)


def _openings(text: str) -> set[int]:
    places = [place for place, character in enumerate(text) if character in "{["]
    # A model that runs wild writes nothing else; each place tried costs as much as the text is long.
    return set(places if len(places) <= 2 * _TRIED else places[:_TRIED] + places[-_TRIED:])


def _piece(text: str, start: int, *, sound_only: bool) -> Piece | None:
    piece = _sound(text, start)
    if piece is None and not sound_only:
        piece = _Damaged(text).read(start)
    if piece is not None:
        piece.quoted = _is_quoted(text, piece)
    return piece


def _is_quoted(text: str, piece: Piece) -> bool:
    before = text[: piece.start].rpartition("\n")[2]
    after = text[piece.end :].partition("\n")[0]
    if not _holds_words(before):
        return False
    enclosed = before.rstrip()[-1] in _QUOTES and "```" not in before and after.lstrip()[:1] in tuple(_QUOTES)
    return enclosed or _holds_words(after)


def _holds_words(text: str) -> bool:
    return any(character.isalnum() for character in _MARKUP.sub("", text))


def _sound(text: str, start: int) -> Piece | None:
    try:
        body, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return Piece(body, start, end)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs; a key with two values has neither."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        put(made, key, value)
    return made


def put(made: dict[str, Any], key: str, value: Any) -> None:
    """Set a key; one that has another value already has neither of them."""
    made[key] = f"{made[key]} and {value}" if key in made and made[key] != value else value


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_object)


class _BrokenError(Exception):
    """The data stops making sense here, or stops."""


class _Damaged:
    """Data with trailing commas, single quotes or words without any, as far as it can be followed.

    Of an object that breaks off nothing counts that stands after a text: with its quotes not escaped, that text may
    have ended anywhere, and what follows be a part of it.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def read(self, start: int) -> Piece | None:
        """Read from an opening bracket; None when it opens no data."""
        self._place = start
        body: dict[str, Any] | list[Any] = {} if self._text[start] == "{" else []
        if not self._opens(body):
            return None
        self._place = start
        try:
            self._fill(body, 1)
        except _BrokenError:
            rest = self._text[self._place :]
            return Piece(body, start, len(self._text), sound=False, broken=True, rest=rest)
        return Piece(body, start, self._place, sound=False)

    def _opens(self, body: dict[str, Any] | list[Any]) -> bool:
        self._place += 1
        first = self._next()
        if isinstance(body, list):
            return first in ("{", "[", '"', "'")
        try:
            self._key()
        except _BrokenError:
            return self._place >= len(self._text)
        return True

    def _next(self) -> str:
        """Skip blanks; return the character after them, or nothing at the end."""
        while self._place < len(self._text) and self._text[self._place].isspace():
            self._place += 1
        return self._text[self._place : self._place + 1]

    def _fill(self, body: dict[str, Any] | list[Any], depth: int) -> None:
        if depth > _DEEPEST:
            raise _BrokenError
        self._place += 1
        if isinstance(body, dict):
            self._fill_object(body, depth)
        else:
            self._fill_list(body, depth)
        self._place += 1

    def _fill_list(self, body: list[Any], depth: int) -> None:
        while self._next() != "]":
            if self._next() in ("{", "["):
                inner = self._inner()
                body.append(inner)
                self._fill(inner, depth + 1)
            else:
                body.append(self._scalar())
            self._separator("]")

    def _fill_object(self, body: dict[str, Any], depth: int) -> None:
        late: list[str] = []
        told = False
        try:
            while self._next() != "}":
                key = self._key()
                if told:
                    late.append(key)
                if self._next() in ("{", "["):
                    inner = self._inner()
                    put(body, key, inner)
                    self._fill(inner, depth + 1)
                else:
                    told = self._put_scalar(body, key) or told
                self._separator("}")
        except _BrokenError:
            for key in late:
                body.pop(key, None)
            raise

    def _put_scalar(self, body: dict[str, Any], key: str) -> bool:
        """Read the value of a key, and tell whether it is a text; one that breaks off is kept as far as it goes."""
        start = self._place + 1
        try:
            value = self._scalar()
            if self._next() not in (",", "}", ""):
                raise _BrokenError
        except _BrokenError:
            tail = self._text[start:].rstrip("\"'}] \n`")
            if self._text[start - 1] in "\"'" and any(map(str.isspace, tail)):
                put(body, key, tail)
            raise
        put(body, key, value)
        return isinstance(value, str) and not _ONE_WORD.fullmatch(value)

    def _inner(self) -> dict[str, Any] | list[Any]:
        return {} if self._next() == "{" else []

    def _key(self) -> str:
        if self._next() in ("'", '"'):
            key = self._string()
        elif found := _KEY.match(self._text, self._place):
            key = found.group()
            self._place = found.end()
        else:
            raise _BrokenError
        if self._next() != ":":
            raise _BrokenError
        self._place += 1
        return key

    def _separator(self, closing: str) -> None:
        if self._next() == ",":
            self._place += 1
        elif self._next() != closing:
            raise _BrokenError

    def _scalar(self) -> Any:
        if self._next() in ("'", '"'):
            return self._string()
        found = _BARE.match(self._text, self._place)
        # At the very end there may have been more of it.
        if found is None or found.end() >= len(self._text):
            raise _BrokenError
        self._place = found.end()
        said = found.group().strip()
        return _LITERALS.get(said.lower(), said)

    def _string(self) -> str:
        quote, start = self._text[self._place], self._place + 1
        place = start
        while place < len(self._text) and self._text[place] != quote:
            place += 2 if self._text[place] == "\\" else 1
        if place >= len(self._text):
            self._place = len(self._text)
            raise _BrokenError
        self._place = place + 1
        return _ESCAPE.sub(lambda found: _ESCAPED.get(found.group(1), found.group(1)), self._text[start:place])
