"""The entry point for cron jobs and schedulers."""

from __future__ import annotations

from .metrics import ScenarioReport
from .orchestrator import Orchestrator


async def run_once(orchestrator: Orchestrator) -> list[ScenarioReport]:
    """Run the orchestrator's whole task once and return its reports."""
    return await orchestrator.run_all()
