"""The café's bot as an app: what a team's own service looks like with the harness's routes mounted."""

from __future__ import annotations

from starlette.applications import Starlette

from ..adapter.wire import TrialSetup
from ..appside import FaultGate, trial_routes
from .bot import CafeConversation, start_tracing


async def open_conversation(setup: TrialSetup) -> CafeConversation:
    """Open the shop for one guest, with the posted faults in front of its tools.

    The gate also marks the span of each call it breaks, by which the harness knows that a fault has fired.
    """
    gate = FaultGate(setup.faults)
    return CafeConversation(
        setup.variant,
        random_seed=setup.random_seed,
        seed=setup.seed,
        dispatch=gate.call,
    )


def create_app() -> Starlette:
    """Make the app, with tracing on."""
    start_tracing()
    return Starlette(routes=trial_routes(open_conversation))
