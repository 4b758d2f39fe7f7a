"""Language models: the contract, and the clients that ship in the box."""

from .anthropic import AnthropicClient
from .contract import (
    ChatClient,
    ChatReply,
    Completion,
    LLMClient,
    LLMConfig,
    Message,
    ToolRequest,
    ToolSchema,
    Usage,
)
from .factory import make_client, make_config, make_price
from .limiter import WAITS, AdaptiveLimiter, Waits
from .meter import Meter, price_usage
from .openai import OpenAIClient
from .scripted import ScriptedClient
from .transport import READ_TIMEOUT_S, RetryPolicy

__all__ = [
    "READ_TIMEOUT_S",
    "WAITS",
    "AdaptiveLimiter",
    "AnthropicClient",
    "ChatClient",
    "ChatReply",
    "Completion",
    "LLMClient",
    "LLMConfig",
    "Message",
    "Meter",
    "OpenAIClient",
    "RetryPolicy",
    "ScriptedClient",
    "ToolRequest",
    "ToolSchema",
    "Usage",
    "Waits",
    "make_client",
    "make_config",
    "make_price",
    "price_usage",
]
