"""Build the store in `mlruns_example/`: a real sweep, recorded through a tracking server of its own.

    python tests/example_store.py [FOLDER]

Through a server, because only then the database tells artifacts by their place beside it and can be moved.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

EXPERIMENT = "cafe"
GRID = (
    "model=offline-careful,offline-hasty",
    "prompt=v1,v2",
    "scenario=order_latte,refund",
    "fault=none,payment_outage",
    "task.k=6",
)
# These would tell of the machine it was built on, or be wrong on any other.
_OF_THIS_MACHINE = ("sonar.host", "sonar.pid", "sonar.process_started", "sonar.alive_ms", "mlflow.user")
_LOCAL = re.compile(r"(?:file://|/tmp/|/home/|/root/|127\.0\.0\.1:\d{5})[^\s\"']{0,60}")
_HERE = Path(__file__).resolve().parents[1]
_PATIENCE_S = 120.0


def build(folder: Path, grid: Sequence[str] = GRID) -> None:
    """Run the sweep and leave `mlflow.db` and `mlartifacts` in `folder`, in place of what is there."""
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        with tracking_server(f"sqlite:///{work / 'mlflow.db'}", work) as address:
            sweep(work, address, grid)
        _tidy(work / "mlflow.db", address)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "mlartifacts", ignore_errors=True)
        shutil.copytree(work / "mlartifacts", folder / "mlartifacts")
        shutil.copyfile(work / "mlflow.db", folder / "mlflow.db")


def sweep(work: Path, address: str, grid: Sequence[str]) -> None:
    """Run the real command."""
    where = (f"tracking.uri={address}", f"tracking.experiment={EXPERIMENT}")
    command = [sys.executable, "-m", "sonar_eval.sweep", *grid, *where]
    ran = subprocess.run(command, cwd=work, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"the sweep failed ({ran.returncode}):\n{ran.stdout}\n{ran.stderr}")


@contextmanager
def tracking_server(store: str, folder: Path) -> Iterator[str]:
    """Serve a store with `mlflow server`, artifacts in `folder`/mlartifacts; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--backend-store-uri", store]
    command += ["--artifacts-destination", str(folder / "mlartifacts"), "--host", "127.0.0.1", "--port", str(port)]
    variables = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=out, env={**os.environ, **variables}, start_new_session=True
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        end(server)


def end(server: subprocess.Popen[bytes]) -> None:
    """End a server and the worker that is a process of its own."""
    server.terminate()
    try:
        server.wait(10)
    finally:
        try:
            os.killpg(server.pid, 9)
        except ProcessLookupError:
            pass


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            if httpx.get(url, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    raise RuntimeError(f"the tracking server did not come up: {log.read_text()}")


def _tidy(database: Path, address: str) -> None:
    """Mark the store as the example, take out what is of this machine only, make it small."""
    with closing(sqlite3.connect(database)) as opened:
        for table in ("tags", "trace_tags"):
            opened.executemany(f"DELETE FROM {table} WHERE key = ?", [(key,) for key in _OF_THIS_MACHINE])
        opened.execute("UPDATE runs SET user_id = 'example', source_name = ''")
        opened.execute(
            "UPDATE tags SET value = replace(value, ?, '') WHERE key LIKE 'mlflow.note%'", (f" tracking.uri={address}",)
        )
        (number,) = opened.execute("SELECT experiment_id FROM experiments WHERE name = ?", (EXPERIMENT,)).fetchone()
        opened.execute(
            "INSERT INTO experiment_tags (key, value, experiment_id) VALUES ('sonar.example', 'true', ?)", (number,)
        )
        opened.commit()
        opened.execute("VACUUM")


def absolute_paths(folder: Path) -> list[str]:
    """Find paths and addresses of the machine that built the store."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".png":
            text = path.read_bytes().decode("utf-8", "replace")
            found += [
                f"{path.name}: {hit}"
                for hit in re.findall(r"(?:file://|/tmp/|/home/|/root/|127\.0\.0\.1:\d{5})\S{0,60}", text)
            ]
    return found


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else _HERE / "mlruns_example"
    build(target)
    print(f"{target}: mlflow.db {(target / 'mlflow.db').stat().st_size / 1e6:.1f} MB")
    for line in absolute_paths(target):
        print(f"of this machine: {line}")
