"""Checks that nothing took too long: turns, tokens, seconds, money."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal

from ..conversation import ConversationLog
from ..errors import ConfigError
from ..transcript import Transcript
from ..usage import Role, Spend
from .contract import Check, Finding, ReasonedCheck
from .evidence import Evidence, EvidencedCheck


def max_turns(limit: int) -> Check:
    """Hold when the conversation took at most `limit` turns."""
    _positive("max_turns", limit)
    return EvidencedCheck(
        f"max_turns({limit})",
        lambda _, log: log.turns_taken <= limit,
        explain=lambda _, log: f"{log.turns_taken} turns, at most {limit} wanted",
    )


def max_total_tokens(limit: int) -> Check:
    """Hold when prompt and completion tokens add up to at most `limit`.

    Unknown when some model call does not tell its tokens, unless the others took more than that.
    """
    _positive("max_total_tokens", limit)
    return EvidencedCheck(
        f"max_total_tokens({limit})",
        lambda transcript, _: sum(transcript.tokens()) <= limit,
        Evidence.TOKENS,
        lambda transcript, _: f"{_amount(transcript)} tokens, at most {limit} wanted",
    )


def _amount(transcript: Transcript) -> str:
    return f"{'' if transcript.tokens_known else 'at least '}{sum(transcript.tokens())}"


def max_latency(seconds: float, *, quantile: float = 1.0) -> Check:
    """Hold when the bot answered within `seconds`: every turn, or with `quantile=0.9` the quickest 90 % of them.

    A turn whose time is not known may have been quick or slow: unknown, where that matters.
    """
    seconds = _positive("max_latency", seconds)
    if isinstance(quantile, bool) or not isinstance(quantile, int | float) or not 0 < quantile <= 1:
        raise ConfigError(f"max_latency: quantile must lie above 0 and not above 1, got {quantile!r}")
    which = "the slowest turn" if quantile == 1 else f"quantile {quantile:g} of the turns"

    def reason(_: Transcript, log: ConversationLog) -> Finding:
        known = [turn.latency_s for turn in log.turns if turn.latency_s is not None]
        missing = log.turns_taken - len(known)
        if not known:
            return Finding(None, "how long the bot took is not known of any turn")
        least = _quantile([*known, *[0.0] * missing], quantile)
        most = _quantile([*known, *[math.inf] * missing], quantile)
        looks = _quantile(known, quantile)
        decided = (least <= seconds) == (most <= seconds)
        doubt = "" if decided else f"how long the bot took is not known of {missing} of {log.turns_taken} turns"
        why = f"{which} took {looks:.3g} s, at most {seconds:g} s wanted"
        held = most <= seconds if decided else looks <= seconds
        return Finding(held, doubt, "" if held else why)

    quantiled = "" if quantile == 1 else f", quantile={quantile:g}"
    return ReasonedCheck(f"max_latency({seconds:g}{quantiled})", reason)


def _quantile(values: Sequence[float], quantile: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    # 0.9 * 10 is a little more than 9 in floating point.
    return sorted(values)[max(math.ceil(quantile * len(values) - 1e-9), 1) - 1]


def max_cost(usd: float, *, role: Literal["bot", "simulator", "total"] = "bot") -> Check:
    """Hold when the conversation's models cost at most `usd` US dollars: the bot's, the simulated user's, or both.

    Unknown when the provider did not tell the tokens, or no price is known, unless what is known is too much. The
    judge is asked only later.
    """
    usd = _positive("max_cost", usd)
    if role not in ("bot", "simulator", "total"):
        raise ConfigError(f"max_cost: role must be bot, simulator or total, got {role!r}")

    def reason(_: Transcript, log: ConversationLog) -> Finding:
        # A total without the bot's part is none; whoever else is not listed asked no model.
        roles = [role] if role != "total" else dict.fromkeys([Role.BOT, *(set(log.spent) - {Role.JUDGE})])
        spent = {str(name): log.spent.get(name, Spend()) for name in roles}
        unknown = [name for name, spend in spent.items() if spend.cost_usd is None]
        known = sum(spend.known_usd for spend in spent.values())
        if known > usd:
            least = "at least " if unknown else ""
            return Finding(False, "", f"it cost {least}{known:.4g} USD, at most {usd:g} USD wanted")
        if unknown:
            return Finding(None, f"what the models of {' and '.join(unknown)} cost is not known")
        return Finding(True)

    return ReasonedCheck(f"max_cost({usd:g}{'' if role == 'bot' else f', role={role}'})", reason)


def _positive(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value < 0:
        raise ConfigError(f"{what} needs a number of 0 or more, got {value!r}")
    return float(value)
