"""Cells that were run before: where their records lie, and the configuration they were run with, changed or not."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ..errors import ConfigError
from ..store import RESULT_FILE, TRIALS_FILE
from ..tracking.fetch import fetch_records
from .app import prepare
from .build import read_config
from .schema import SweepConf
from .searchpath import shipped_conf

CONFIG_FILE = "config.json"
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_GROUPS = {entry.name for entry in fields(SweepConf)}


@dataclass(frozen=True)
class StoredCell:
    """The records of one cell, and what it was configured as (None: nothing tells)."""

    folder: Path
    config: DictConfig | None

    @property
    def name(self) -> str:
        """Name it by its folder."""
        return self.folder.resolve().name


def find_cells(where: str, *, uri: str) -> list[StoredCell]:
    """Find the cells behind `where`: a cell's or a sweep's folder, a file of records, or a run in the store `uri`.

    Raises `ConfigError` when there are none.
    """
    path = Path(where)
    if path.is_file():
        path = path.parent
    if path.is_dir():
        found = (
            [path] if (path / TRIALS_FILE).is_file() else sorted(file.parent for file in path.glob(f"*/{TRIALS_FILE}"))
        )
        if not found:
            raise ConfigError(f"{where} holds no {TRIALS_FILE}, neither itself nor in a folder in it")
        return [StoredCell(folder, _stored_config(folder)) for folder in found]
    if not _RUN_ID.fullmatch(where):
        raise ConfigError(f"there is no folder or file {where}, and it is no id of an MLflow run either")
    folder = Path("fetched") / where
    fetch_records(uri, where, (TRIALS_FILE, CONFIG_FILE), folder)
    return [StoredCell(folder, _stored_config(folder))]


def find_cell(where: str, *, uri: str) -> StoredCell:
    """Find the one cell behind `where`; raises `ConfigError` when there are more."""
    cells = find_cells(where, uri=uri)
    if len(cells) > 1:
        raise ConfigError(f"{where} holds {len(cells)} cells; name the folder of one, e.g. {cells[0].folder}")
    return cells[0]


def _stored_config(folder: Path) -> DictConfig | None:
    written = folder / ".hydra" / "config.yaml"
    if written.is_file():
        loaded = OmegaConf.load(written)
    elif (folder / CONFIG_FILE).is_file():
        loaded = OmegaConf.create(json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8")))
    elif judged_before := _result_config(folder):
        loaded = OmegaConf.create(judged_before)
    else:
        return None
    assert isinstance(loaded, DictConfig)
    return loaded


def _result_config(folder: Path) -> dict[str, Any] | None:
    """Return what a cell that was judged again tells of itself."""
    path = folder / RESULT_FILE
    return json.loads(path.read_text(encoding="utf-8")).get("config") if path.is_file() else None


def configure(stored: DictConfig | None, overrides: Sequence[str], *, also: Sequence[str] = ()) -> SweepConf:
    """Change a stored configuration (None: the shipped one) as on the command line of a sweep.

    `group=option` replaces the whole group by the option as it is now, `key=value` changes one value; `also` are
    overrides that given ones outrank. Raises `ConfigError` for one that cannot be understood.
    """
    lines = [*also, *overrides]
    try:
        parsed = OverridesParser.create().parse_overrides(lines)
        chosen = _group_choices(parsed)
        prepare()
        with initialize_config_dir(str(shipped_conf()), version_base="1.3"):
            fresh = compose("sweep", [f"{group}={option}" for group, option in chosen.items()])
        kept = {group: stored[group] for group in _GROUPS - set(chosen) if stored is not None and group in stored}
        groups: dict[Any, Any] = {**{group: fresh[group] for group in _GROUPS - set(kept)}, **kept}
        typed = OmegaConf.merge(OmegaConf.structured(SweepConf), groups)
        assert isinstance(typed, DictConfig)
        for override in parsed:
            if override.key_or_group not in _GROUPS:
                _change(typed, override)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(" ".join(str(error).split())) from error
    return read_config(typed)


def _group_choices(parsed: Sequence[Override]) -> dict[str, str]:
    chosen = {}
    for override in parsed:
        if override.is_sweep_override():
            raise ConfigError(f"{override.input_line}: one value, please; there is nothing to sweep over here")
        key = override.key_or_group
        if key in _GROUPS:
            chosen[key] = str(override.value())
        elif key.partition(".")[0] not in _GROUPS:
            raise ConfigError(f"{override.input_line}: unknown group; known: {', '.join(sorted(_GROUPS))}")
    return chosen


def _change(config: DictConfig, override: Override) -> None:
    value: Any = override.value()
    if override.is_delete():
        raise ConfigError(f"{override.input_line}: nothing can be deleted here")
    if override.is_add():
        with open_dict(config):
            OmegaConf.update(config, override.key_or_group, value, merge=False)
    elif _is_nothing(config, override.key_or_group.rpartition(".")[0]):
        parent = override.key_or_group.rpartition(".")[0]
        raise ConfigError(
            f"{override.input_line}: there is no {parent} here; give it as a whole, or choose another option"
        )
    else:
        # As Hydra does: a whole mapping is filled in, a list takes the place of the old one.
        OmegaConf.update(config, override.key_or_group, value, merge=True)


def _is_nothing(config: DictConfig, key: str) -> bool:
    return bool(key) and OmegaConf.select(config, key) is None
