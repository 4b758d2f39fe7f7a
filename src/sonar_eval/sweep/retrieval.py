"""A sweep's folder put together again from MLflow, where the one that ran it cannot be reached."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from ..report import render_transcript
from ..store import RESULT_FILE, SCENARIOS_FILE, SWEEP_FILE, TRIALS_FILE, read_jsonl
from ..tracking.fetch import SweepFetcher
from ..tracking.mlflow import absolute_uri
from .resume import read_sweep, write_json
from .searchpath import shipped_conf

log = logging.getLogger(__name__)

SWEEPS = "sweeps"
_FILES = (TRIALS_FILE, RESULT_FILE, SCENARIOS_FILE, "conversation_ids.json")


def store_of(arguments: Sequence[str]) -> str:
    """Return the store that a sweep with these arguments would be tracked in."""
    told = [argument for argument in arguments if argument.lstrip("+").startswith("tracking")]
    with initialize_config_dir(str(shipped_conf()), version_base="1.3"):
        uri = compose("sweep", told).tracking.uri
    return absolute_uri(str(uri), Path.cwd())


def retrieve_sweep(uri: str, run_id: str) -> Path:
    """Bring the sweep whose parent run is `run_id` to ./sweeps and return its folder; cells that are there stay.

    Raises `ConfigError` when there is no such run, or its trials are not whole in the store.
    """
    fetcher = SweepFetcher(uri, run_id)
    if fetcher.held_by:
        log.warning(
            "warning: %s may still be swept by %s; what is run here, both pay for", fetcher.name, fetcher.held_by
        )
    with tempfile.TemporaryDirectory() as made:
        fetcher.fetch_file(SWEEP_FILE, Path(made))
        known = read_sweep(Path(made))
    folder = _folder(fetcher.name, str(known.get("key")), run_id)
    folder.mkdir(parents=True, exist_ok=True)
    brought = [key for key in fetcher.cells if _bring(fetcher, key, folder)]
    if not (folder / SWEEP_FILE).is_file():
        write_json(folder / SWEEP_FILE, known)
    log.info("brought %d cells of %s from %s", len(brought), fetcher.name, uri)
    return folder


def _folder(name: str, key: str, run_id: str) -> Path:
    """Choose the folder: that of the sweep itself where it is here, none that holds another."""
    folder = Path(SWEEPS) / name
    here = _key(folder)
    return folder if here in (None, key) else Path(SWEEPS) / f"{name}-{run_id[:8]}"


def _key(folder: Path) -> str | None:
    try:
        found: Any = json.loads((folder / SWEEP_FILE).read_text(encoding="utf-8"))
        return str(found.get("key"))
    except (OSError, ValueError):
        return None


def _bring(fetcher: SweepFetcher, key: str, folder: Path) -> bool:
    """Bring a cell that is not here, whole or not at all."""
    if (folder / key).exists():
        return False
    partial = folder / f".{key}"
    shutil.rmtree(partial, ignore_errors=True)
    fetcher.fetch_cell(key, _FILES, partial)
    (partial / "transcripts").mkdir()
    for record in read_jsonl(partial / TRIALS_FILE):
        place = partial / "transcripts" / f"trial-{record['index'] + 1:03}.md"
        place.write_text(render_transcript(record), encoding="utf-8")
    partial.rename(folder / key)
    return True
