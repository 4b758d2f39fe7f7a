"""What a user says, taken out of what a model or a script wrote: no thinking, no end signal, no stage direction."""

from __future__ import annotations

import functools
import json
import re
import string
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .markup import undressed
from .verdict import without_thinking

_OWN_NAME = re.compile(r"\s*[*_\[]*(?:user|human|customer)[*_\]]*\s*:[*_]*[ \t]*", re.IGNORECASE)
_BOT_NAME = re.compile(r"^\s*[*_\[]*(?:assistant|chatbot|bot|agent|support)[*_\]]*\s*:", re.IGNORECASE | re.MULTILINE)
_BOT_WORDS = re.compile(
    r"\bhow (?:can|may) (?:i|we) (?:help|assist)(?: you)?\b"
    r"|\banything else (?:i|we) can (?:help|assist)\b|\banything else (?:i|we) can do for you\b"
    r"|\bas an ai(?: language model| assistant)?\b|\bi(?: a|')m an ai\b|\b(?:happy|glad) to (?:assist|help) you\b",
    re.IGNORECASE,
)
_FEW_WORDS = 3
_UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf")
"""Unicode categories of signs that leave no mark on a screen: blanks, ends of lines, controls, zero-width ones."""
_UNSPACED = (
    r"\u0e00-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u2e80-\u312f\u31a0-\ua4cf\ua9e0-\ua9ff\uaa60-\uaadf"
    r"\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Letters of scripts that put no blanks between words: Thai, Lao, Tibetan, Burmese, Khmer, Chinese, kana and Yi."""
_SPACED = rf"[^\W{_UNSPACED}]"
_EMPTY_QUOTES = "`\"'“”„‘’«»"


@dataclass(frozen=True)
class Utterance:
    """What is said, and whether the user ends the conversation with it."""

    text: str
    ends: bool = False


class EndSignal:
    """Find the end signal in whatever clothes it comes.

    Case does not matter, nor markup, quotes or a code fence around it, nor blanks between its signs: `[[ end ]]`
    within `**` is `[[END]]`. Wherever it stands it ends the conversation, and all beside it is still said. A
    signal of plain words must stand as it is, as words of their own where its script has blanks between words:
    people say `bye` in the middle of things.
    """

    def __init__(self, signal: str) -> None:
        self._pattern, self._bare = _patterns(signal)

    def cut(self, written: str) -> Utterance:
        """Take every signal out."""
        parts = self._parts(self._out_of_data(written))
        if len(parts) == 1:
            return Utterance("" if is_blank(written) else parts[0].strip(), ends=parts[0] != written)
        return Utterance(" ".join(part.strip() for part in parts if not _is_punctuation(part)), ends=True)

    def _parts(self, written: str) -> list[str]:
        """Split at every signal, which takes its clothes along."""
        found = list(self._pattern.finditer(written))
        if not found:
            return [written]
        parts, begin = [], 0
        ends = [*(match.start() for match in found[1:]), len(written)]
        for match, end in zip(found, ends, strict=False):
            said, rest = undressed(written[begin : match.start()], written[match.end() : end])
            parts.append(said)
            begin = end - len(rest)
        return [*parts, written[begin:]]

    def _out_of_data(self, written: str) -> str:
        """Take signals out of a JSON object, such as a form that is handed in, without breaking its quotes."""
        start, end = written.find("{"), written.rfind("}") + 1
        data = written[start:end]
        if start < 0 or not self._bare.search(data) or not _is_json(data):
            return written
        cut = self._bare.sub("", data)
        return f"{written[:start]}{cut}{written[end:]}" if _is_json(cut) else written


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_punctuation(text: str) -> bool:
    return all(
        sign.isspace() or sign in string.punctuation or unicodedata.category(sign).startswith("P") for sign in text
    )


def is_blank(text: str) -> bool:
    """Tell whether a person would see nothing in it: only unseen signs, or quotes and fences around nothing."""
    return all(unicodedata.category(sign) in _UNSEEN or sign in _EMPTY_QUOTES for sign in text)


@functools.lru_cache(maxsize=64)
def _patterns(signal: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return how the signal looks in a text, and how in data; kept, for every trial asks for the same."""
    plain = re.fullmatch(r"[\w\s]*", signal) is not None
    flags = re.MULTILINE if plain else re.MULTILINE | re.IGNORECASE
    # The lookbehind keeps a long run of blanks from being tried from each of them.
    return re.compile(_tolerant(signal), flags), re.compile(rf"(?<!\s)\s*{_tolerant(signal)}", flags)


def _tolerant(signal: str) -> str:
    """Write a pattern that allows blanks and backslashes between signs, and blanks of any kind where there are some."""
    pattern = r"\s+".join(_word(word) for word in signal.split())
    first, last = signal.strip()[0], signal.strip()[-1]
    start = rf"(?<!{_SPACED})" if re.fullmatch(_SPACED, first) else ""
    end = rf"(?!{_SPACED})" if re.fullmatch(_SPACED, last) else ""
    return f"{start}{pattern}{end}"


def _word(word: str) -> str:
    pieces = re.findall(r"\w+|\W", word)
    return r"\s*".join(rf"\\?{re.escape(piece)}" for piece in pieces)


def spoken(written: str) -> str:
    """Return what a model that plays the user says: without its thinking, and without its own name before it."""
    text = without_thinking(written)
    while (name := _OWN_NAME.match(text)) is not None:
        text = text[name.end() :]
    return text


def role_break(text: str, heard: Sequence[str]) -> str | None:
    """Say how a user's message sounds like the chatbot's, by a few plain signs; None when it does not.

    `heard` is what the chatbot delivered last. The signs: a line that begins with the chatbot's name, a service
    phrase that no customer says, and the chatbot's last words said back. They are cheap: they miss some, and a
    hit is a note for a person to read.
    """
    named = _BOT_NAME.search(text)
    if named is not None:
        both = text[: named.start()].strip()
        return "it speaks for both sides" if both else "it speaks as the chatbot"
    phrase = _BOT_WORDS.search(text)
    if phrase is not None:
        return f"it says {phrase.group(0)!r}"
    said = _plain([text])
    # Few words are said by both sides all the time.
    repeats = len(said.split()) >= _FEW_WORDS and said in {_plain(heard), *(_plain([message]) for message in heard)}
    return "it repeats the chatbot's last message" if repeats else None


def _plain(messages: Iterable[str]) -> str:
    return " ".join(" ".join(messages).casefold().split())
