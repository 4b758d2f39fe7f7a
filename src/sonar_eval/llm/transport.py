"""One way to ask a provider, and to ask again: patience, jitter, and errors that say who said what."""

from __future__ import annotations

import asyncio
import email.utils
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import LLMAnswerError, LLMRequestError, LLMTransportError, Owner, boundary, describe
from ..patience import not_counted
from ..web import excerpt, hide, open_client
from .limiter import WAITS, AdaptiveLimiter, Sleep, Ticket, WaitCounter, Waits

if TYPE_CHECKING:
    import httpx

# Reasoning models and judges think for minutes; httpx would give up after 5 s.
READ_TIMEOUT_S = 120.0
RETRIED_STATUS = frozenset({408, 409, 425, 429, *range(500, 600)})
OVERLOADED_STATUS = frozenset({429, 503, 529})
# Below this it is a placeholder, as local servers take, and no secret.
_SHORTEST_KEY = 8
_OVERLOADS = (
    *("overloaded_error", "overloaded", "rate_limit_error", "rate_limit_exceeded", "throttling_error"),
    *(429, 503, 529, "429", "503", "529"),
)
# Whoever runs out of time here has a provider to wait for, and is not to blame.
_WAITING = "waiting for the provider"
# Comes as a rate limit, and no patience helps against it.
_NO_MONEY = "insufficient_quota"


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how patiently to ask again: `max_retries` of N means N + 1 requests at most.

    A rate limit passes, however busy the provider is; one that fails in another way more than `max_failures` times in a
    row is given up sooner.
    Waits grow from `first_wait_s` by twice, up to `longest_wait_s`, each a random part of that (full jitter:
    Brooker, "Exponential Backoff and Jitter", 2015). A provider that names a time is waited for, up to
    `longest_asked_s`; one below `first_wait_s` shortens no wait.
    """

    max_retries: int = 20
    first_wait_s: float = 1.0
    longest_wait_s: float = 30.0
    longest_asked_s: float = 120.0
    max_failures: int = 6

    def wait_s(self, attempt: int, asked_s: float | None, chance: random.Random) -> float:
        """Return how long to wait after the 0-based `attempt`."""
        grown_s = chance.uniform(0, min(self.longest_wait_s, self.first_wait_s * 2.0**attempt))
        if asked_s is None:
            return grown_s
        # Never sooner than asked, and not all at the same moment after it.
        told_s = min(asked_s, self.longest_asked_s) + chance.uniform(0, min(1.0, asked_s))
        # "At once", again and again, is no time to wait for.
        return told_s if asked_s >= self.first_wait_s else max(told_s, grown_s)


@dataclass(frozen=True)
class _Trouble:
    """A request that may go better when it is sent again."""

    said: str
    asked_s: float | None = None
    cause: Exception | None = None
    limited: bool = False
    """Whether the provider has too much to do, rather than something wrong with it."""


class JSONTransport:
    """Post JSON to one URL of a provider.

    Raises `LLMTransportError` when asking again did not help, `LLMRequestError` for a request that is refused,
    `LLMAnswerError` for an answer that is no JSON. What a provider says is quoted, its key never. How many requests
    are under way at a time is found out per model.
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

    async def post(self, model: str, body: Mapping[str, Any]) -> Any:
        """Return the answer's JSON, asking again while the policy allows."""
        content = _encode(body)
        with not_counted() as clock:
            answer, took_s = await self._post(model, content)
            if clock is not None:
                clock.charge(took_s)
            return answer

    async def _post(self, model: str, content: bytes) -> tuple[Any, float]:
        """Return the answer and how long it took, without the tries that came to nothing."""
        limiter, attempt, failures, rested_until = self.limiter(model), 0, 0, 0.0
        while True:
            with boundary(Owner.HARNESS, _WAITING):
                ticket = await limiter.enter(rested_until)
            began = time.perf_counter()
            outcome = await self._send(limiter, ticket, model, content)
            if not isinstance(outcome, _Trouble):
                return outcome, time.perf_counter() - began
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

    async def _send(self, limiter: AdaptiveLimiter, ticket: Ticket, model: str, content: bytes) -> Any:
        answered, limited = False, False
        try:
            outcome = await self._try(model, content)
            limited = isinstance(outcome, _Trouble) and outcome.limited
            answered = not isinstance(outcome, _Trouble)
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

    async def _try(self, model: str, content: bytes) -> Any:
        import httpx

        opened = open_client(self.url, timeout_s=self._timeout_s, headers=self._headers, transport=self._transport)
        try:
            # A client per call costs little beside a model's answer, and is bound to no event loop.
            async with opened as client:
                response = await client.post(self.url, content=content)
        except httpx.RequestError as error:
            said = f"{model} at {self.url} gave no answer (timeout {self._timeout_s:g} s): {describe(error)}"
            return _Trouble(said, cause=error)
        return self._read(model, response)

    def _read(self, model: str, response: httpx.Response) -> Any:
        said = f"{model} at {self.url} answered HTTP {response.status_code}: {self.excerpt(response.text)}"
        kinds = _kinds(response)
        overload = any(kind in _OVERLOADS for kind in kinds)
        if (response.status_code in RETRIED_STATUS or overload) and _NO_MONEY not in kinds:
            limited = overload or response.status_code in OVERLOADED_STATUS
            return _Trouble(said, asked_wait_s(response.headers), limited=limited)
        if response.status_code != 200:
            raise LLMRequestError(self.hide(said))
        try:
            return _decode(response)
        except ValueError as error:
            text = self.excerpt(response.text)
            if response.text.lstrip().startswith("{"):
                return _Trouble(f"{model} at {self.url} answered JSON that breaks off: {text}", cause=error)
            raise LLMAnswerError(f"{model} at {self.url} answered no JSON: {text}") from error


def _encode(body: Mapping[str, Any]) -> bytes:
    """Write JSON; half a surrogate pair, which UTF-8 has no bytes for, becomes a replacement character."""
    return _well_formed(json.dumps(body, ensure_ascii=False, separators=(",", ":"))).encode()


def _decode(response: httpx.Response) -> Any:
    """Read JSON; half a surrogate pair, which only an escape can bring in, becomes a replacement character."""
    body = response.json()
    if "\\ud" not in response.text.lower():
        return body
    return json.loads(_well_formed(json.dumps(body, ensure_ascii=False)))


def _well_formed(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _kinds(response: httpx.Response) -> tuple[Any, ...]:
    """Read what kind of error the body names, whatever the status: some gateways wrap one in another."""
    try:
        error = response.json().get("error")
    except (ValueError, AttributeError):
        return ()
    return (error.get("type"), error.get("code")) if isinstance(error, dict) else ()


def asked_wait_s(headers: Mapping[str, str]) -> float | None:
    """Read how long a provider asks to be left alone: seconds, milliseconds or a date; None for none or nonsense."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if not value:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            seconds = _until(value)
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def _until(date: str) -> float:
    try:
        return max(email.utils.parsedate_to_datetime(date).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return -1.0
