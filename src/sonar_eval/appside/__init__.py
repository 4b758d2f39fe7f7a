"""What a bot's team mounts in its own app, so that the harness can drive it."""

from .gate import FaultGate
from .routes import Conversation, trial_routes

__all__ = ["Conversation", "FaultGate", "trial_routes"]
