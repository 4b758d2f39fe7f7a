"""Asking the ingest for a trace, and waiting until it stops growing."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ..errors import EmptyTranscriptError, IngestError, describe
from ..web import open_client
from . import wire
from .view import Transcript

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 30.0


class IngestClient:
    """Pull conversations of one tenant.

    A trace counts as settled when two answers at least `quiet_s` apart are equal (default: twice the
    `delay` of the pull); one that still grows after `settle_timeout_s` is returned as incomplete.
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

    def __repr__(self) -> str:
        return f"IngestClient({self._base_url!r}, tenant={self._tenant!r})"

    async def fetch(self, conversation_id: str) -> Transcript:
        """Ask once; an unknown conversation is an empty transcript.

        Raises `IngestError` when the ingest is not reached, refuses, or answers what cannot be read.
        """
        import httpx

        url = self._base_url + wire.conversation_path(conversation_id)
        opened = open_client(url, timeout_s=TIMEOUT_S, headers=self._headers, transport=self._transport)
        try:
            async with opened as client:
                response = await client.get(url, params={"tenant": self._tenant})
        except httpx.RequestError as error:
            raise IngestError(f"no answer from the ingest at {self._base_url}: {describe(error)}") from error
        if response.status_code == 404:
            return Transcript(conversation_id)
        if response.status_code != 200:
            said = response.text.replace(self._key, "[key]") if self._key else response.text
            raise IngestError(f"the ingest at {self._base_url} answered {response.status_code}: {said[:300]}")
        return _read(conversation_id, response)

    async def pull(self, conversation_id: str, *, retries: int = 10, delay: float = 0.5) -> Transcript:
        """Wait for the first data (`retries` fetches, `delay` seconds apart), then until it settles.

        With `delay=0` the first answer that is not empty is returned as it is. Raises
        `EmptyTranscriptError` when nothing came.
        """
        transcript = await self._first(conversation_id, retries, delay)
        if delay <= 0:
            return transcript
        return await self._settled(transcript, self._quiet_s if self._quiet_s is not None else 2 * delay)

    async def _first(self, conversation_id: str, retries: int, delay: float) -> Transcript:
        failure: IngestError | None = None
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
        if failure is not None:
            raise failure
        raise EmptyTranscriptError(
            f"no transcript: the ingest holds no span of conversation {conversation_id} "
            f"for tenant {self._tenant!r} after {retries} tries"
        )

    async def _settled(self, transcript: Transcript, quiet_s: float) -> Transcript:
        deadline = time.monotonic() + self._settle_timeout_s
        while True:
            await asyncio.sleep(quiet_s)
            later = await self.fetch(transcript.conversation_id)
            if _same(later, transcript):
                return later
            transcript = later
            if time.monotonic() >= deadline:
                transcript.completeness = {
                    "level": 0,
                    "complete": False,
                    "reasons": [f"spans were still arriving after {self._settle_timeout_s:g} s"],
                }
                return transcript


def _same(one: Transcript, other: Transcript) -> bool:
    return (one.runs, one.spans, one.content) == (other.runs, other.spans, other.content)


def _read(conversation_id: str, response: httpx.Response) -> Transcript:
    try:
        body = response.json()
        runs, spans, content = (wire.read_rows(body, key) for key in ("runs", "spans", "content"))
        return Transcript(conversation_id, runs, spans, content, body.get("completeness"))
    except ValueError as error:
        raise IngestError(f"the ingest answered what cannot be read as a conversation: {error}") from error
