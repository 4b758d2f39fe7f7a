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
from .factory import make_client, make_config
from .openai import OpenAIClient
from .scripted import ScriptedClient
from .transport import RetryPolicy

__all__ = [
    "AnthropicClient",
    "ChatClient",
    "ChatReply",
    "Completion",
    "LLMClient",
    "LLMConfig",
    "Message",
    "OpenAIClient",
    "RetryPolicy",
    "ScriptedClient",
    "ToolRequest",
    "ToolSchema",
    "Usage",
    "make_client",
    "make_config",
]
