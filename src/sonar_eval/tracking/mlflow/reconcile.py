"""Runs that a process left open when it was killed."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .store import check_server, connect, unusable

HOST, PID, STARTED, ALIVE = "sonar.host", "sonar.pid", "sonar.process_started", "sonar.alive_ms"
_PAGE = 1000


@dataclass(frozen=True)
class Closed:
    """A run that was closed, and why."""

    run_id: str
    name: str
    reason: str


def process_tags() -> dict[str, str]:
    """Return the tags that tell which process works on a run."""
    pid = os.getpid()
    return {HOST: socket.gethostname(), PID: str(pid), STARTED: _started(pid) or "", ALIVE: alive_now()}


def alive_now() -> str:
    """Return the heartbeat of this moment."""
    return str(int(time.time() * 1000))


def reconcile(uri: str, *, silent_for_s: float = 24 * 3600.0) -> list[Closed]:
    """Mark as KILLED every open run of ours whose process is gone; returns what was closed.

    Of a run of another host it is only known when it last showed a sign of life: it is given `silent_for_s`.
    """
    check_server(uri)
    try:
        client = connect(uri)
        dead = [(run, reason) for run in _open_runs(client) if (reason := why_dead(run, silent_for_s))]
        for run, _ in dead:
            client.set_terminated(run.info.run_id, "KILLED")
    except Exception as error:
        raise unusable(uri, error) from error
    return [Closed(run.info.run_id, run.info.run_name, reason) for run, reason in dead]


def _open_runs(client: Any) -> list[Any]:
    experiments = [found.experiment_id for found in client.search_experiments(max_results=_PAGE)]
    found: list[Any] = []
    token = None
    while True:
        where = "attributes.status = 'RUNNING'"
        page = client.search_runs(experiments, where, max_results=_PAGE, page_token=token)
        found += (run for run in page if run.data.tags.get("sonar.kind") in ("sweep", "cell", "arm"))
        token = page.token
        if not token:
            return found


def why_dead(run: Any, silent_for_s: float) -> str | None:
    """Say why nobody works on an open run any more; None when somebody may."""
    tags = run.data.tags
    host, pid = tags.get(HOST), tags.get(PID, "")
    if host == socket.gethostname() and pid.isdigit():
        return None if _lives(int(pid), tags.get(STARTED, "")) else f"its process {pid} is gone"
    silent_s = time.time() - int(tags.get(ALIVE) or run.info.start_time or 0) / 1000
    if silent_s < silent_for_s:
        return None
    return f"no sign of life from {host or 'an unknown host'} for {silent_s / 3600:.1f} hours"


def _lives(pid: int, started: str) -> bool:
    """Tell whether the very process lives: a number is given to others later."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    now = _started(pid)
    return now is None or (now != "ended" and now == (started or now))


def _started(pid: int) -> str | None:
    """Return when a process started, in ticks since the machine did; None where the system does not tell.

    Of one that has ended and was not waited for, "ended".
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return "ended" if fields[0] == "Z" else fields[19]
