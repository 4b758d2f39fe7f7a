"""Routes by which the harness hands a bot its conversation id, its faults and the user's turns.

They let whoever reaches them inject faults: mount them in test deployments only, or behind a key.
"""

from __future__ import annotations

import hmac
import inspect
import json
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import sonar_tracing
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..adapter import wire
from ..conversation import Delivered, FormSubmission
from ..errors import LLMError, describe
from .counting import count_spans, end_trial

log = logging.getLogger(__name__)


class Conversation(Protocol):
    """One conversation of the bot.

    It may also have `snapshot()`, plain or async: the state the bot is in, as plain JSON values.
    """

    async def send(self, text: str, submission: FormSubmission | None) -> Delivered:
        """Answer one user turn."""
        ...

    async def close(self) -> None:
        """Release what the conversation holds."""
        ...


OpenConversation = Callable[[wire.TrialSetup], Awaitable[Conversation]]


def trial_routes(
    open_conversation: OpenConversation, *, key: str | None = None, prefix: str = wire.DEFAULT_PREFIX
) -> list[Route]:
    """Return Starlette routes that drive the conversations `open_conversation` makes.

    Every turn runs in `sonar_tracing.identity(conversation_id=…)`. With `key` (default: the variable
    SONAR_EVAL_BOT_KEY) a caller must send it in `x-sonar-eval-key`.
    """
    desk = _Desk(open_conversation, key or os.environ.get(wire.KEY_VARIABLE))
    one = prefix + "/trials/{conversation_id:path}"
    return [
        Route(prefix + "/trials", _telling(desk.open), methods=["POST"]),
        Route(one + "/turns", _telling(desk.turn), methods=["POST"]),
        Route(one + "/snapshot", _telling(desk.snapshot), methods=["GET"]),
        Route(one, _telling(desk.close), methods=["DELETE"]),
    ]


def _telling(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Answer with the reason when the bot fails: the harness quotes it in its report."""

    async def handled(request: Request) -> Response:
        try:
            return await handle(request)
        except LLMError as error:
            return JSONResponse({"error": describe(error), wire.FAILED: wire.PROVIDER}, 502)
        except Exception as error:
            log.exception("the bot failed in %s %s", request.method, request.url.path)
            return _problem(500, describe(error))

    return handled


class _Desk:
    def __init__(self, open_conversation: OpenConversation, key: str | None) -> None:
        self._open = open_conversation
        self._key = key
        self._conversations: dict[str, tuple[Conversation, wire.TrialSetup]] = {}
        self._opening: set[str] = set()

    async def open(self, request: Request) -> Response:
        if not self._allowed(request):
            return _problem(401, f"no valid key in {wire.KEY_HEADER}")
        try:
            setup = wire.read_setup(await _json(request))
        except (ValueError, KeyError, TypeError) as error:
            return _problem(400, f"no trial setup: {error}")
        if setup.conversation_id in self._conversations or setup.conversation_id in self._opening:
            return _problem(409, f"conversation {setup.conversation_id} is open already")
        # Tracing may have been started since these routes were made.
        count_spans()
        self._opening.add(setup.conversation_id)
        try:
            with self._identity(setup):
                self._conversations[setup.conversation_id] = (await self._open(setup), setup)
        finally:
            self._opening.discard(setup.conversation_id)
        return JSONResponse({"conversation_id": setup.conversation_id}, 201)

    async def turn(self, request: Request) -> Response:
        if not self._allowed(request):
            return _problem(401, f"no valid key in {wire.KEY_HEADER}")
        found = self._conversations.get(request.path_params["conversation_id"])
        if found is None:
            return _problem(404, "no such conversation is open")
        try:
            text, submission = wire.read_turn(await _json(request))
        except (ValueError, KeyError, TypeError) as error:
            return _problem(400, f"no turn: {error}")
        conversation, setup = found
        with self._identity(setup):
            delivered = await conversation.send(text, submission)
        return JSONResponse(wire.write_delivered(delivered))

    async def snapshot(self, request: Request) -> Response:
        if not self._allowed(request):
            return _problem(401, f"no valid key in {wire.KEY_HEADER}")
        found = self._conversations.get(request.path_params["conversation_id"])
        if found is None:
            return _problem(404, "no such conversation is open")
        snapshot = getattr(found[0], "snapshot", None)
        if snapshot is None:
            return _problem(404, "this bot shows no state")
        # Outside the conversation's identity: looking at the state is nothing that the bot did.
        state = snapshot()
        return JSONResponse(wire.write_snapshot(await state if inspect.isawaitable(state) else state))

    async def close(self, request: Request) -> Response:
        if not self._allowed(request):
            return _problem(401, f"no valid key in {wire.KEY_HEADER}")
        conversation_id = request.path_params["conversation_id"]
        found = self._conversations.pop(conversation_id, None)
        if found is None:
            return _problem(404, "no such conversation is open")
        conversation, setup = found
        try:
            with self._identity(setup):
                await conversation.close()
        finally:
            # The harness asks for the trace next, and is told how many spans there must be.
            counted = await end_trial(conversation_id, tenant_id=setup.tenant)
        return JSONResponse({"closed": True, "counted": counted})

    def _identity(self, setup: wire.TrialSetup) -> Any:
        return sonar_tracing.identity(conversation_id=setup.conversation_id, tenant_id=setup.tenant)

    def _allowed(self, request: Request) -> bool:
        given = request.headers.get(wire.KEY_HEADER, "")
        return self._key is None or hmac.compare_digest(given.encode(), self._key.encode())


async def _json(request: Request) -> dict[str, Any]:
    body = json.loads(await request.body())
    if not isinstance(body, dict):
        raise ValueError("expected a JSON object")
    return body


def _problem(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)
