"""What came back from a provider: the JSON in it, the error it names, and the wait that it asks for."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

RETRIED_STATUS = frozenset({408, 409, 425, 429, *range(500, 600)})
OVERLOADED_STATUS = frozenset({429, 503, 529})
_OVERLOADS = OVERLOADED_STATUS | {
    *("overloaded_error", "overloaded", "rate_limit_error", "rate_limit_exceeded", "throttling_error"),
}
_FAILURES = RETRIED_STATUS | {"api_error", "timeout_error", "server_error", "internal_server_error", "internal_error"}
# Comes as a rate limit, and no patience helps against it.
_NO_MONEY = "insufficient_quota"
# What a gateway would say that passes on an upstream error without its number.
_BAD_GATEWAY = 502


@dataclass(frozen=True)
class Answer:
    """An answer of a provider, read to its end."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    encoding: str = "utf-8"

    @cached_property
    def text(self) -> str:
        """The answer as text; what cannot be read becomes replacement characters."""
        return self.content.decode(self.encoding, "replace")

    @cached_property
    def body(self) -> Any:
        """The JSON of the answer, half a surrogate pair made a replacement character; raises `ValueError` for none."""
        try:
            body = json.loads(self.content)
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error
        # Only an escape can bring half a pair in.
        if "\\ud" not in self.text.lower():
            return body
        return json.loads(well_formed(json.dumps(body, ensure_ascii=False)))

    @property
    def readable(self) -> Any:
        """The JSON of the answer, None where there is none."""
        try:
            return self.body
        except ValueError:
            return None

    @property
    def breaks_off(self) -> bool:
        """Whether it begins as an object does, and is none."""
        return self.readable is None and self.text.lstrip().startswith("{")

    @property
    def limited(self) -> bool:
        """Whether the provider has too much to do, whatever the status: some gateways wrap one in another."""
        overloaded = self.status in OVERLOADED_STATUS or bool(self._kinds & _OVERLOADS)
        return overloaded and _NO_MONEY not in self._kinds

    @property
    def failed(self) -> bool:
        """Whether the provider could not answer and may be able to later, as its status says, or the body of a 200."""
        failed = self.status in RETRIED_STATUS or (self.status == 200 and bool(self._kinds & _FAILURES))
        return (failed or self.limited) and _NO_MONEY not in self._kinds

    @cached_property
    def _kinds(self) -> frozenset[int | str]:
        error = error_in(self.readable) or {}
        kinds = (error.get("type"), _number(error.get("code")))
        return frozenset(kind for kind in kinds if isinstance(kind, int | str))


def error_in(body: Any) -> Mapping[str, Any] | None:
    """Find the error that a body names, at its top or in its first choice, as gateways tell of what is behind them."""
    if not isinstance(body, dict):
        return None
    if error := body.get("error"):
        return error if isinstance(error, dict) else {"message": error}
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not (choice.get("error") or choice.get("finish_reason") == "error"):
        return None
    error = choice.get("error")
    error = error if isinstance(error, dict) else {"message": error}
    return {**error, "code": error.get("code") or _BAD_GATEWAY}


def _number(code: Any) -> Any:
    return int(code) if isinstance(code, str) and code.isdecimal() else code


def well_formed(text: str) -> str:
    """Replace halves of surrogate pairs, which UTF-8 has no bytes for."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
