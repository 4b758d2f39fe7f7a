"""What Hydra calls in the launching process before the first job and after the last."""

from __future__ import annotations

import sys
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from . import summary
from .interrupt import came_of_interrupt
from .plan import plan_sweep
from .session import Session, open_session

_session: Session | None = None
_status = 0


def forget() -> None:
    """Forget an earlier sweep of this process."""
    global _session, _status
    _session, _status = None, 0


def status() -> int:
    """Return the exit status that the last sweep deserves."""
    return _status


def session() -> Session:
    """Return the sweep in progress."""
    assert _session is not None, "no sweep was opened"
    return _session


def close(ending: str) -> Session | None:
    """Close the sweep unless it is closed, whatever stopped it, and return it; None when it never began."""
    if _session is not None:
        _session.close(ending)
    return _session


class SweepCallback(Callback):
    """Open the sweep, and sum it up."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check and open; what is wrong ends the program with status 2, a dry run with 0.

        Hydra turns any other exception of a callback into a warning, and would go on without us.
        """
        global _session
        try:
            plan = plan_sweep(config)
            if not plan.dry:
                _session = open_session(config, plan)
        except Exception as error:
            if came_of_interrupt(error):
                raise KeyboardInterrupt from error
            summary.tell_mistake(error)
            raise SystemExit(2) from error
        summary.tell_plan(plan)
        if plan.dry:
            raise SystemExit(0)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Show the table, name every failed cell, close the sweep."""
        global _status
        if _session is None:
            return
        sys.stderr.flush()
        _status = summary.tell_results(_session)
        _session.close("FINISHED" if _status == 0 else "FAILED")
