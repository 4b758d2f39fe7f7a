"""Asking the ingest for a trace, and waiting until it is whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

from ..errors import EmptyTranscriptError, IngestError, describe
from ..web import Line, excerpt, hide
from . import wire
from .view import Transcript

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 35.0
# Below the limits that proxies usually set.
_WAIT_S = 20.0


@dataclass(frozen=True)
class Expectation:
    """What is known of a conversation from its other side, and makes its trace provable."""

    turns: int | None = None
    trial_id: str | None = None
    began: float | None = None
    """When it began, by this process's monotonic clock."""


class IngestClient:
    """Pull conversations of one tenant.

    Our own ingest says how far a trace is known to be whole: it is waited for until level 3 (counted), or until
    the server has seen quiet for `quiet_s` (default: what the server thinks fit). With a server that does not
    say, a trace counts as settled when two answers at least `quiet_s` apart are equal (default: twice the
    `delay` of the pull). What is not whole after `settle_timeout_s` is returned as incomplete.
    """

    def __init__(
        self,
        base_url: str,
        tenant: str,
        *,
        api_key: str | None = None,
        api_key_header: str = wire.DEFAULT_KEY_HEADER,
        quiet_s: float | None = None,
        settle_timeout_s: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._tenant = tenant
        self._key = (api_key or "").strip()
        self._headers = {api_key_header.lower(): self._key} if self._key else {}
        self._quiet_s = quiet_s
        self._settle_timeout_s = settle_timeout_s
        self._transport = transport
        self._expected: dict[str, Expectation] = {}
        self._waiting: set[str] = set()
        self._held: Line | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._holders = 0

    def __repr__(self) -> str:
        return f"IngestClient({self._base_url!r}, tenant={self._tenant!r})"

    async def __aenter__(self) -> Self:
        """Keep connections open until left; without that, each request opens one of its own."""
        if self._held is None:
            self._held, self._loop = self._open(), asyncio.get_running_loop()
        self._holders += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holders -= 1
        if self._holders == 0 and self._held is not None:
            held, self._held = self._held, None
            await held.__aexit__(kind, error, trace)

    def _open(self) -> Line:
        return Line(self._base_url, transport=self._transport)

    def expect(self, conversation_id: str, expectation: Expectation) -> None:
        """Say what is known of a conversation before it is pulled."""
        self._expected[conversation_id] = expectation

    async def fetch(self, conversation_id: str) -> Transcript:
        """Ask once; an unknown conversation is an empty transcript.

        Raises `IngestError` when the ingest is not reached, refuses, or answers what cannot be read.
        """
        response = await self._get(conversation_id, self._asking(conversation_id))
        if response.status_code == 404:
            return Transcript(conversation_id, completeness=_refusal(response))
        return _read(conversation_id, response)

    async def digests(self, conversation_ids: Sequence[str]) -> dict[str, str]:
        """Return what tells the state of each conversation from any other, where the server can say."""
        found: dict[str, str] = {}
        for start in range(0, len(conversation_ids), wire.MOST_DIGESTS):
            part = list(conversation_ids[start : start + wire.MOST_DIGESTS])
            response = await self._ask(wire.DIGESTS_PATH, {"id": part})
            body = response.json() if response.status_code == 200 else {}
            told = body.get("digests") if isinstance(body, dict) else None
            found |= {key: value for key, value in (told or {}).items() if isinstance(value, str)}
        return found

    async def _get(self, conversation_id: str, params: Mapping[str, str]) -> httpx.Response:
        return await self._ask(wire.conversation_path(conversation_id), params)

    async def _ask(self, path: str, params: Mapping[str, str | list[str]]) -> httpx.Response:
        import httpx

        url = f"{self._base_url}{path}?{urlencode({'tenant': self._tenant, **params}, doseq=True)}"
        try:
            if self._held is not None and self._loop is asyncio.get_running_loop():
                response = await self._held.get(url, headers=self._headers, timeout_s=TIMEOUT_S)
            else:
                async with self._open() as line:
                    response = await line.get(url, headers=self._headers, timeout_s=TIMEOUT_S)
        except httpx.RequestError as error:
            said = hide(describe(error), self._key)
            raise IngestError(f"no answer from the ingest at {self._base_url}: {said}") from error
        if response.status_code not in (200, 404):
            said = excerpt(response.text, self._key)
            raise IngestError(f"the ingest at {self._base_url} answered {response.status_code}: {said}")
        return response

    def _asking(self, conversation_id: str) -> dict[str, str]:
        """Write the query by which our own ingest waits and proves; an older one leaves it alone."""
        expected = self._expected.get(conversation_id, Expectation())
        params = {"wait": f"{min(_WAIT_S, self._settle_timeout_s):g}"} if conversation_id in self._waiting else {}
        params["min_level"] = "3"
        if self._quiet_s is not None:
            params["quiet"] = f"{self._quiet_s:g}"
        if expected.turns is not None:
            params["turns"] = str(expected.turns)
        if expected.trial_id is not None:
            params["seal"] = expected.trial_id
        if expected.began is not None:
            params["since"] = f"{time.monotonic() - expected.began:.3f}"
        return params

    async def pull(self, conversation_id: str, *, retries: int = 10, delay: float = 0.5) -> Transcript:
        """Wait for the first data (`retries` fetches, `delay` seconds apart), then until it is whole.

        With `delay=0` the first answer that is not empty is returned as it is. Raises
        `EmptyTranscriptError` when nothing came.
        """
        if delay > 0:
            self._waiting.add(conversation_id)
        try:
            transcript = await self._first(conversation_id, retries, delay)
            if delay <= 0:
                return transcript
            if transcript.completeness is None:
                return await self._settled(transcript, self._quiet_s if self._quiet_s is not None else 2 * delay)
            return await self._whole(transcript)
        finally:
            self._waiting.discard(conversation_id)
            self._expected.pop(conversation_id, None)

    async def _first(self, conversation_id: str, retries: int, delay: float) -> Transcript:
        failure: IngestError | None = None
        refused = ""
        for attempt in range(retries):
            if attempt:
                await asyncio.sleep(delay)
            try:
                transcript = await self.fetch(conversation_id)
            except IngestError as error:
                failure = error
                continue
            if not transcript.is_empty:
                return transcript
            failure = None
            refused = (transcript.completeness or {}).get("refusal", "")
        if failure is not None:
            raise failure
        raise EmptyTranscriptError(
            f"no transcript: the ingest holds no span of conversation {conversation_id} "
            f"for tenant {self._tenant!r} after {retries} tries" + (f" ({refused})" if refused else "")
        )

    async def _whole(self, transcript: Transcript) -> Transcript:
        """Ask on while the server says that waiting may help."""
        deadline = time.monotonic() + self._settle_timeout_s
        while not _is_settled(transcript) and time.monotonic() < deadline:
            transcript = await self.fetch(transcript.conversation_id)
        return transcript

    async def _settled(self, transcript: Transcript, quiet_s: float) -> Transcript:
        deadline = time.monotonic() + self._settle_timeout_s
        while True:
            await asyncio.sleep(quiet_s)
            last_try = time.monotonic() >= deadline
            try:
                later = await self.fetch(transcript.conversation_id)
            except IngestError:
                # What is at hand is worth another look, as long as there is time.
                if last_try:
                    raise
                continue
            if _same(later, transcript):
                return later
            transcript = later
            if last_try:
                transcript.completeness = {
                    "level": 0,
                    "complete": False,
                    "reasons": [f"spans were still arriving after {self._settle_timeout_s:g} s"],
                }
                return transcript


def _is_settled(transcript: Transcript) -> bool:
    completeness: dict[str, Any] = transcript.completeness or {}
    return bool(completeness.get("final") or completeness.get("level", 0) >= 3)


def _same(one: Transcript, other: Transcript) -> bool:
    return (one.runs, one.spans, one.content) == (other.runs, other.spans, other.content)


def _refusal(response: httpx.Response) -> dict[str, Any] | None:
    """Keep what the server says of requests it refused: the likeliest reason for an empty trace."""
    try:
        said = response.json().get("error", "")
    except (ValueError, AttributeError):
        return None
    return {"complete": False, "refusal": said.partition("; ")[2]} if "refused" in str(said) else None


def _read(conversation_id: str, response: httpx.Response) -> Transcript:
    try:
        body = response.json()
        runs, spans, content = (wire.read_rows(body, key) for key in ("runs", "spans", "content"))
        return Transcript(conversation_id, runs, spans, content, body.get("completeness"))
    except ValueError as error:
        raise IngestError(f"the ingest answered what cannot be read as a conversation: {error}") from error
