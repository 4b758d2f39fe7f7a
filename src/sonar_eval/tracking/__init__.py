"""Where results go: the contract, what text may get there, and MLflow."""

from .content import Content
from .contract import TRACES, ArmRecord, CellRecord, ComparisonRecord, NullTracker, Tracker

__all__ = ["TRACES", "ArmRecord", "CellRecord", "ComparisonRecord", "Content", "NullTracker", "Tracker"]
