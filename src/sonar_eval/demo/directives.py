"""What an offline model takes from a system prompt, and how far it keeps to it.

A directive is recognised by words in a line of the prompt, so that editing the prompt changes the bot. A
model follows a directive it was given with its `reliability`, and does the same unasked with its `habit`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum


class Directive(StrEnum):
    """A thing a prompt can ask for."""

    MENU = "menu"
    STOCK = "stock"
    CONFIRM = "confirm"
    CHANGE = "change"
    RETRY = "retry"
    HONEST = "honest"
    LOOKUP = "lookup"
    NO_DISCOUNT = "no_discount"
    UNCLEAR = "unclear"
    FORM = "form"


_WORDS: dict[Directive, str] = {
    Directive.MENU: r"menu.*(price|before)|price.*menu",
    Directive.STOCK: r"(check|look).*stock",
    Directive.CONFIRM: r"(wait|ask).*\byes\b|confirm.*(before|charg)",
    Directive.CHANGE: r"chang\w* (his|her|their|the|an) (mind|order)",
    Directive.RETRY: r"(try|retry).*(once|again|more)",
    Directive.HONEST: r"(fail|go through).*(say|tell|plain|honest)",
    Directive.LOOKUP: r"look.*order.*refund|refund.*(what was paid|look)",
    Directive.NO_DISCOUNT: r"(never|no|not).*discount",
    Directive.UNCLEAR: r"(make sense|cannot read|can't read|unclear)",
    Directive.FORM: r"delivery form|form.*deliver|deliver.*form",
}
_COMPILED = {directive: re.compile(words, re.IGNORECASE) for directive, words in _WORDS.items()}


def read_directives(prompt: str) -> frozenset[Directive]:
    """List the directives found in the lines of a prompt."""
    return frozenset(
        directive for directive, words in _COMPILED.items() if any(words.search(line) for line in prompt.splitlines())
    )


@dataclass(frozen=True)
class Mind:
    """What one offline model will do in one conversation."""

    model: str
    seed: int
    directives: frozenset[Directive]
    reliability: float
    habit: float

    def follows(self, directive: Directive, turn: int) -> bool:
        """Decide whether the model keeps to the directive in this turn; asked again, the answer is the same."""
        chance = self.reliability if directive in self.directives else self.habit
        return fraction(self.model, self.seed, directive, turn) < chance


def fraction(*parts: object) -> float:
    """Return a number in [0, 1) that depends on `parts` alone."""
    digest = hashlib.sha256("\x00".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56
