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
        """Read `opening`, `cues` and `patience`; raises `ConfigError` when there is nothing to open with."""
        opening = _lines(settings.get("opening"))
        if not opening:
            raise ConfigError(
                "user=offline needs offline_user.opening in the scenario (what the scripted guest says first); "
                "or play the user with a model: user=local, user=openai"
            )
        cues = tuple(
            Cue(str(cue["when"]), _lines(cue["say"]), int(cue.get("times", 1))) for cue in settings.get("cues") or ()
        )
        return cls(opening, cues, int(settings.get("patience", cls.patience)), signal)

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


def _pick(lines: Sequence[str], seed: int, turn: int) -> str:
    return lines[int(fraction("guest", seed, turn) * len(lines))]


def _lines(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(line) for line in value or ())
