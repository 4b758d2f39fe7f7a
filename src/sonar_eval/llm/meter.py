"""Counting what a client uses up, for one trial and one role."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..usage import Price, Spend
from .contract import LLMClient, LLMConfig, Message, Usage, add_usage

_UNKNOWN = Usage()
_NOTHING = Spend(0, 0, 0, 0.0)


class Meter:
    """Hand every call to `client`, and add up what it took.

    A client that returns a plain text does not say what it took: then the tokens are not known, and their cost is not
    either unless the price of the config is nothing.
    """

    def __init__(self, client: LLMClient) -> None:
        self._client = client
        self._taken: dict[Price | None, list[Usage]] = {}

    @property
    def spent(self) -> Spend | None:
        """Tell what was used up so far; None before the first answer."""
        spent = sum((_price_all(usages, price) for price, usages in self._taken.items()), _NOTHING)
        return spent if spent.calls else None

    async def complete(self, config: LLMConfig, system: str, messages: list[Message]) -> str:
        """Return what the client does, or raise it."""
        try:
            answer = await self._client.complete(config, system, messages)
        except BaseException as error:
            # Silence and refusals are paid for, too, whatever came after them; whoever was not reached took nothing.
            usage = getattr(error, "usage", None)
            if isinstance(usage, Usage):
                self._note(usage, config.price)
            raise
        usage = getattr(answer, "usage", None)
        self._note(usage if isinstance(usage, Usage) else _UNKNOWN, config.price)
        return answer

    def _note(self, usage: Usage, price: Price | None) -> None:
        self._taken.setdefault(price, []).append(usage)


def _price_all(usages: Collection[Usage], price: Price | None) -> Spend:
    spend = price_usage(add_usage(usages), price)
    if spend.cost_usd is not None or price is None:
        return spend
    least = sum(price_usage(usage, price).known_usd for usage in usages)
    return replace(spend, cost_at_least_usd=least)


def price_usage(usage: Usage, price: Price | None) -> Spend:
    """Say what tokens cost; None where tokens or price are not known."""
    cost = None
    if price is not None and price.is_free:
        cost = 0.0
    elif price is not None and usage.input_tokens is not None and usage.output_tokens is not None:
        cost = price.of(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
    return Spend(usage.calls, usage.input_tokens, usage.output_tokens, cost, usage.cached_tokens)
