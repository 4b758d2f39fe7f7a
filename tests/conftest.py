"""Settings that every test needs."""

from __future__ import annotations

import os

# Nothing a test starts may look for the internet.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
