"""Launching the cells that the session planned, and nothing else."""

from __future__ import annotations

from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from . import callback
from .searchpath import SWEEPER
from .session import Session
from .summary import tell_look


class PlannedSweeper(Sweeper):
    """Take the jobs from the session: in its order, without those that are finished, each composed once before.

    The grid itself, `params` and all, was read when the sweep was planned.
    """

    def __init__(self, max_batch_size: int | None = None, params: dict[str, str] | None = None) -> None:
        super().__init__()
        self._launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Make the launcher that was chosen."""
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Launch the jobs, in rounds where a look at the arms asks for more trials.

        That a job failed, or the whole launcher, is told at the end and never raised.
        """
        session = callback.session()
        returned = self._launch(session)
        while session.goes_on():
            tell_look(session)
            returned = self._launch(session)
        return returned

    def _launch(self, session: Session) -> Any:
        jobs = session.jobs()
        if not jobs:
            return []
        assert self._launcher is not None
        try:
            returned = self._launcher.launch(jobs, initial_job_idx=0)
        except Exception as error:
            session.launcher_failed(error)
            return []
        session.take([getattr(job, "_return_value", None) for job in returned])
        return returned


def register() -> None:
    """Make Hydra know the sweeper in this process, under the name that `conf/sweep.yaml` gives it."""
    Plugins.instance().class_name_to_class[SWEEPER] = PlannedSweeper
