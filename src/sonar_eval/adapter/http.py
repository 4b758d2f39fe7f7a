"""A bot in a process of its own, driven over HTTP in the form of `wire`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from ..conversation import Delivered, FormSubmission
from ..errors import ConfigError, LLMTransportError, describe
from ..web import excerpt, hide, is_address, open_client
from . import wire
from .contract import Session, TrialContext
from .process import BotProcess

if TYPE_CHECKING:
    import httpx

# What bots answer that were made before there was a snapshot, or by hand.
_NO_SUCH_ROUTE = (404, 405, 501)


class HTTPBotAdapter:
    """Drive the bot at `base_url`, or start one with `command` first.

    `key` is sent in `x-sonar-eval-key`. As a context manager it starts and stops the process; without a
    process there is nothing to enter. Raises `ConfigError` for an address that is none; later on `ConnectionError`
    that quotes the bot's answer: whose failure that is depends on the step, which the trial knows.
    """

    def __init__(
        self,
        base_url: str = "",
        *,
        name: str = "http-bot",
        key: str | None = None,
        timeout_s: float = 120.0,
        process: BotProcess | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name = name
        if (base_url or process is None) and not is_address(base_url):
            raise ConfigError(f"expected an address such as http://localhost:9000/sonar-eval, got {base_url!r}")
        self._base_url = base_url.rstrip("/")
        self._key = key.strip() if key else None
        self._timeout_s = timeout_s
        self._process = process
        self._transport = transport

    async def __aenter__(self) -> Self:
        if self._process is not None:
            await self._process.start()
            self._base_url = self._process.base_url + wire.DEFAULT_PREFIX
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            await self._process.stop()

    async def setup_trial(self, ctx: TrialContext) -> Session:
        """Post the trial's setup, faults included."""
        await self._ask("POST", "/trials", wire.write_setup(ctx))
        return Session(ctx.conversation_id)

    async def send(
        self, session: Session, user_msg: str, media: Any = None, submission: FormSubmission | None = None
    ) -> Delivered:
        """Post one turn; `media` has no place on this wire and is left out."""
        path = f"/trials/{quote(session.conversation_id, safe='')}/turns"
        body = await self._ask("POST", path, wire.write_turn(user_msg, submission))
        try:
            return wire.read_delivered(body)
        except ValueError as error:
            said = hide(str(error), self._key)
            raise ConnectionError(f"{self.name} at {self._base_url} answered no turn: {said}") from error

    async def snapshot(self, session: Session) -> Any:
        """Ask for the state the bot is in; None from a bot that has no such route."""
        path = f"/trials/{quote(session.conversation_id, safe='')}/snapshot"
        body = await self._ask("GET", path, None, absent=_NO_SUCH_ROUTE)
        return None if body is None else wire.read_snapshot(body)

    async def teardown_trial(self, session: Session) -> None:
        """Let the bot release the trial; one it does not know is torn down already."""
        path = f"/trials/{quote(session.conversation_id, safe='')}"
        await self._ask("DELETE", path, None, absent=(404,))

    async def _ask(self, method: str, path: str, body: Any, *, absent: tuple[int, ...] = ()) -> Any:
        """Return the bot's answer; None where it answers with a status of `absent`, or with nothing."""
        import httpx

        url = self._base_url + path
        headers = {wire.KEY_HEADER: self._key} if self._key else {}
        opened = open_client(url, timeout_s=self._timeout_s, headers=headers, transport=self._transport)
        try:
            async with opened as client:
                response = await client.request(method, url, json=body)
        except httpx.RequestError as error:
            ended = self._process.last_words() if self._process else ""
            raise ConnectionError(hide(f"{method} {url}: {describe(error)}{ended}", self._key)) from error
        if response.status_code in absent:
            return None
        if response.status_code not in (200, 201):
            said = f"{method} {url} answered {response.status_code}: {excerpt(response.text, self._key)}"
            raise (LLMTransportError if _blames_provider(response) else ConnectionError)(said)
        try:
            return response.json() if response.content else None
        except ValueError as error:
            raise ConnectionError(f"{method} {url} answered no JSON: {excerpt(response.text, self._key)}") from error


def _blames_provider(response: httpx.Response) -> bool:
    """Tell whether the bot says that the provider of its model failed, which says nothing about the bot."""
    try:
        return bool(response.json().get(wire.FAILED) == wire.PROVIDER)
    except (ValueError, AttributeError):
        return False
