"""Checks on what the bot said, and how the conversation ended."""

from __future__ import annotations

import re

from ..conversation import ConversationLog
from ..errors import ConfigError
from .contract import Check
from .evidence import EvidencedCheck
from .matching import compiled
from .turns import at_turn


def bot_said(pattern: str, *, turn: int | None = None, case: bool = False) -> Check:
    """Hold when something the bot delivered matches the regular expression.

    Upper and lower case are told apart only with `case`. `turn` looks at one turn alone, see `at_turn`.
    """
    found = _sought("bot_said", pattern, case)
    check = EvidencedCheck(
        f"bot_said({pattern!r})",
        lambda _, log: found.search(log.bot_said()) is not None,
        explain=lambda _, log: f"nothing the bot said matches {pattern!r}",
    )
    return check if turn is None else at_turn(turn, check)


def bot_never_said(pattern: str, *, turn: int | None = None, case: bool = False) -> Check:
    """Hold when nothing the bot delivered matches the regular expression.

    Upper and lower case are told apart only with `case`. `turn` looks at one turn alone, see `at_turn`.
    """
    sought = _sought("bot_never_said", pattern, case)

    def found(log: ConversationLog) -> str:
        match = sought.search(log.bot_said())
        return match.group(0) if match else ""

    check = EvidencedCheck(
        f"bot_never_said({pattern!r})",
        lambda _, log: sought.search(log.bot_said()) is None,
        explain=lambda _, log: f"the bot said {found(log)!r}",
    )
    return check if turn is None else at_turn(turn, check)


def _sought(what: str, pattern: str, case: bool) -> re.Pattern[str]:
    if pattern == "":
        raise ConfigError(f"{what} needs a pattern: an empty one is found in whatever is said")
    return compiled(pattern, case=case)


def conversation_finished() -> Check:
    """Hold when the user ended the conversation, rather than the turn limit."""
    return EvidencedCheck(
        "conversation_finished()",
        lambda _, log: log.terminated,
        explain=lambda _, log: f"ended by {log.ended_by or 'nobody'} after {log.turns_taken} turns",
    )
