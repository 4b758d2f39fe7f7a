"""What attributes mean: one file per convention, asked in this order."""

from .contract import Convention, MessageReading, Reading
from .genai import GenAI
from .sonar import Sonar

CONVENTIONS: tuple[Convention, ...] = (GenAI(), Sonar())

__all__ = ["CONVENTIONS", "Convention", "MessageReading", "Reading"]
