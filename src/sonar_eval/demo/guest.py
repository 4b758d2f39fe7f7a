"""The offline guest: plays the user by cues written in the scenario. A scripted stand-in, not a language model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError
from ..llm import Completion, LLMConfig, Message
from .directives import fraction

_LOST = ("Sorry, I did not get that. Can you help me or not?", "Hm, that is not what I asked for.")


@dataclass(frozen=True)
class Cue:
    """What to say when the bot's last message matches; of several lines one is picked per trial."""

    when: str
    say: tuple[str, ...]
    times: int = 1


@dataclass(frozen=True)
class OfflineGuest:
    """Open with one of `opening`, then answer by the first cue that fits and is not used up.

    After `patience` answers that fit no cue the guest leaves. The same seed gives the same guest.
    """

    opening: tuple[str, ...]
    cues: tuple[Cue, ...] = ()
    patience: int = 2
    signal: str = field(default="[[END]]")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, signal: str = "[[END]]") -> OfflineGuest:
        """Read `opening`, `cues` and `patience`; raises `ConfigError` naming what is missing or cannot be read."""
        opening = _lines(settings.get("opening"))
        if not opening:
            raise ConfigError(
                "user=offline needs offline_user.opening in the scenario (what the scripted guest says first); "
                "or play the user with a model: user=local, user=openai"
            )
        _only("offline_user", settings, ("opening", "cues", "patience"))
        cues = tuple(_cue(f"offline_user, cue {place}", row) for place, row in enumerate(settings.get("cues") or ()))
        return cls(opening, cues, _count("offline_user: patience", settings.get("patience", cls.patience)), signal)

    async def complete(self, config: LLMConfig, system: str, messages: list[Message]) -> Completion:
        """Return the guest's next message."""
        heard = [message.content for message in messages if message.role == "user"][1:]
        return Completion(self._line(config.seed or 0, heard))

    def _line(self, seed: int, heard: Sequence[str]) -> str:
        """Live through all the bot said, so as to know which cues are used up."""
        line = _pick(self.opening, seed, 0)
        used: dict[int, int] = {}
        lost = 0
        for turn, said in enumerate(heard, 1):
            place = self._fitting(said, used)
            if place is not None:
                used[place] = used.get(place, 0) + 1
                line = _pick(self.cues[place].say, seed, turn)
            else:
                lost += 1
                line = _pick(_LOST, seed, turn) if lost <= self.patience else f"I'll leave it then. {self.signal}"
        return line

    def _fitting(self, said: str, used: Mapping[int, int]) -> int | None:
        for place, cue in enumerate(self.cues):
            if used.get(place, 0) < cue.times and re.search(cue.when, said, re.IGNORECASE):
                return place
        return None


def _cue(where: str, row: Any) -> Cue:
    if not isinstance(row, Mapping) or not row.get("when") or not _lines(row.get("say")):
        raise ConfigError(f"{where}: expected when and say, got {row!r}")
    _only(where, row, ("when", "say", "times"))
    try:
        re.compile(str(row["when"]))
    except re.error as error:
        raise ConfigError(f"{where}: when: {row['when']!r} is no regular expression: {error}") from error
    return Cue(str(row["when"]), _lines(row["say"]), _count(f"{where}: times", row.get("times", 1)))


def _only(where: str, settings: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = [str(key) for key in settings if key not in known]
    if unknown:
        raise ConfigError(f"{where}: unknown {', '.join(unknown)}; known: {', '.join(known)}")


def _count(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{what} must be a whole number of 0 or more, got {value!r}")
    return value


def _pick(lines: Sequence[str], seed: int, turn: int) -> str:
    return lines[int(fraction("guest", seed, turn) * len(lines))]


def _lines(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(line) for line in value or ())
