"""From a model's settings to a client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from .anthropic import BASE_URL, AnthropicClient
from .contract import LLMConfig
from .openai import OpenAIClient
from .provider import ProviderClient


def make_client(settings: Mapping[str, Any]) -> ProviderClient:
    """Make the client that `settings` (provider, base_url, api_key_env, extra_body) describe.

    Raises `ConfigError` for an unknown provider, or when the variable that should hold the key is empty.
    """
    provider, base_url = settings.get("provider"), settings.get("base_url")
    key, extra = _key(settings.get("api_key_env")), settings.get("extra_body") or {}
    if provider == "anthropic":
        return AnthropicClient(key, str(base_url or BASE_URL), extra_body=extra)
    if provider != "openai":
        raise ConfigError(
            f"model {settings.get('model')!r}: unknown provider {provider!r}; known here: anthropic, openai "
            "(offline models are the demo bot's only)"
        )
    if not base_url:
        raise ConfigError(f"model {settings.get('model')!r}: base_url is missing, e.g. http://localhost:8000/v1")
    return OpenAIClient(str(base_url), key, extra_body=extra)


def make_config(settings: Mapping[str, Any]) -> LLMConfig:
    """Take model, temperature, max_tokens and seed out of `settings`."""
    return LLMConfig(
        str(settings["model"]),
        float(settings.get("temperature", LLMConfig.temperature)),
        int(settings.get("max_tokens", LLMConfig.max_tokens)),
        settings.get("seed"),
    )


def _key(variable: str | None) -> str | None:
    if not variable:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"the environment variable {variable} is empty; put the API key there")
    return key
