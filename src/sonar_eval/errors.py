"""Every failure this package can name, and who is to blame for it.

    SonarEvalError
    ├── ConfigError (ValueError)         the user can fix it; said in one line, before money is spent
    │   ├── MissingModuleError           (also a ModuleNotFoundError)
    │   └── MissingAttributeError        (also an AttributeError)
    ├── BoundaryError                    something failed while a trial crossed a border
    │   ├── BotError                     counts against the bot
    │   ├── SimulatorError               ┐
    │   ├── JudgeError                   │ say nothing about the bot:
    │   ├── IngestError                  │ counted apart, never as a pass or a fail
    │   │   └── EmptyTranscriptError     │ (also a RuntimeError)
    │   └── HarnessError                 ┘
    └── LLMError                         a language model gave no usable answer
        ├── LLMTransportError            not reached, timed out, rate limited, 5xx: trying again may help
        ├── LLMRequestError              the provider refused the request: trying again will not help
        └── LLMAnswerError               an answer came, but there is nothing in it to use
            └── LLMSilenceError          the model chose to say nothing: the simulator asks it again
    InjectedFault (RuntimeError)         a failure this package put into a tool call on purpose

An `LLMError` has no owner of its own: the border it crosses decides. At the bot's border it becomes a
`HarnessError`, since a provider's outage says nothing about the bot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class Owner(StrEnum):
    """Who failed."""

    BOT = "bot"
    SIMULATOR = "simulator"
    JUDGE = "judge"
    INGEST = "ingest"
    HARNESS = "harness"


class SonarEvalError(Exception):
    """Root of every error raised on purpose by this package."""


class ConfigError(SonarEvalError, ValueError):
    """What the user asked for cannot be run; the message says what to change."""


class MissingModuleError(ConfigError, ModuleNotFoundError):
    """A module that the user named cannot be imported."""


class MissingAttributeError(ConfigError, AttributeError):
    """A module that the user named has no such attribute."""


class BoundaryError(SonarEvalError):
    """A step of a trial failed; `owner` says on whose side of the border."""

    owner: Owner = Owner.HARNESS

    def __init__(self, message: str, *, step: str = "") -> None:
        super().__init__(message)
        self.step = step

    @property
    def origin(self) -> BaseException:
        """The exception that crossed the border, or this one when there was none."""
        return self.__cause__ or self


class BotError(BoundaryError):
    """The bot raised, hung or crashed."""

    owner = Owner.BOT


class SimulatorError(BoundaryError):
    """The simulated user could not go on."""

    owner = Owner.SIMULATOR


class JudgeError(BoundaryError):
    """The judge gave no verdict that can be read."""

    owner = Owner.JUDGE


class IngestError(BoundaryError):
    """The trace could not be had, or is not whole."""

    owner = Owner.INGEST


class EmptyTranscriptError(IngestError, RuntimeError):
    """No span of the conversation ever arrived."""


class HarnessError(BoundaryError):
    """Something on our own side failed."""

    owner = Owner.HARNESS


class LLMError(SonarEvalError):
    """A language model gave no usable answer."""

    retryable: bool = False
    """Whether the same request may go better later; the clients of this package have then tried it already."""
    usage: Any = None
    """The tokens that it took all the same (an `llm.Usage`), where the provider told."""


class LLMTransportError(LLMError):
    """The provider was not reached, was too slow, or asked us to come back later."""

    retryable = True


class LLMRequestError(LLMError):
    """The provider refused the request as it stands."""


class LLMAnswerError(LLMError):
    """The answer is empty, cut off before it began, or a refusal."""


class LLMSilenceError(LLMAnswerError):
    """The model ended its answer by itself before it said anything."""


class InjectedFault(RuntimeError):
    """The failure that a `FaultRule` put in place of a tool call."""


_BORDERS: dict[Owner, type[BoundaryError]] = {
    Owner.BOT: BotError,
    Owner.SIMULATOR: SimulatorError,
    Owner.JUDGE: JudgeError,
    Owner.INGEST: IngestError,
    Owner.HARNESS: HarnessError,
}


def describe(error: BaseException) -> str:
    """Say what went wrong in words that are never empty: many exceptions carry no text of their own."""
    name, text = type(error).__name__, str(error).strip()
    return f"{name}: {text}" if text else name


def border_error(owner: Owner, message: str, *, step: str) -> BoundaryError:
    """Make the error of this owner's border."""
    return _BORDERS[owner](message, step=step)


def crossed(error: BaseException | None) -> tuple[Owner, str] | None:
    """Return owner and step of the innermost border that a cancellation crossed: who was at work when it came."""
    found: tuple[Owner, str] | None = getattr(error, "crossed_border", None)
    return found


def in_short(error: BaseException, limit: int = 300) -> str:
    """Describe an error in one line of at most `limit` characters, for a message that goes on."""
    return " ".join(describe(error).split())[:limit]


async def in_thread(function: Callable[..., T], /, *args: Any, **named: Any) -> T:
    """Call a plain function in a thread and return what it does; a `StopIteration` of it comes as `RuntimeError`.

    No future can hold a `StopIteration`: whoever waits for it would wait for ever.
    """
    return await asyncio.to_thread(_without_stop, function, args, named)


def _without_stop(function: Callable[..., T], args: Sequence[Any], named: Mapping[str, Any]) -> T:
    try:
        return function(*args, **named)
    except StopIteration as error:
        name = getattr(function, "__name__", None) or type(function).__name__
        raise RuntimeError(f"{name} raised StopIteration, as next(…) does when there is nothing left") from error


def _asked_to_stop() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True
    return task is None or task.cancelling() > 0


class boundary:  # reads as a word where it is used
    """Turn whatever escapes the block into the error of this border, unless it is named already.

    Cancellation and interrupts pass, a cancellation marked with the border for `crossed`; one that nobody asked
    this task for is a failure like any other.
    """

    # A class, for each turn crosses two, and a generator in its place takes three times as long.
    __slots__ = ("_owner", "_step")

    def __init__(self, owner: Owner, step: str) -> None:
        self._owner = owner
        self._step = step

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, BoundaryError):
            return
        owner, step = self._owner, self._step
        if isinstance(error, asyncio.CancelledError):
            if _asked_to_stop():
                error.__dict__.setdefault("crossed_border", (owner, step))
                return
            raise _BORDERS[owner]("CancelledError: it cancelled itself", step=step) from error
        if isinstance(error, Exception):
            blamed = Owner.HARNESS if owner is Owner.BOT and isinstance(error, LLMError) else owner
            raise _BORDERS[blamed](describe(error), step=step) from error
