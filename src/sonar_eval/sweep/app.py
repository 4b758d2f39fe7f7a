"""The Hydra application."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from . import callback
from .job import cell_key, run_job, task_part
from .schema import SweepConf
from .searchpath import register, shipped_conf
from .session import INTERRUPTED
from .summary import tell_mistake


@hydra.main(version_base="1.3", config_path=str(shipped_conf()), config_name="sweep")
def _hydra_main(cfg: DictConfig) -> dict[str, Any]:
    # Launchers pickle this function by value: it must hold nothing but one importable name.
    return run_job(cfg)


def _resolve_cell(*, _root_: DictConfig) -> str:
    return cell_key(_root_.hydra.runtime.choices, task_part(_root_) if "task" in _root_ else {})


def prepare() -> None:
    """Tell Hydra of our types, our resolver and the user's folders; may be called again."""
    ConfigStore.instance().store(name="sweep_schema", node=SweepConf)
    OmegaConf.register_new_resolver("sonar.cell", _resolve_cell, replace=True)
    register()


def main() -> None:
    """Run a sweep by the command line and exit: 0 all cells ran, 1 some failed, 2 bad input, 130 interrupted."""
    prepare()
    callback.forget()
    # Hydra prints its errors over many lines and exits by itself, unless it is told to raise them.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status, ending = 1, "FAILED"
    try:
        _hydra_main()
        status = callback.status()
    except KeyboardInterrupt:
        status, ending = INTERRUPTED, "KILLED"
        tell_mistake(KeyboardInterrupt("interrupted; trials that had finished are on disk"))
    except Exception as error:
        status = 2
        tell_mistake(error)
    finally:
        callback.close(ending)
    sys.exit(status)
