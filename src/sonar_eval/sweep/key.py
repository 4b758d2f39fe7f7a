"""What a cell is made of: its name on disk, and which of its parts a change has touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..version import __version__
from .build import build_variant
from .schema import SweepConf

AXES = ("model", "prompt", "scenario", "fault")
_LONGEST_NAME = 120

# Settings that leave the result of a trial as it is. What is not listed counts: a setting that is forgotten here
# costs trials that need not be run, never two configurations in one cell. `turn_timeout_s` counts, since a bot that
# exceeds it has failed; the other limits only say when a trial is given up as nobody's result.
_BESIDE_THE_RESULT = {
    "task": {
        "name",
        "k",
        "concurrency",
        "retries",
        "tenant",
        "project",
        "setup_timeout_s",
        "teardown_timeout_s",
        "user_timeout_s",
        "job_timeout_s",
        "stop_early",
        "max_cost_usd",
    },
    "scenario": {"k"},
    "grader": {"timeout_s"},
    "model": {"api_key_env", "api_key_header", "price", "timeout_s", "max_retries"},
    "bot": {"key_env"},
}


def fingerprint(conf: SweepConf) -> dict[str, str]:
    """Hash each part of a cell that changes its result; equal on every machine that reads the same values.

    Raises `ConfigError` when the prompt's text file is not found.
    """
    parts: dict[str, Any] = {
        "version": ".".join(__version__.split(".")[:2]),
        "model": _without("model", asdict(conf.model)),
        # Its text, wherever it was read from.
        "prompt": [conf.prompt.name, build_variant(conf).prompt_text],
        "scenario": _without("scenario", asdict(conf.scenario)),
        "fault": asdict(conf.fault),
        "user": _player(asdict(conf.user)),
        "grader": _player(_without("grader", asdict(conf.grader))),
        "bot": _without("bot", asdict(conf.bot)),
        "task": _without("task", asdict(conf.task)),
    }
    return {name: _digest(part) for name, part in parts.items()}


def cell_key(choices: Mapping[str, str], parts: Mapping[str, str]) -> str:
    """Name a cell's folder: readable, and distinct for every configuration that gives other results."""
    named = ".".join(str(choices.get(axis, "-")).replace("/", "_") for axis in AXES)
    return f"{named[:_LONGEST_NAME]}-{_digest(dict(parts))[:10]}"


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """List the parts that differ."""
    return [name for name in now if before.get(name) != now[name]]


def _player(values: dict[str, Any]) -> dict[str, Any]:
    """Take the model of whoever plays a part as the bot's model is taken."""
    return {**values, "llm": _without("model", values["llm"]) if values["llm"] else None}


def _without(part: str, values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in _BESIDE_THE_RESULT[part]}


def _digest(value: Any) -> str:
    written = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(written.encode("utf-8", "replace")).hexdigest()[:16]
