"""Opening a database: a SQLite file in WAL mode, or PostgreSQL through psycopg."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.pool import QueuePool

# Below the 10 s after which exporters give up: whoever waits for another writer must still get an answer.
_LOCK_TIMEOUT_MS = 5000
_PATIENT_LOCK_TIMEOUT_MS = 120_000
_CONNECT_TIMEOUT_S = 5
_CONNECTIONS = 16


def open_engine(url: str) -> Engine:
    """Open `sqlite:///FILE` or `postgresql://…`; raises `ValueError` for any other kind."""
    made = make_url(url)
    if made.drivername in ("postgres", "postgresql"):
        made = made.set(drivername="postgresql+psycopg")
    if made.drivername == "postgresql+psycopg":
        return create_engine(
            made,
            hide_parameters=True,
            pool_size=_CONNECTIONS,
            pool_timeout=_CONNECT_TIMEOUT_S,
            pool_pre_ping=True,
            connect_args={"connect_timeout": _CONNECT_TIMEOUT_S, "application_name": "sonar-eval", **made.query},
        )
    if made.get_backend_name() != "sqlite" or made.database in (None, "", ":memory:"):
        shown = made.render_as_string(hide_password=True)
        raise ValueError(f"expected sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME, got {shown}")
    return _open_sqlite(made)


def _open_sqlite(url: URL) -> Engine:
    _make_private(str(url.database))
    engine = create_engine(
        url,
        # Errors are logged, and what bots say must not be.
        hide_parameters=True,
        poolclass=QueuePool,
        pool_size=_CONNECTIONS,
        pool_timeout=_CONNECT_TIMEOUT_S,
    )
    event.listen(engine, "connect", _tune)
    event.listen(engine, "begin", _begin)
    return engine


def _make_private(path: str) -> None:
    """Make a file that nobody else may read; what bots say is personal. SQLite's side files inherit the mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError:
        # It is there already, or SQLite will say better what is wrong with it.
        return


def for_writing(engine: Engine) -> Engine:
    """Return the same engine, whose transactions wait for other writers when they begin and not in their middle."""
    return engine.execution_options(begin="BEGIN IMMEDIATE")


def for_single_statements(engine: Engine) -> Engine:
    """Return the same engine, each of whose statements is a transaction of its own."""
    if is_sqlite(engine):
        return engine.execution_options(begin=None)
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def is_sqlite(engine: Engine) -> bool:
    """Tell which of the two kinds it is."""
    return engine.dialect.name == "sqlite"


def be_patient(connection: Connection, patient: bool) -> None:
    """Let a connection wait as long as another process may need to bring the tables up to date."""
    if connection.dialect.name == "sqlite":
        limit = _PATIENT_LOCK_TIMEOUT_MS if patient else _LOCK_TIMEOUT_MS
        _pragma(connection.connection.driver_connection, f"busy_timeout={limit}")


def _tune(connection: Any, _: Any) -> None:
    # The driver's own idea of transactions leaves out changes of tables and begins none for reading.
    connection.isolation_level = None
    # NORMAL keeps what was committed through the death of the process; a power cut may cost the last commits.
    # secure_delete: what is deleted must not stay readable in the file.
    for pragma in (f"busy_timeout={_LOCK_TIMEOUT_MS}", "journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON"):
        _pragma(connection, pragma)


def _pragma(connection: Any, pragma: str) -> None:
    # A cursor that is not read to its end would hold the database.
    connection.execute(f"PRAGMA {pragma}").fetchall()


def first_line(error: Exception) -> str:
    """Describe a failure by its kind and first line; what follows may quote what was to be written."""
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: {(str(cause).splitlines() or [''])[0]}"


def _begin(connection: Connection) -> None:
    statement = connection.get_execution_options().get("begin", "BEGIN")
    if statement:
        connection.exec_driver_sql(statement)
