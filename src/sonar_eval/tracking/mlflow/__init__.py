"""Sweeps in MLflow: a parent run per sweep, a child run per cell, a trace per trial, and views to compare them.

MLflow is imported when the first call needs it: that alone takes seconds.
"""

from .prompts import RegisteredPrompt, load_prompt
from .reconcile import reconcile
from .store import absolute_uri, sqlite_path
from .tracker import MLflowTracker

__all__ = ["MLflowTracker", "RegisteredPrompt", "absolute_uri", "load_prompt", "reconcile", "sqlite_path"]
