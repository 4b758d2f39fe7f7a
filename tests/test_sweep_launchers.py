"""The same sweep under every launcher: the same verdicts, one store, and no key on any disk or screen."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from example_store import tracking_server
from test_sweep_resume import tracked
from test_sweep_run import read_trials, sweep, without_ids_and_times

PLUGINS = {"joblib": "joblib", "submitit_local": "submitit", "ray": "ray", "ray_cluster": "ray"}
KEY = "sk-planted-0123456789"
GRID = (
    "model=offline-careful,offline-hasty",
    "prompt=v1,v2",
    "task.k=2",
    "model.api_key_env=PLANTED_API_KEY",
    "bot.key_env=PLANTED_API_KEY",
    "hydra.sweep.dir=out",
    "tracking.uri=sqlite:///runs.db",
)

pytest_plugins = ["databases"]
pytestmark = [
    # MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.launchers,
    pytest.mark.timeout(300),
]


def installed(launcher):
    found = importlib.util.find_spec("hydra_plugins")
    return (
        found is not None and importlib.util.find_spec(f"hydra_plugins.hydra_{PLUGINS[launcher]}_launcher") is not None
    )


def marked(launcher):
    missing = pytest.mark.skipif(not installed(launcher), reason=f"launcher={launcher} is not installed")
    return pytest.param(launcher, marks=missing)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    swept = sweep(tmp_path_factory.mktemp("local"), *GRID, PLANTED_API_KEY=KEY)
    assert swept.status == 0, swept.err
    return swept


@contextmanager
def ray_head(folder):
    """Start a Ray head of our own, and end it with all it started."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {"RAY_ADDRESS": f"127.0.0.1:{port}", "RAY_AUTH_MODE": "token"}
    head = ["start", "--head", "--port", str(port), "--node-ip-address", "127.0.0.1", "--num-cpus", "2"]
    quiet = ["--include-dashboard", "false", "--disable-usage-stats", "--temp-dir", str(folder)]
    command = [str(Path(sys.executable).parent / "ray"), *head, *quiet]
    # The nodes hold the keys; nothing hands them over.
    environment = {**os.environ, **variables, "PLANTED_API_KEY": KEY}
    with (folder.parent / "head.log").open("wb") as log:
        starter = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        assert starter.wait(120) == 0, (folder.parent / "head.log").read_text()
        yield variables
    finally:
        os.killpg(starter.pid, signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)


def results(folder):
    """Return everything that must not depend on where a cell ran, by cell."""
    return {
        path.parent.name: list(map(without_ids_and_times, read_trials(path.parent)))
        for path in folder.glob("*/trials.jsonl")
    }


@pytest.mark.parametrize("launcher", [marked(name) for name in PLUGINS])
def test_a_launcher_gives_the_verdicts_of_the_local_one(launcher, local, tmp_path):
    variables = {"PLANTED_API_KEY": KEY}
    if launcher == "ray_cluster":
        # Sockets have short names.
        folder = Path(f"/tmp/sonar-ray-{os.getpid()}")
        folder.mkdir()
        with ray_head(folder) as address:
            swept = sweep(tmp_path, *GRID, f"launcher={launcher}", **variables, **address)
    else:
        swept = sweep(tmp_path, *GRID, f"launcher={launcher}", **variables)
    assert swept.status == 0, swept.err
    out = tmp_path / "out"
    assert results(out) == results(local.launched_in / "out")
    assert swept.out.splitlines()[:6] == local.out.splitlines()[:6]
    with closing(sqlite3.connect(tmp_path / "runs.db")) as store:
        runs = store.execute("SELECT status, count(*) FROM runs GROUP BY status").fetchall()
    # The sweep, its four cells, and the arms it compares: two models, two prompts.
    assert runs == [("FINISHED", 9)]
    assert leaks(tmp_path) == []
    assert KEY not in swept.out + swept.err
    # Where it ran is no part of a cell: it can be gone on with here.
    again = sweep(tmp_path, "resume=out", "launcher=local", "tracking=none", **variables)
    assert "4 of 4 cells are finished" in again.err


def leaks(folder):
    """Name the files that hold the key."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_no_key_is_written_when_nothing_but_hydra_is_there(local):
    assert list((local.launched_in / "out").glob("*/.hydra/hydra.yaml"))
    assert leaks(local.launched_in) == []
    assert KEY not in local.out + local.err


@pytest.mark.parametrize("launcher", [marked("joblib")])
def test_a_worker_that_dies_costs_what_it_held_and_says_so(launcher, tmp_path):
    (tmp_path / "my_bots.py").write_text(DEADLY, encoding="utf-8")
    bot = ("bot=mine", "bot.adapter=my_bots:Deadly", "prompt=v1,v2", "task.k=1", "tracking=none")
    swept = sweep(tmp_path, *bot, f"launcher={launcher}")
    assert swept.status == 1
    last = swept.out.splitlines()[-1]
    assert "left no result; the launcher failed: TerminatedWorkerError" in last
    (tmp_path / "my_bots.py").write_text(DEADLY.replace("_exit(9)", "getpid()"), encoding="utf-8")
    again = sweep(tmp_path, "resume=last")
    assert again.status == 0, again.err


@pytest.fixture(params=["sqlite", "postgresql", "server"])
def fresh(request, tmp_path):
    """Return the address of a store that nobody has written to."""
    from databases import new_url

    if request.param == "sqlite":
        yield "sqlite:///new.db"
    elif request.param == "postgresql":
        yield new_url(request, "postgresql", tmp_path)
    else:
        folder = tmp_path / "server"
        folder.mkdir()
        with tracking_server(new_url(request, "sqlite", folder), folder) as address:
            yield address


@pytest.mark.parametrize("launcher", [marked("joblib")])
def test_four_jobs_at_once_on_a_fresh_store_are_all_there(launcher, fresh, tmp_path):
    cells = ("model=offline-careful,offline-hasty", "prompt=v1,v2", "task.k=2", "hydra.sweep.dir=out")
    swept = sweep(tmp_path, *cells, f"launcher={launcher}", "hydra.launcher.n_jobs=4", f"tracking.uri={fresh}")
    assert swept.status == 0, swept.err
    assert "not published" not in swept.err
    uri = f"sqlite:///{tmp_path / 'new.db'}" if fresh == "sqlite:///new.db" else fresh
    assert tracked(tmp_path, uri) == [
        ("sweep", "FINISHED", 0),
        *[("cell", "FINISHED", 2)] * 4,
        *[("arm", "FINISHED", 0)] * 4,
    ]


DEADLY = """
import os

from sonar_eval.demo.bot import CafeBot


class Deadly(CafeBot):
    async def setup_trial(self, ctx):
        if ctx.variant.prompt == "v2":
            os._exit(9)
        return await super().setup_trial(ctx)
"""


@pytest.mark.parametrize("launcher", [marked("joblib")])
def test_trials_are_added_in_rounds_under_a_launcher_too(tmp_path, launcher):
    few = ("prompt=v2", "scenario=order_latte,refund", "task.k=auto", "tracking=none")
    ran = sweep(tmp_path, f"launcher={launcher}", "model=offline-careful,offline-steady", *few)
    assert ran.status == 0, ran.err
    assert "task.k=auto: undecided after 5 trials per cell (offline-steady); going on to 10" in ran.err
    assert len({len(read_trials(path.parent)) for path in ran.folder.glob("*/trials.jsonl")} - {5}) == 1
