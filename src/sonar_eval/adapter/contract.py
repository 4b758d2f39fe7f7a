"""What a bot must offer to be evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from ..conversation import Delivered, FormSubmission
from ..interceptor import FaultSpec, Fidelity, ProxyInterceptor


@dataclass
class Seed:
    """The state a trial starts from; a copy of the trial's own, free to be changed."""

    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """What is being compared: the model and the prompt a bot is to run with."""

    model: str = ""
    """The name of the model choice."""
    prompt: str = ""
    """The name of the prompt choice."""
    prompt_text: str = ""
    model_params: dict[str, Any] = field(default_factory=dict)
    """How to reach and sample the model: provider, model id, base_url, name of the key's variable, …"""


@dataclass(frozen=True)
class TrialContext:
    """Everything an adapter needs to set one trial up."""

    conversation_id: str
    seed: Seed
    faults: FaultSpec
    fidelity: Fidelity
    index: int = 0
    """0-based place among the k trials."""
    random_seed: int = 0
    """The same for the same index in every variant, so that A and B meet the same users."""
    variant: Variant = Variant()
    params: dict[str, Any] = field(default_factory=dict)
    """The scenario's own parameters; a copy."""
    interceptor: ProxyInterceptor | None = None
    """Ready to be put in front of tools (mocked fidelity); what fires is recorded with the trial."""
    tenant: str | None = None
    """The tenant whose traces are pulled."""


@dataclass
class Session:
    """One conversation in progress; `handle` is the adapter's own."""

    conversation_id: str
    handle: Any = None


class BotAdapter(Protocol):
    """Connect one bot to the harness.

    An adapter may also have `snapshot(session)`, plain or async: the state the bot is in after the last turn, as
    plain JSON values, which `final_state` checks.
    """

    name: str

    async def setup_trial(self, ctx: TrialContext) -> Session:
        """Prepare one isolated conversation, traced under `ctx.conversation_id`."""
        ...

    async def send(
        self, session: Session, user_msg: str, media: Any = None, submission: FormSubmission | None = None
    ) -> Delivered:
        """Hand one user turn over and return what the user sees; `submission` comes only with a form."""
        ...

    async def teardown_trial(self, session: Session) -> None:
        """Release what setup took; also called after a setup that failed half-way."""
        ...


class BaseBotAdapter:
    """A start for adapters: names the three methods and does nothing to tear down."""

    name = "bot"

    async def setup_trial(self, ctx: TrialContext) -> Session:
        """Prepare one isolated conversation."""
        raise NotImplementedError(f"{type(self).__name__} must define setup_trial(ctx)")

    async def send(
        self, session: Session, user_msg: str, media: Any = None, submission: FormSubmission | None = None
    ) -> Delivered:
        """Hand one user turn over."""
        raise NotImplementedError(f"{type(self).__name__} must define send(session, user_msg, media)")

    async def teardown_trial(self, session: Session) -> None:
        """Release nothing."""
