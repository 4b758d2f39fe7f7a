"""A store of MLflow's: where it is, whether it answers, and the client that talks to it."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from ...errors import ConfigError, describe, in_short
from ...web import is_loopback

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # A server that is down is told after seconds, not after four minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
}
_PATIENCE_S = 5.0
_TRIES, _PAUSE_S = 3, 0.2
T = TypeVar("T")

log = logging.getLogger(__name__)


def connect(uri: str) -> Any:
    """Make a client of the store at `uri`."""
    prepare()
    from mlflow import MlflowClient

    return MlflowClient(uri)


def prepare() -> None:
    """Set what MLflow reads from the environment, where the user has not."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # It would make a child run silently become the run it names.
    os.environ.pop("MLFLOW_RUN_ID", None)


def is_server(uri: str) -> bool:
    """Tell whether the store is a server."""
    return uri.startswith(("http://", "https://"))


def check_server(uri: str) -> None:
    """Ask a server whether it is there and answers us; MLflow's own client would try for a long time.

    Raises `ConfigError` when it does not. Its health check is answered even where its host check refuses the rest.
    """
    if not is_server(uri):
        return
    import httpx

    base = uri.rstrip("/")
    health = f"{base}/health"
    credentials = _credentials()
    try:
        with httpx.Client(timeout=_PATIENCE_S, trust_env=not is_loopback(health), **credentials) as client:
            answer = client.get(health)
            api = client.post(f"{base}/api/2.0/mlflow/experiments/search", json={"max_results": 1})
    except httpx.TransportError as error:
        raise ConfigError(f"tracking: no MLflow server at {uri}: {describe(error)}") from error
    if answer.status_code != 200:
        raise ConfigError(f"tracking: {health} answered {answer.status_code}; is that an MLflow server?")
    if api.status_code == 403 and "host" in api.text.lower():
        raise ConfigError(
            f"tracking: the server at {uri} refuses this host name ({api.text.strip()[:80]}); "
            f"start it with --allowed-hosts '{httpx.URL(uri).host}:*,localhost:*,127.0.0.1:*'"
        )
    if api.status_code in (401, 403):
        raise ConfigError(
            f"tracking: the server at {uri} answered {api.status_code}; "
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )
    if api.status_code != 200:
        raise ConfigError(f"tracking: the API at {uri} answered {api.status_code}; is that an MLflow server?")


def at_second_try(call: Callable[[], T]) -> T:
    """Call again when it fails: of two jobs that add one and the same row, the second finds it there then."""
    for _ in range(_TRIES - 1):
        try:
            return call()
        except Exception as error:
            log.debug("tried again after %s", describe(error))
            time.sleep(_PAUSE_S)
    return call()


def unusable(uri: str, error: BaseException) -> ConfigError:
    """Say in one line that a store cannot be used."""
    return ConfigError(f"tracking: cannot use {uri}: {in_short(error)}")


def _credentials() -> dict[str, Any]:
    """Read what MLflow's own client reads."""
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD")
    if user and password:
        return {"auth": (user, password)}
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    return {"headers": {"Authorization": f"Bearer {token}"}} if token else {}


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a SQLite URI; None for any other store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0])


def absolute_uri(uri: str, folder: Path) -> str:
    """Anchor a relative SQLite path to `folder`: jobs may run in folders of their own."""
    path = sqlite_path(uri)
    return uri if path is None or path.is_absolute() else f"sqlite:///{folder / path}"


def make_file(uri: str) -> None:
    """Make the SQLite file that is not there, whole or not at all: one that a kill left half made is of no use."""
    path = sqlite_path(uri)
    if path is None or path.exists():
        return
    partial = path.with_name(f".{path.name}-{uuid4().hex[:8]}")
    try:
        client = connect(f"sqlite:///{partial}")
        client.search_experiments()
        client._tracking_client.store.engine.dispose()
        _put(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _put(partial: Path, path: Path) -> None:
    """Give a file its name, unless somebody else was quicker."""
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    except OSError:
        # A file system without hard links.
        if not path.exists():
            os.replace(partial, path)


def artifact_folder(uri: str, experiment: str) -> str | None:
    """Keep artifacts beside a SQLite file; a server knows its own place."""
    path = sqlite_path(uri)
    if path is None:
        return None
    return (path.parent / "mlartifacts" / re.sub(r"[^\w.\-]", "_", experiment)).as_uri()
