"""What a bot's team mounts in its own app, so that the harness can drive it."""

from .counted import CountedAdapter
from .counting import CountingSpanProcessor, count_spans, end_trial
from .gate import FaultGate
from .routes import Conversation, trial_routes

__all__ = [
    "Conversation",
    "CountedAdapter",
    "CountingSpanProcessor",
    "FaultGate",
    "count_spans",
    "end_trial",
    "trial_routes",
]
