"""Looking at the neighbours before the first trial: who does not answer, and whose key is written down."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from omegaconf import DictConfig, OmegaConf

from ..errors import ConfigError, describe
from ..web import is_loopback
from .collector import check_reachable
from .schema import ModelConf, SweepConf

_PATIENCE_S = 5.0
_SHORTEST_KEY = 8
_HOLDS_A_KEY = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")
# Elsewhere, what this machine reaches tells nothing.
_ELSEWHERE = ("ray", "slurm")


def check_neighbours(config: DictConfig, confs: Sequence[SweepConf]) -> list[str]:
    """Ask every ingest, bot and model of the sweep whether it is there; return one line for each that is not.

    A cell that cannot reach its neighbour fails by itself and costs no other; raises `ConfigError` when that holds
    for all of them.
    """
    return asyncio.run(_check(config, confs)) if confs else []


async def _check(config: DictConfig, confs: Sequence[SweepConf]) -> list[str]:
    wanted = [dict(_neighbours(conf)) for conf in confs]
    askers = {what: ask for row in wanted for what, ask in row.items()}
    told = dict(zip(askers, await asyncio.gather(*(_ask(conf, url) for conf, url in askers.values())), strict=True))
    absent = {what: line for what, line in told.items() if line is not None}
    lines = list(dict.fromkeys(absent.values()))
    if lines and all(absent.keys() & row.keys() for row in wanted) and not _runs_elsewhere(config):
        raise ConfigError("; ".join(lines))
    return [f"{line}; its cells will fail" for line in lines]


def _runs_elsewhere(config: DictConfig) -> bool:
    target = str(config.hydra.launcher.get("_target_", "")).lower()
    return any(word in target for word in _ELSEWHERE)


def _neighbours(conf: SweepConf) -> Iterator[tuple[str, tuple[SweepConf, str | None]]]:
    """List whom the cell needs: by a name that tells them apart, how to ask."""
    if conf.ingest.type == "external":
        yield f"ingest {conf.ingest.base_url} {conf.ingest.api_key_env} {conf.task.tenant}", (conf, None)
    if conf.bot.type == "http" and conf.bot.url and not conf.bot.command:
        yield f"bot at {conf.bot.url}", (conf, conf.bot.url)
    for role, model in _models(conf):
        if model.base_url:
            yield f"{role} at {model.base_url}", (conf, model.base_url)


def _models(conf: SweepConf) -> Iterator[tuple[str, ModelConf]]:
    yield "model", conf.model
    if conf.user.type == "llm" and conf.user.llm is not None:
        yield "user", conf.user.llm
    if conf.grader.type == "llm" and conf.grader.llm is not None:
        yield "grader", conf.grader.llm


async def _ask(conf: SweepConf, url: str | None) -> str | None:
    """Return what is wrong with a neighbour; None when it answers."""
    if url is None:
        try:
            await check_reachable(conf)
        except ConfigError as error:
            return str(error)
        return None
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if not parts.hostname or _through_a_proxy(url):
        return None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError) as error:
        return f"nothing answers at {url} ({describe(error)[:120]})"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return None


def _through_a_proxy(url: str) -> bool:
    parts = urlsplit(url)
    return not is_loopback(url) and parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")


def refuse_written_keys(config: DictConfig, confs: Iterable[SweepConf]) -> None:
    """Raise `ConfigError` when the value of a key stands in the configuration: it would be stored with the results.

    Looks for the values of the variables that the configuration names, and of those whose name says that they hold
    a key.
    """
    found = list(confs)
    named = {value for conf in found for value in _variables(asdict(conf))}
    named |= {name for name in os.environ if _HOLDS_A_KEY.search(name)}
    secrets = {name: os.environ[name] for name in named if len(os.environ.get(name, "")) >= _SHORTEST_KEY}
    copied = secrets.keys() & set(map(str, config.hydra.job.get("env_copy") or ()))
    if copied:
        raise ConfigError(f"hydra.job.env_copy would write {', '.join(sorted(copied))} to disk; export it instead")
    written = [json.dumps([asdict(conf) for conf in found], ensure_ascii=False, default=str), _launching(config)]
    for name, secret in sorted(secrets.items()):
        if any(secret in text for text in written):
            raise ConfigError(
                f"the value of the environment variable {name} stands in the configuration, which is kept with the "
                "results; give the variable's name (…_env) instead"
            )


def _variables(node: Any) -> Iterator[str]:
    """List the environment variables that a configuration names as holding a key."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _variables(value)
        elif key.endswith("key_env") and value:
            yield value


def _launching(config: DictConfig) -> str:
    hydra = config.hydra
    nodes = [node for node in (hydra.launcher, hydra.job.get("env_set"), hydra.overrides) if node]
    return json.dumps([OmegaConf.to_container(node, resolve=True) for node in nodes], default=str)
