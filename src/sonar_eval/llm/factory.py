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
from .transport import READ_TIMEOUT_S, RetryPolicy

_made: dict[tuple[str, ...], ProviderClient] = {}


def make_client(settings: Mapping[str, Any]) -> ProviderClient:
    """Make the client that `settings` describe.

    Read are provider, base_url, api_key_env, api_key_header, timeout_s, max_retries and extra_body.

    The same settings give the same client, so that all trials share what it learns: how many requests a provider
    takes at a time, and what a model refuses. Raises `ConfigError` for an unknown provider, for a base_url that is no
    address, or when the variable that should hold the key is empty.
    """
    provider, base_url = settings.get("provider"), settings.get("base_url")
    header, extra = settings.get("api_key_header"), settings.get("extra_body") or {}
    key = _key(settings.get("api_key_env"))
    options = {"extra_body": extra, **_patience(settings), **({"key_header": str(header)} if header else {})}
    if provider not in ("anthropic", "openai"):
        raise ConfigError(
            f"model {settings.get('model')!r}: unknown provider {provider!r}; known here: anthropic, openai "
            "(offline models are the demo bot's only)"
        )
    if provider == "openai" and not base_url:
        raise ConfigError(f"model {settings.get('model')!r}: base_url is missing, e.g. http://localhost:8000/v1")
    place = tuple(map(str, (provider, base_url, key, json.dumps(options, sort_keys=True, default=str))))
    if place not in _made:
        try:
            if provider == "anthropic":
                _made[place] = AnthropicClient(key, str(base_url or BASE_URL), **options)
            else:
                _made[place] = OpenAIClient(str(base_url), key, **options)
        except ConfigError as error:
            raise ConfigError(f"model {settings.get('model')!r}: {error}") from error
    return _made[place]


def _patience(settings: Mapping[str, Any]) -> dict[str, Any]:
    where = f"model {settings.get('model')!r}"
    timeout_s, retries = settings.get("timeout_s", READ_TIMEOUT_S), settings.get("max_retries", RetryPolicy.max_retries)
    if not isinstance(timeout_s, int | float) or not 0 < timeout_s < math.inf:
        raise ConfigError(f"{where}: timeout_s must be more than 0 seconds, got {timeout_s!r}")
    if not isinstance(retries, int) or retries < 0:
        raise ConfigError(f"{where}: max_retries must be a whole number of 0 or more, got {retries!r}")
    return {"timeout_s": timeout_s, "retry": RetryPolicy(retries)}


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
    where, known = f"model {settings.get('model')!r}: price", [entry.name for entry in fields(Price)]
    if row is not None and not (isinstance(row, Mapping) and set(row) <= set(known)):
        raise ConfigError(f"{where}: expected {', '.join(known)}, got {row!r}")
    amounts = {name: amount for name, amount in (row or {}).items() if amount is not None}
    if not amounts:
        return None
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < math.inf:
            raise ConfigError(f"{where}: {name} must be US dollars per million tokens, got {amount!r}")
    if not {"input", "output"} <= set(amounts):
        raise ConfigError(f"{where}: expected both input and output, got {', '.join(amounts)}")
    return Price(**amounts)


def _key(variable: str | None) -> str | None:
    if not variable:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"the environment variable {variable} is empty; put the API key there")
    return key
