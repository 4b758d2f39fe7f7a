"""Text from strangers made harmless to look at: what cannot be seen is spelled out, what is too long is cut."""

from __future__ import annotations

import re

# Control characters, what overrides the direction of writing, halves of characters: the last cannot even be stored.
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff\ud800-\udfff]")

_TAG = re.compile("<(?=[A-Za-z/!?])")

# What makes a heading of a line, or of the one above it, within quotes and lists too.
_HEADING = re.compile(r"^((?:[\s>]|[-+*]\s|\d+[.)]\s)*)(#{1,6}(?=\s|$)|=+\s*$|-+\s*$)")


def visible(text: str) -> str:
    """Spell out the characters that would change how text around them is read."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def bounded(text: str, limit: int) -> str:
    """Cut text that is longer than `limit`, and say how much was left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit:,} of {len(text):,} characters left out)"


def in_one_line(text: str) -> str:
    """Make a text safe for a terminal: nothing unseen, and no line of its own."""
    return " ".join(visible(text).splitlines())


def in_markdown(text: str) -> str:
    """Make a text safe for one line of Markdown: what looks like HTML stays text."""
    return _TAG.sub("&lt;", in_one_line(text))


def quoted(text: str) -> str:
    """Write the words of somebody else behind a label, in Markdown: more than one line of them as a quotation.

    Within it nothing looks like what the document itself says: every line is marked, and none is a heading.
    """
    lines = [_TAG.sub("&lt;", visible(line)) for line in text.strip("\r\n").splitlines()]
    if len(lines) < 2:
        return f" {''.join(lines)}"
    return "".join(f"\n> {_HEADING.sub(_escaped, line)}".rstrip() for line in lines)


def _escaped(found: re.Match[str]) -> str:
    return f"{found[1]}\\{found[2]}"


def score_in_words(score: float | None) -> str:
    """Write a judge's score, or that it gave none."""
    return "without a score" if score is None else f"{score:.2f}"
