"""The Hydra application."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

from . import callback, sweeper
from .command import with_earlier_command
from .interrupt import came_of_interrupt, exit_undisturbed
from .job import run_job
from .schema import SweepConf
from .searchpath import register, shipped_conf
from .session import INTERRUPTED
from .summary import tell_interrupted, tell_mistake


@hydra.main(version_base="1.3", config_path=str(shipped_conf()), config_name="sweep")
def _hydra_main(cfg: DictConfig) -> dict[str, Any]:
    # Launchers pickle this function by value: it must hold nothing but one importable name.
    return run_job(cfg)


def prepare() -> None:
    """Tell Hydra of our types, our sweeper and the user's folders; may be called again."""
    ConfigStore.instance().store(name="sweep_schema", node=SweepConf)
    register()
    sweeper.register()


def main() -> None:
    """Run a sweep by the command line and exit.

    0: every trial was judged; 1: a cell failed, is missing or has trials that are not; 2: bad input; 130: interrupted.
    """
    prepare()
    callback.forget()
    # Hydra prints its errors over many lines and exits by itself, unless it is told to raise them.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Runs after the handlers registered later; a signal during the interpreter's own end would change the exit status.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    status, ending = 1, "FAILED"
    try:
        sys.argv[1:] = with_earlier_command(sys.argv[1:])
        _hydra_main()
        status = callback.status()
    except KeyboardInterrupt:
        exit_undisturbed()
        status, ending = INTERRUPTED, "KILLED"
    except Exception as error:
        if came_of_interrupt(error):
            status, ending = INTERRUPTED, "KILLED"
        else:
            status = 2
            tell_mistake(error)
    finally:
        session = callback.close(ending)
    if status == INTERRUPTED:
        tell_interrupted(session)
    exit_undisturbed()
    sys.exit(status)
