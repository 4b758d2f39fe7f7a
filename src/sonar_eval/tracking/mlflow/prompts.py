"""The system prompts of a sweep in MLflow's prompt registry, one version per text."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...errors import ConfigError, in_short
from ..contract import CellRecord
from .store import at_second_try, check_server, connect, sqlite_path

log = logging.getLogger(__name__)

_LONGEST = 100_000
_HASH = "sonar.sha256"
_ADDRESS = re.compile(r"prompts:/([^/@]+)(?:/(\d+)|@([^/@]+))")


@dataclass(frozen=True)
class RegisteredPrompt:
    """One version of a prompt in the registry."""

    name: str
    version: str
    text: str

    @property
    def address(self) -> str:
        """Name the very version."""
        return f"prompts:/{self.name}/{self.version}"


@cache
def load_prompt(uri: str, address: str) -> RegisteredPrompt:
    """Read a prompt from the registry of the store at `uri`, once per process.

    Raises `ConfigError` when it is not there, or is a chat and no text.
    """
    found = _ADDRESS.fullmatch(address)
    if not found:
        raise ConfigError(f"prompt.registry: expected prompts:/NAME/VERSION or prompts:/NAME@ALIAS, got {address!r}")
    path = sqlite_path(uri)
    if path is not None and not path.is_file():
        raise ConfigError(f"prompt.registry: {address} is not there: there is no store {uri} (tracking.uri)")
    check_server(uri)
    name, version, alias = found.groups()
    try:
        client = connect(uri)
        prompt = (
            client.get_prompt_version(name, version) if version else client.get_prompt_version_by_alias(name, alias)
        )
    except Exception as error:
        reason = in_short(error, 200)
        raise ConfigError(f"prompt.registry: {address} cannot be read from {uri}: {reason}") from error
    if prompt is None:
        raise ConfigError(f"prompt.registry: {address} is not in {uri}")
    if not isinstance(prompt.template, str):
        raise ConfigError(f"prompt.registry: {address} is a chat; a system prompt is a text")
    return RegisteredPrompt(name, str(prompt.version), prompt.template)


class PromptShelf:
    """Register prompts and remember which version holds which text."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known: dict[tuple[str, str], str] = {}

    def link(self, cell: CellRecord) -> str | None:
        """Return the value of the tag that links a run to its prompt, registering its text when it is not there.

        Prompts are named after bot and prompt; None where there is no text to register.
        """
        prompt = cell.config.get("prompt") or {}
        text = prompt.get("text")
        there = _ADDRESS.fullmatch(prompt.get("registry_version") or "")
        if there:
            return json.dumps([{"name": there[1], "version": there[2]}])
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
            return None
        made_of = (cell.choices.get("bot"), cell.choices.get("prompt"))
        name = re.sub(r"[^\w.\-]", "_", ".".join(part for part in made_of if part), flags=re.ASCII) or "prompt"
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        known = (name, digest)
        try:
            if known not in self._known:
                self._known[known] = at_second_try(lambda: self._version(name, digest, text))
        except Exception as error:
            # Numbers and traces are not worth less for want of a link.
            log.warning("the prompt was not registered as %s: %s", name, in_short(error, 200))
            return None
        return json.dumps([{"name": name, "version": self._known[known]}])

    def _find(self, name: str, digest: str) -> str | None:
        # Prompts are kept among the models, and left out of any search that does not name them.
        where = f"name = '{name}' and tags.`mlflow.prompt.is_prompt` = 'true'"
        found = self._client.search_model_versions(where)
        same = [int(version.version) for version in found if (version.tags or {}).get(_HASH) == digest]
        return str(min(same)) if same else None

    def _version(self, name: str, digest: str, text: str) -> str:
        found = self._find(name, digest)
        if found is not None:
            return found
        made = self._client.register_prompt(name, text, tags={_HASH: digest})
        # Of two jobs that registered it at once, both take the first.
        return self._find(name, digest) or str(made.version)
