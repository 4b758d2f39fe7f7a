"""From a model's settings to a client."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..errors import ConfigError
from ..usage import Price
from .anthropic import BASE_URL, AnthropicClient
from .contract import LLMConfig
from .openai import OpenAIClient
from .provider import ProviderClient

_made: dict[tuple[str, ...], ProviderClient] = {}


def make_client(settings: Mapping[str, Any]) -> ProviderClient:
    """Make the client that `settings` (provider, base_url, api_key_env, api_key_header, extra_body) describe.

    The same settings give the same client, so that all trials share what it learns: how many requests a provider
    takes at a time, and what a model refuses. Raises `ConfigError` for an unknown provider, or when the variable that
    should hold the key is empty.
    """
    provider, base_url = settings.get("provider"), settings.get("base_url")
    header, extra = settings.get("api_key_header"), settings.get("extra_body") or {}
    key = _key(settings.get("api_key_env"))
    options: dict[str, Any] = {"extra_body": extra, **({"key_header": str(header)} if header else {})}
    if provider not in ("anthropic", "openai"):
        raise ConfigError(
            f"model {settings.get('model')!r}: unknown provider {provider!r}; known here: anthropic, openai "
            "(offline models are the demo bot's only)"
        )
    if provider == "openai" and not base_url:
        raise ConfigError(f"model {settings.get('model')!r}: base_url is missing, e.g. http://localhost:8000/v1")
    place = tuple(map(str, (provider, base_url, key, header, json.dumps(extra, sort_keys=True, default=str))))
    if place not in _made:
        if provider == "anthropic":
            _made[place] = AnthropicClient(key, str(base_url or BASE_URL), **options)
        else:
            _made[place] = OpenAIClient(str(base_url), key, **options)
    return _made[place]


def make_config(settings: Mapping[str, Any]) -> LLMConfig:
    """Take model, temperature, max_tokens, seed and price out of `settings`."""
    return LLMConfig(
        str(settings["model"]),
        float(settings.get("temperature", LLMConfig.temperature)),
        int(settings.get("max_tokens", LLMConfig.max_tokens)),
        settings.get("seed"),
        make_price(settings),
    )


def make_price(settings: Mapping[str, Any]) -> Price | None:
    """Take the price out of `settings`; None when it is not known.

    Raises `ConfigError` for one that is no price.
    """
    row = settings.get("price")
    if row is None:
        return None
    where = f"model {settings.get('model')!r}: price"
    known = [entry.name for entry in fields(Price)]
    if not isinstance(row, Mapping) or not {"input", "output"} <= set(row) <= set(known):
        raise ConfigError(f"{where}: expected input and output, perhaps {' and '.join(known[2:])}, got {row!r}")
    for name, value in row.items():
        amount = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        if not amount and not (value is None and name in known[2:]):
            raise ConfigError(f"{where}: {name} must be US dollars per million tokens, got {value!r}")
    return Price(**row)


def _key(variable: str | None) -> str | None:
    if not variable:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"the environment variable {variable} is empty; put the API key there")
    return key
