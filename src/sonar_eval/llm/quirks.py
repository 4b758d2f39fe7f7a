"""What models refuse, learnt from their refusals: once per model, told once, and then respected."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)

_KINDS = ("unsupported_value", "unsupported_parameter", "unknown_parameter")
# What can be left out or renamed without changing what is asked.
_OPTIONAL = ("temperature", "seed", "top_p", "presence_penalty", "frequency_penalty")
_RENAMED = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class Quirks:
    """The parameters that each model does not take."""

    def __init__(self) -> None:
        self._refused: dict[str, set[str]] = {}

    def adapt(self, model: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body as the model takes it."""
        refused = self._refused.get(model, set())
        adapted = {}
        for name, value in body.items():
            if name in refused and name in _RENAMED:
                name = _RENAMED[name]
            elif name in refused:
                continue
            adapted[name] = value
        return adapted

    def learn(self, model: str, body: Mapping[str, Any], refusal: str) -> bool:
        """Take a lesson from the text of a refusal of `body`; returns whether asking again may help.

        It may as long as the body had what is refused, whoever learnt of it first: requests that were sent side by
        side are refused side by side.
        """
        name = _refused_parameter(refusal)
        known = self._refused.setdefault(model, set())
        if name is None or name not in body or _RENAMED.get(name) in known:
            return False
        if name not in known:
            known.add(name)
            _tell(model, name, body[name])
        return True


def _tell(model: str, name: str, value: Any) -> None:
    if name in _RENAMED:
        log.warning("%s does not take %s; %s is sent instead", model, name, _RENAMED[name])
    else:
        log.warning("%s does not take %s=%r; it is left out, which changes what is measured", model, name, value)


def _refused_parameter(refusal: str) -> str | None:
    """Find the parameter that a refusal is about, if that is one we can do without."""
    known = (*_OPTIONAL, *_RENAMED)
    start = refusal.find("{")
    try:
        error = json.JSONDecoder().raw_decode(refusal, start)[0].get("error") if start >= 0 else None
    except (ValueError, AttributeError):
        error = None
    if isinstance(error, dict) and error.get("code") in _KINDS and error.get("param") in known:
        return str(error["param"])
    # Servers that give no code still name the parameter beside the word.
    if not re.search(r"unsupported|not support|unknown|unrecognized|not permitted", refusal, re.IGNORECASE):
        return None
    return next((name for name in known if re.search(rf"['\"`]{name}['\"`]", refusal)), None)
