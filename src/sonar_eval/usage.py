"""What language models used up: tokens and money, by the role they were used in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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

    def of(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """Return the cost in US dollars; `cached_tokens` are part of `input_tokens`."""
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = input_tokens - cached_tokens
        return (fresh * self.input + cached_tokens * cached + output_tokens * self.output) / 1_000_000


@dataclass(frozen=True)
class Spend:
    """What one role used up; None where the provider did not tell, or no price is known."""

    calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
