"""From a model's settings to a client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from .contract import LLMConfig
from .openai import OpenAIClient


def make_client(settings: Mapping[str, Any]) -> OpenAIClient:
    """Make the client that `settings` (provider, base_url, api_key_env, extra_body) describe.

    Raises `ConfigError` for an unknown provider, or when the variable that should hold the key is empty.
    """
    provider = settings.get("provider")
    if provider != "openai":
        raise ConfigError(f"model {settings.get('model')!r}: unknown provider {provider!r}; known: openai, offline")
    base_url = settings.get("base_url")
    if not base_url:
        raise ConfigError(f"model {settings.get('model')!r}: base_url is missing, e.g. http://localhost:8000/v1")
    return OpenAIClient(str(base_url), _key(settings.get("api_key_env")), extra_body=settings.get("extra_body") or {})


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
