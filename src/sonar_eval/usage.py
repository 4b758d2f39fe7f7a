"""What language models used up: tokens and money, by the role they were used in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

Number = TypeVar("Number", int, float)


class Role(StrEnum):
    """Whom a model played."""

    BOT = "bot"
    SIMULATOR = "simulator"
    JUDGE = "judge"


@dataclass(frozen=True)
class Price:
    """What a model costs, in US dollars per million tokens."""

    input: float
    output: float
    cached_input: float | None = None
    """For input tokens that the provider had cached; None means the price of `input`."""
    cache_write: float | None = None
    """For input tokens that the provider put into its cache; None means the price of `input`."""

    def of(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0, written_tokens: int = 0) -> float:
        """Return the cost in US dollars; `cached_tokens` and `written_tokens` are part of `input_tokens`."""
        cached = self.input if self.cached_input is None else self.cached_input
        written = self.input if self.cache_write is None else self.cache_write
        fresh = input_tokens - cached_tokens - written_tokens
        for_input = fresh * self.input + cached_tokens * cached + written_tokens * written
        return (for_input + output_tokens * self.output) / 1_000_000

    @property
    def is_free(self) -> bool:
        """Tell whether nothing is charged, however much is used."""
        return not any((self.input, self.output, self.cached_input, self.cache_write))


@dataclass(frozen=True)
class Spend:
    """What one role used up; None where the provider did not tell, or no price is known."""

    calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    cached_tokens: int = 0
    """The part of the input tokens that came from the provider's cache."""
    cost_at_least_usd: float = field(default=0.0, compare=False)
    """What the tokens that are known cost, where `cost_usd` is not known."""

    @property
    def known_usd(self) -> float:
        """What it cost for certain: all of it, or the part that is known."""
        return self.cost_at_least_usd if self.cost_usd is None else self.cost_usd

    def __add__(self, other: Spend) -> Spend:
        """Add two up; what one of them does not know is not known of both."""
        cost = _add_known(self.cost_usd, other.cost_usd)
        return Spend(
            self.calls + other.calls,
            _add_known(self.input_tokens, other.input_tokens),
            _add_known(self.output_tokens, other.output_tokens),
            cost,
            self.cached_tokens + other.cached_tokens,
            self.known_usd + other.known_usd if cost is None else 0.0,
        )


def _add_known(one: Number | None, other: Number | None) -> Number | None:
    """Add two numbers, unless one of them is not known."""
    return None if one is None or other is None else one + other


def add_up(spent: Iterable[Mapping[str, Spend]]) -> dict[str, Spend]:
    """Add up by role what several conversations used up."""
    total: dict[str, Spend] = {}
    for by_role in spent:
        for role, spend in by_role.items():
            total[str(role)] = total[str(role)] + spend if role in total else spend
    return total


def total_cost(spent: Mapping[str, Spend]) -> float | None:
    """Return what all roles cost together, in US dollars; None unless it is known of each of them."""
    costs = [spend.cost_usd for spend in spent.values()]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if costs and len(known) == len(costs) else None
