"""Where results go: the contract, and MLflow."""

from .contract import CellRecord, NullTracker, Tracker

__all__ = ["CellRecord", "NullTracker", "Tracker"]
