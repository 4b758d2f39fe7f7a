"""Bots: the contract an adapter fulfils, and the adapters that ship in the box."""

from ..conversation import Delivered, Form, FormField, FormSubmission
from ..interceptor import FaultSpec, Fidelity
from .contract import BaseBotAdapter, BotAdapter, Seed, Session, TrialContext, Variant
from .loading import check_adapter, load_adapter, load_object, validate_bot_adapter
from .snapshot import take_snapshot

__all__ = [
    "BaseBotAdapter",
    "BotAdapter",
    "Delivered",
    "FaultSpec",
    "Fidelity",
    "Form",
    "FormField",
    "FormSubmission",
    "Seed",
    "Session",
    "TrialContext",
    "Variant",
    "check_adapter",
    "load_adapter",
    "load_object",
    "take_snapshot",
    "validate_bot_adapter",
]
