"""The café's bot: a chat model with the shop's tools, in this process or behind HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import sonar_tracing

from ..adapter import BaseBotAdapter, Session, TrialContext, Variant
from ..adapter.chat import ChatAgent, Tool
from ..appside import count_spans, end_trial
from ..conversation import Delivered, FormSubmission
from ..interceptor import FaultSpec, ProxyInterceptor
from ..llm import ChatClient, make_client, make_config
from .model import OfflineModel
from .shop import Shop

PROJECT = "eval-fullcontent"
_DEFAULT_MODEL = {"provider": "offline", "model": "offline-careful", "reliability": 0.97, "habit": 0.75}
_DEFAULT_PROMPT = "You are the assistant of Café Lumen. Use the tools you have."


Dispatch = Callable[..., Awaitable[Any]]


def start_tracing(**settings: Any) -> None:
    """Start tracing with whole content: made-up guests have no privacy, and the judge sees tool data.

    Where to export to comes from `settings`, or from the variables SONAR_ENDPOINT and SONAR_API_KEY.
    """
    sonar_tracing.init(
        service_name="cafe-bot",
        framework=[],
        project=PROJECT,
        redaction_mode="allow",
        schedule_delay_millis=200,
        max_queue_size=16_384,
        max_attribute_length=200_000,
        **settings,
    )
    count_spans()


def make_brain(settings: Mapping[str, Any]) -> ChatClient:
    """Make the model that `settings` describe: an offline stand-in, or a real one."""
    if settings.get("provider") == "offline":
        return OfflineModel(float(settings["reliability"]), float(settings["habit"]))
    return make_client(settings)


def _behind(dispatch: Dispatch | None, entry: Tool) -> Tool:
    return replace(entry, function=partial(dispatch, entry.schema.name, entry.function)) if dispatch else entry


class CafeConversation:
    """One guest at the counter.

    Each tool is called by `await dispatch(name, function, **arguments)` where that is given; else directly.
    """

    def __init__(
        self,
        variant: Variant,
        *,
        random_seed: int,
        seed: Mapping[str, Any],
        interceptor: ProxyInterceptor | None = None,
        dispatch: Dispatch | None = None,
    ) -> None:
        settings = variant.model_params or _DEFAULT_MODEL
        config = make_config({**settings, "seed": random_seed})
        self._shop = Shop(seed)
        self._agent = ChatAgent(
            make_brain(settings),
            config,
            system=variant.prompt_text or _DEFAULT_PROMPT,
            tools=[_behind(dispatch, entry) for entry in self._shop.tools()],
            name="cafe",
            provider=str(settings.get("provider")),
            interceptor=interceptor or ProxyInterceptor(FaultSpec()),
        )

    async def send(self, text: str, submission: FormSubmission | None) -> Delivered:
        """Answer one message of the guest."""
        answer = await self._agent.reply(text)
        return Delivered((answer,) if answer else (), forms=self._shop.take_forms())

    def snapshot(self) -> dict[str, Any]:
        """Show the books of the shop."""
        return self._shop.snapshot()

    async def close(self) -> None:
        """Close the shop."""
        self._shop.close()


class CafeBot(BaseBotAdapter):
    """The café's bot in this process; faults come in through the trial's interceptor."""

    name = "cafe"

    def __init__(self, **tracing: Any) -> None:
        start_tracing(**tracing)

    async def setup_trial(self, ctx: TrialContext) -> Session:
        """Open the shop for one guest."""
        conversation = CafeConversation(
            ctx.variant, random_seed=ctx.random_seed, seed=ctx.seed.data, interceptor=ctx.interceptor
        )
        return Session(ctx.conversation_id, (conversation, ctx.tenant))

    async def send(
        self, session: Session, user_msg: str, media: Any = None, submission: FormSubmission | None = None
    ) -> Delivered:
        """Answer one message of the guest, traced under the trial's conversation."""
        conversation, tenant = session.handle
        with sonar_tracing.identity(conversation_id=session.conversation_id, tenant_id=tenant):
            delivered: Delivered = await conversation.send(user_msg, submission)
            return delivered

    def snapshot(self, session: Session) -> Any:
        """Show the books of the guest's shop."""
        conversation, _ = session.handle
        return conversation.snapshot()

    async def teardown_trial(self, session: Session) -> None:
        """Close the shop, send what spans are left, and say how many there were."""
        if session.handle is not None:
            conversation, tenant = session.handle
            await conversation.close()
            await end_trial(session.conversation_id, tenant_id=tenant)
