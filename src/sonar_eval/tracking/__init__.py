"""Where results go: the contract, what text may get there, and MLflow."""

from .content import Content
from .contract import TRACES, CellRecord, NullTracker, Tracker

__all__ = ["TRACES", "CellRecord", "Content", "NullTracker", "Tracker"]
