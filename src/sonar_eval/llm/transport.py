"""One way to ask a provider, and to ask again: patience, jitter, and errors that say who said what."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import LLMAnswerError, LLMRequestError, LLMTransportError, Owner, boundary, describe
from ..patience import StepClock, not_counted
from ..web import excerpt, hide, open_client
from .answer import RETRIED_STATUS, Answer, asked_wait_s, well_formed
from .limiter import WAITS, AdaptiveLimiter, Sleep, Ticket, WaitCounter, Waits

if TYPE_CHECKING:
    import httpx

# Reasoning models and judges think for minutes; httpx would give up after 5 s.
READ_TIMEOUT_S = 120.0
# Gateways send blanks for minutes while a model thinks, and some of them for ever.
_WHOLE = 5
# Below this it is a placeholder, as local servers take, and no secret.
_SHORTEST_KEY = 8
# Whoever runs out of time here has a provider to wait for, and is not to blame.
_WAITING = "waiting for the provider"

Lost = Callable[[Any], None]


def _forget(body: Any) -> None:
    """Ask nothing of what is lost."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how patiently to ask again: `max_retries` of N means N + 1 requests at most.

    A rate limit passes, however busy the provider is; one that fails in another way more than `max_failures` times in a
    row is given up sooner.
    Waits grow from `first_wait_s` by twice, up to `longest_wait_s`, each a random part of that (full jitter:
    Brooker, "Exponential Backoff and Jitter", 2015). A provider that names a time is waited for, up to
    `longest_asked_s`; "at once" is no time.
    """

    max_retries: int = 20
    first_wait_s: float = 1.0
    longest_wait_s: float = 30.0
    longest_asked_s: float = 120.0
    max_failures: int = 6

    def wait_s(self, attempt: int, asked_s: float | None, chance: random.Random) -> float:
        """Return how long to wait after the 0-based `attempt`."""
        # "At once" names no time: again and again, it would be no wait at all.
        if asked_s:
            # Never sooner than asked, and not all at the same moment after it.
            return min(asked_s, self.longest_asked_s) + chance.uniform(0, min(1.0, asked_s))
        return chance.uniform(0, min(self.longest_wait_s, self.first_wait_s * 2.0**attempt))


@dataclass(frozen=True)
class _Trouble:
    """A request that may go better when it is sent again."""

    said: str
    asked_s: float | None = None
    cause: Exception | None = None
    limited: bool = False
    """Whether the provider has too much to do, rather than something wrong with it."""
    answer: Answer | None = None


class JSONTransport:
    """Post JSON to one URL of a provider.

    Raises `LLMTransportError` when asking again did not help, `LLMRequestError` for a request that is refused,
    `LLMAnswerError` for an answer that is no JSON. What a provider says is quoted, its key never. How many requests
    are under way at a time is found out per model. `timeout_s` is how long it may be silent; however much comes, the
    whole of one try ends after five times that, 10 minutes by default.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        key: str = "",
        timeout_s: float = READ_TIMEOUT_S,
        retry: RetryPolicy | None = None,
        sleep: Sleep = asyncio.sleep,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url
        self._headers = {**headers, "content-type": "application/json"}
        self._key = key if len(key) >= _SHORTEST_KEY else ""
        self._timeout_s = timeout_s
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._transport = transport
        self._chance = random.Random()
        self._counter = WaitCounter(WAITS)
        self._limiters: dict[str, AdaptiveLimiter] = {}

    @property
    def waits(self) -> Waits:
        """Tell how often was waited so far, and how long."""
        return self._counter.read()

    def hide(self, text: str) -> str:
        """Take the key out of a text that a provider may have repeated it in."""
        return hide(text, self._key)

    def excerpt(self, text: str) -> str:
        """Return the beginning of what a provider said, without the key."""
        return excerpt(text, self._key)

    def limiter(self, model: str) -> AdaptiveLimiter:
        """Return what decides how many requests for `model` are under way."""
        fresh = AdaptiveLimiter(sleep=self._sleep, waits=self._counter)
        return self._limiters.setdefault(model, fresh)

    async def post(self, model: str, body: Mapping[str, Any], *, lost: Lost = _forget) -> Any:
        """Return the answer's JSON, asking again while the policy allows.

        `lost` is told the JSON of each answer with status 200 that was of no use, None where there was none in it.

        What a step is charged for is how long the answer took that came, whatever is in it. As long as a provider is
        silent nobody can tell whether it works or is away, so that a step's limit strikes with the next sign of life.
        """
        content = _encode(body)
        with not_counted() as clock:
            answer = await self._post(model, content, clock, lost)
        return self._read(model, answer, lost)

    async def _post(self, model: str, content: bytes, clock: StepClock | None, lost: Lost) -> Answer:
        limiter, attempt, failures, rested_until = self.limiter(model), 0, 0, 0.0
        while True:
            with boundary(Owner.HARNESS, _WAITING):
                ticket = await limiter.enter(rested_until)
            outcome = await self._send(limiter, ticket, model, content, clock)
            if isinstance(outcome, Answer):
                return outcome
            if outcome.answer is not None and outcome.answer.status == 200:
                lost(outcome.answer.readable)
            if outcome.asked_s is not None:
                rested_until = limiter.pause(min(outcome.asked_s, self._retry.longest_asked_s))
            failures = 0 if outcome.limited else failures + 1
            if attempt >= self._retry.max_retries or failures > self._retry.max_failures:
                raise LLMTransportError(self.hide(self._final(outcome, attempt))) from outcome.cause
            # A dropped connection between many rate limits is the first of its kind, and no sign to back off far.
            step = attempt if outcome.limited else failures - 1
            wait_s = self._retry.wait_s(step, outcome.asked_s, self._chance)
            with boundary(Owner.HARNESS, _WAITING):
                await self._sleep(wait_s)
            self._counter.add(retries=1, retry_wait_s=wait_s)
            attempt += 1

    async def _send(
        self, limiter: AdaptiveLimiter, ticket: Ticket, model: str, content: bytes, clock: StepClock | None
    ) -> Answer | _Trouble:
        answered, limited, began = False, False, time.perf_counter()
        try:
            outcome = await self._try(model, content, clock)
            limited = isinstance(outcome, _Trouble) and outcome.limited
            if isinstance(outcome, Answer):
                answered = outcome.status == 200
                if clock is not None:
                    clock.charge(time.perf_counter() - began)
            return outcome
        finally:
            limiter.leave(ticket, limited=limited, answered=answered)
            self._counter.add(requests=1, limited=int(limited))

    def _final(self, trouble: _Trouble, attempt: int) -> str:
        said = trouble.said if not attempt else f"{trouble.said} (asked {attempt + 1} times)"
        if trouble.asked_s is not None and trouble.asked_s > self._retry.longest_asked_s:
            limit = self._retry.longest_asked_s
            said += f"; it asks to wait {trouble.asked_s:g} s, and at most {limit:g} s are waited (longest_asked_s)"
        return said

    async def _try(self, model: str, content: bytes, clock: StepClock | None) -> Answer | _Trouble:
        import httpx

        whole = asyncio.timeout(_WHOLE * self._timeout_s)
        try:
            async with whole:
                return self._sort(model, await self._fetch(content, clock))
        except httpx.RequestError as error:
            said = f"{model} at {self.url} gave no answer (timeout {self._timeout_s:g} s): {describe(error)}"
            return _Trouble(said, cause=error)
        except TimeoutError as error:
            if not whole.expired():
                raise
            limit = f"{_WHOLE * self._timeout_s:g} s, {_WHOLE} times the timeout of {self._timeout_s:g} s"
            return _Trouble(f"{model} at {self.url} had not answered in whole after {limit}", cause=error)

    async def _fetch(self, content: bytes, clock: StepClock | None) -> Answer:
        opened = open_client(self.url, timeout_s=self._timeout_s, headers=self._headers, transport=self._transport)
        parts, began = [], time.perf_counter()
        # A client per call costs little beside a model's answer, and is bound to no event loop.
        async with opened as client, client.stream("POST", self.url, content=content) as response:
            async for part in response.aiter_bytes():
                parts.append(part)
                if clock is not None and response.status_code not in RETRIED_STATUS:
                    clock.hear(time.perf_counter() - began)
            return Answer(response.status_code, response.headers, b"".join(parts), response.encoding or "utf-8")

    def _sort(self, model: str, answer: Answer) -> Answer | _Trouble:
        """Tell an answer from what may be one when it is asked for again."""
        if answer.failed:
            return _Trouble(
                self._said(model, answer), asked_wait_s(answer.headers), limited=answer.limited, answer=answer
            )
        if answer.status == 200 and answer.breaks_off:
            said = f"{model} at {self.url} answered JSON that breaks off: {self.excerpt(answer.text)}"
            return _Trouble(said, answer=answer)
        return answer

    def _read(self, model: str, answer: Answer, lost: Lost) -> Any:
        if answer.status != 200:
            raise LLMRequestError(self.hide(self._said(model, answer)))
        try:
            return answer.body
        except ValueError as error:
            lost(None)
            said = self.excerpt(answer.text)
            raise LLMAnswerError(f"{model} at {self.url} answered no JSON: {said}") from error

    def _said(self, model: str, answer: Answer) -> str:
        return f"{model} at {self.url} answered HTTP {answer.status}: {self.excerpt(answer.text)}"


def _encode(body: Mapping[str, Any]) -> bytes:
    return well_formed(json.dumps(body, ensure_ascii=False, separators=(",", ":"))).encode()
