"""Who used up what in a trial: the models of simulator and judge are metered, the bot's tokens stand in its trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from .adapter import Variant
from .conversation import ConversationLog
from .errors import ConfigError
from .grader import Grader
from .llm import LLMClient, Meter, Usage, make_price, price_usage
from .transcript import Transcript
from .usage import Role, Spend


@contextmanager
def metered(client: LLMClient, role: Role, log: ConversationLog) -> Iterator[Meter]:
    """Count what `client` takes within the block, and put it into the log however the block ends."""
    meter = Meter(client)
    try:
        yield meter
    finally:
        _note(log, role, meter.spent)


@contextmanager
def metered_grader(grader: Any, log: ConversationLog) -> Iterator[Any]:
    """Count what a judge takes; of one that is no `Grader` it is not known."""
    if not isinstance(grader, Grader):
        _note(log, Role.JUDGE, Spend())
        yield grader
        return
    with metered(grader.client, Role.JUDGE, log) as meter:
        yield grader.with_client(meter)


def note_bot(log: ConversationLog, transcript: Transcript | None, variant: Variant) -> None:
    """Put into the log what the bot took, as its trace tells it.

    Where it does not tell of tokens that were cached, their discount is left out.
    """
    if not log.turns:
        return
    usage = _traced(transcript) if transcript is not None else Usage(calls=0)
    try:
        price = make_price(variant.model_params)
    except ConfigError:
        price = None
    spent = price_usage(usage, price)
    if spent.cost_usd is None and price is not None and transcript is not None:
        spent = replace(spent, cost_at_least_usd=price.of(*transcript.tokens(), usage.cached_tokens))
    _note(log, Role.BOT, spent)


def _traced(transcript: Transcript) -> Usage:
    prompt, completion = transcript.known_tokens()
    # What was cached is part of what is known of the input.
    cached = min(sum(run.get("cached_tokens") or 0 for run in transcript.runs), transcript.tokens()[0])
    return Usage(prompt, completion, cached, calls=sum(span.get("kind") == "llm" for span in transcript.spans))


def _note(log: ConversationLog, role: Role, spent: Any) -> None:
    if spent is not None:
        log.spent[role.value] = spent
