"""Real databases for tests: SQLite files, and a PostgreSQL server of our own.

A plugin: `pytest_plugins = ["databases"]`. Every test that asks for `database_url` runs against both kinds, each
time in a new, empty database.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

_USER = "sonar"
_START_TIMEOUT_S = 30.0


class PostgreSQL:
    """A PostgreSQL server in a temporary folder, on a free loopback port and a Unix socket; `start` it first."""

    def __init__(self, binaries: Path, *, durable: bool = False) -> None:
        self._binaries = binaries
        # In tests its files need not outlive the machine, only the process of the ingest.
        self._fsync = "on" if durable else "off"
        self._folder = Path(tempfile.mkdtemp(prefix="sonar-pg-"))
        self._data = self._folder / "data"
        self.port = _free_port()
        # It refuses to run as root.
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as_user:
            account = pwd.getpwnam("postgres")
            os.chown(self._folder, account.pw_uid, account.pw_gid)

    def start(self) -> None:
        """Make the data folder and start the server."""
        self._run("initdb", "-D", str(self._data), "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = f"-c fsync={self._fsync} -c shared_buffers=64MB -h 127.0.0.1 -p {self.port} -k {self._folder}"
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self._folder / "log"), "-o", options, "-w", "start")

    def stop(self) -> None:
        """Stop the server and remove everything."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(self._folder, ignore_errors=True)

    def restart(self) -> None:
        """Stop it in the middle of whatever it does, and start it again."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "restart")

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._binaries / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder, timeout=_START_TIMEOUT_S)

    def new_database(self) -> str:
        """Make an empty database and return its URL."""
        import psycopg

        name = f"t_{uuid.uuid4().hex}"
        place = f"host=127.0.0.1 port={self.port} user={_USER} dbname=postgres"
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql+psycopg://{_USER}@127.0.0.1:{self.port}/{name}"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """Start a server for the whole session; skip where there is none to start."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL 15 or newer is not installed")
    server = PostgreSQL(binaries)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a new database of either kind."""
    return new_url(request, request.param, tmp_path)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def module_database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a database of either kind that the tests of a module share."""
    return new_url(request, request.param, tmp_path_factory.mktemp("database"))


def new_url(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    """Return the URL of a new database of this kind, with its file, if it has one, in `folder`."""
    if kind == "sqlite":
        return f"sqlite:///{folder / f'{uuid.uuid4().hex}.db'}"
    server: PostgreSQL = request.getfixturevalue("postgresql")
    return server.new_database()


def find_binaries() -> Path | None:
    """Find the newest PostgreSQL: Debian keeps its programs off the path."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if shutil.which("initdb"):
        found.append(Path(str(shutil.which("initdb"))).resolve().parent)
    newest = max(((_version(path), path) for path in found), default=None)
    return newest[1] if newest is not None and newest[0] >= 15 else None


def _version(binaries: Path) -> int:
    said = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.split()[2].split(".")[0])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
