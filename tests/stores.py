"""Empty MLflow stores for tests: made once, then copied, for making one takes seconds."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def _template() -> Path:
    from sonar_eval.tracking.mlflow.store import connect

    path = Path(tempfile.mkdtemp(prefix="sonar-mlflow-")) / "mlflow.db"
    connect(f"sqlite:///{path}").search_experiments()
    return path


def empty_store(folder: Path) -> str:
    """Put an empty store into `folder` and return its URI."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_template(), folder / "mlflow.db")
    return f"sqlite:///{folder / 'mlflow.db'}"
