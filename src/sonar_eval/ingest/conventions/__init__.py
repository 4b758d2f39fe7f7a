"""What attributes mean: one file per convention.

Where several have a word on the same field, the first in this order counts; on the kind, the lowest `kind_rank`.
"""

from .adk import ADK
from .contract import Convention, MessageReading, Reading
from .genai import GenAI
from .genai_events import GenAIEvents
from .langchain import LangChain
from .mcp import MCP
from .openinference import OpenInference
from .pydantic_ai import PydanticAI
from .sonar import Sonar
from .strands import Strands
from .traceloop import Traceloop
from .vercel import Vercel

CONVENTIONS: tuple[Convention, ...] = (
    GenAI(),
    Vercel(),
    OpenInference(),
    Traceloop(),
    PydanticAI(),
    ADK(),
    GenAIEvents(),
    MCP(),
    Strands(),
    LangChain(),
    Sonar(),
)

__all__ = ["CONVENTIONS", "Convention", "MessageReading", "Reading"]
