"""One way to ask a provider, and to ask again: patience, jitter, and errors that say who said what."""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import LLMAnswerError, LLMRequestError, LLMTransportError, describe
from ..web import open_client

if TYPE_CHECKING:
    import httpx

# Reasoning models and judges think for minutes; httpx would give up after 5 s.
READ_TIMEOUT_S = 120.0
RETRIED_STATUS = frozenset({408, 409, 425, 429, *range(500, 600)})
QUOTED = 500
# Below this it is a placeholder, as local servers take, and no secret.
_SHORTEST_KEY = 8

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how patiently to ask again: `max_retries` of N means N + 1 requests at most.

    Waits grow from `first_wait_s` by twice, up to `longest_wait_s`, each a random part of that (full jitter:
    Brooker, "Exponential Backoff and Jitter", 2015). A provider that names a time is waited for, up to
    `longest_asked_s`.
    """

    max_retries: int = 5
    first_wait_s: float = 1.0
    longest_wait_s: float = 30.0
    longest_asked_s: float = 120.0

    def wait_s(self, attempt: int, asked_s: float | None, chance: random.Random) -> float:
        """Return how long to wait after the 0-based `attempt`."""
        if asked_s is not None:
            # Never sooner than asked, and not all at the same moment after it.
            return min(asked_s, self.longest_asked_s) + chance.uniform(0, min(1.0, asked_s))
        return chance.uniform(0, min(self.longest_wait_s, self.first_wait_s * 2.0**attempt))


@dataclass(frozen=True)
class _Trouble:
    """A request that may go better when it is sent again."""

    said: str
    asked_s: float | None = None
    cause: Exception | None = None


class JSONTransport:
    """Post JSON to one URL of a provider.

    Raises `LLMTransportError` when asking again did not help, `LLMRequestError` for a request that is refused,
    `LLMAnswerError` for an answer that is no JSON. What a provider says is quoted, its key never.
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
        self._headers = dict(headers)
        self._key = key
        self._timeout_s = timeout_s
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._transport = transport
        self._chance = random.Random()

    def hide(self, text: str) -> str:
        """Take the key out of a text that a provider may have repeated it in."""
        return text.replace(self._key, "[key]") if len(self._key) >= _SHORTEST_KEY else text

    async def post(self, model: str, body: Mapping[str, Any]) -> Any:
        """Return the answer's JSON, asking again while the policy allows."""
        attempt = 0
        while True:
            outcome = await self._try(model, body)
            if not isinstance(outcome, _Trouble):
                return outcome
            if attempt >= self._retry.max_retries:
                raise LLMTransportError(self.hide(self._final(outcome, attempt))) from outcome.cause
            await self._sleep(self._retry.wait_s(attempt, outcome.asked_s, self._chance))
            attempt += 1

    def _final(self, trouble: _Trouble, attempt: int) -> str:
        said = trouble.said if not attempt else f"{trouble.said} (asked {attempt + 1} times)"
        if trouble.asked_s is not None and trouble.asked_s > self._retry.longest_asked_s:
            limit = self._retry.longest_asked_s
            said += f"; it asks to wait {trouble.asked_s:g} s, and at most {limit:g} s are waited (longest_asked_s)"
        return said

    async def _try(self, model: str, body: Mapping[str, Any]) -> Any:
        import httpx

        opened = open_client(self.url, timeout_s=self._timeout_s, headers=self._headers, transport=self._transport)
        try:
            # A client per call costs little beside a model's answer, and is bound to no event loop.
            async with opened as client:
                response = await client.post(self.url, json=body)
        except httpx.RequestError as error:
            said = f"{model} at {self.url} gave no answer (timeout {self._timeout_s:g} s): {describe(error)}"
            return _Trouble(said, cause=error)
        said = f"{model} at {self.url} answered HTTP {response.status_code}: {response.text[:QUOTED]}"
        if response.status_code in RETRIED_STATUS or _is_overloaded(response):
            return _Trouble(said, asked_wait_s(response.headers))
        if response.status_code != 200:
            raise LLMRequestError(self.hide(said))
        try:
            return response.json()
        except ValueError as error:
            text = self.hide(response.text[:QUOTED])
            raise LLMAnswerError(f"{model} at {self.url} answered no JSON: {text}") from error


def _is_overloaded(response: httpx.Response) -> bool:
    """Tell whether the body says what the status does not: some gateways wrap an overload in another status."""
    try:
        error = response.json().get("error")
    except (ValueError, AttributeError):
        return False
    kind = error.get("type") or error.get("code") if isinstance(error, dict) else None
    return kind in ("overloaded_error", "overloaded", "rate_limit_error", "rate_limit_exceeded")


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
