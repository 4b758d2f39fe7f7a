"""A bot without an adapter of one's own: a chat model, a prompt, and Python functions as its tools."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import sonar_tracing

from ..conversation import Delivered, FormSubmission
from ..errors import ConfigError
from ..llm import ChatClient, LLMConfig, make_client, make_config
from .chat import ChatAgent, Tool, tool
from .contract import BaseBotAdapter, Session, TrialContext

ToolLike = Tool | Callable[..., Any]
MAX_STEPS = 12


class ChatBot(BaseBotAdapter):
    """Answer with a chat model that may call `tools`, traced under each trial's conversation.

    Tools are functions, or one function that makes them from the trial's `TrialContext`. A parameter annotated
    `TrialContext` is not shown to the model and is filled in with the trial's own: `ctx.seed.data` is the state that
    the tools of a trial share. Without `client` or `config` that of the variant's model is taken, without `prompt`
    the variant's. After `max_steps` answers that do nothing but call tools, the bot stays silent. Raises `ConfigError`
    for what is no tool.
    """

    def __init__(
        self,
        client: ChatClient | None = None,
        *,
        tools: Sequence[ToolLike] | Callable[[TrialContext], Sequence[ToolLike]] = (),
        prompt: str | None = None,
        config: LLMConfig | None = None,
        name: str = "chat",
        provider: str | None = None,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.name = name
        self._client = client
        self._config = config
        self._prompt = prompt
        self._provider = provider
        self._max_steps = max_steps
        self._tools = tools
        if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
            raise ConfigError(f"bot {name!r}: max_steps must be a whole number of 1 or more, got {max_steps!r}")
        if not callable(tools):
            make_tools(tools, None)

    async def setup_trial(self, ctx: TrialContext) -> Session:
        """Begin one conversation; starts tracing, as the environment says, if nobody has."""
        if sonar_tracing.current_state() is None:
            sonar_tracing.init(service_name=self.name, framework=[])
        settings = ctx.variant.model_params
        config = self._config or self._read_config(settings)
        agent = ChatAgent(
            self._client or make_client(settings),
            replace(config, seed=ctx.random_seed) if config.seed is None else config,
            system=ctx.variant.prompt_text if self._prompt is None else self._prompt,
            tools=make_tools(self._tools(ctx) if callable(self._tools) else self._tools, ctx),
            name=self.name,
            provider=self._provider or str(settings.get("provider") or "unknown"),
            interceptor=ctx.interceptor,
            max_steps=self._max_steps,
        )
        return Session(ctx.conversation_id, (agent, ctx.tenant))

    def _read_config(self, settings: dict[str, Any]) -> LLMConfig:
        if not settings.get("model"):
            raise ConfigError(f"bot {self.name!r}: no model; give it a config, or the task a variant with a model")
        return make_config(settings)

    async def send(
        self, session: Session, user_msg: str, media: Any = None, submission: FormSubmission | None = None
    ) -> Delivered:
        """Answer one message of the user."""
        agent, tenant = session.handle
        with sonar_tracing.identity(conversation_id=session.conversation_id, tenant_id=tenant):
            answer = await agent.reply(user_msg)
        return Delivered((answer,) if answer else ())

    async def teardown_trial(self, session: Session) -> None:
        """Send what spans are left."""
        await asyncio.to_thread(sonar_tracing.force_flush)


def make_tools(tools: Sequence[ToolLike], ctx: TrialContext | None) -> list[Tool]:
    """Make tools of functions, bound to a trial where they ask for it.

    Raises `ConfigError` for what is no function, cannot be described to a model, or has the name of another.
    """
    made = [entry if isinstance(entry, Tool) else _make_tool(entry, ctx) for entry in tools]
    names = [entry.schema.name for entry in made]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigError(f"two tools are named {', '.join(map(repr, doubled))}; a model could not tell them apart")
    return made


def _make_tool(function: Any, ctx: TrialContext | None) -> Tool:
    if not callable(function):
        raise ConfigError(f"{function!r} is no tool: expected a function")
    try:
        hints = typing.get_type_hints(function)
        return tool(function, given={name: ctx for name, hint in hints.items() if hint is TrialContext})
    except Exception as error:
        raise ConfigError(f"{getattr(function, '__name__', function)} is no tool: {error}") from error
