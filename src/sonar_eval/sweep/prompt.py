"""The system prompt of a cell: its text from wherever the configuration says."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..errors import ConfigError
from ..tracking.mlflow import RegisteredPrompt, absolute_uri, load_prompt
from .schema import SweepConf
from .searchpath import launch_folder, shipped_conf, user_confs


def check_prompt(conf: SweepConf) -> None:
    """Raise `ConfigError` for a prompt with two texts, of which one would win unseen, and for one with none."""
    prompt = conf.prompt
    elsewhere = "text_file" if prompt.text_file is not None else "registry" if prompt.registry is not None else ""
    if prompt.text.strip() and elsewhere:
        said = f"expected text or {elsewhere}, got both; leave one of them out (prompt.text= gives no text)"
        raise ConfigError(f"prompt {prompt.name!r}: {said}")
    if not prompt_text(conf).strip():
        said = f"{elsewhere} holds no text" if elsewhere else "expected text, text_file or registry, got none of them"
        raise ConfigError(f"prompt {prompt.name!r}: {said}; a bot without a prompt would take one of its own")


def prompt_text(conf: SweepConf) -> str:
    """Return the text; raises `ConfigError` when the file or the version in the registry is not found."""
    prompt = conf.prompt
    if prompt.text_file is not None and prompt.registry is not None:
        raise ConfigError(f"prompt {prompt.name!r}: expected text_file or registry, got both")
    if prompt.registry is not None:
        # A cell that was run before tells the text it was run with.
        return prompt.text if prompt.registry_version else _registered(conf).text
    return prompt.text if prompt.text_file is None else _read(prompt.name, prompt.text_file)


def prompt_name(conf: SweepConf) -> str:
    """Return what the prompt is called: one of the registry by its name and version there."""
    if conf.prompt.registry is None:
        return conf.prompt.name
    return (conf.prompt.registry_version or _registered(conf).address).removeprefix("prompts:/")


def prompt_record(conf: SweepConf) -> dict[str, Any]:
    """Return the prompt as it is kept with the results: with its text, and the version that an alias stood for."""
    version = {} if conf.prompt.registry is None else {"registry_version": f"prompts:/{prompt_name(conf)}"}
    return {**asdict(conf.prompt), "text": prompt_text(conf), **version}


def _registered(conf: SweepConf) -> RegisteredPrompt:
    return load_prompt(absolute_uri(conf.tracking.uri, launch_folder()), str(conf.prompt.registry))


def _read(name: str, text_file: str) -> str:
    places = [launch_folder(), *reversed(user_confs()), shipped_conf()]
    for place in places:
        path = place / text_file
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise ConfigError(f"prompt {name!r}: no file {text_file!r} in {', '.join(map(str, places))}")
