"""What really happened: the trace of one conversation, asked back from the ingest."""

from ..errors import EmptyTranscriptError
from .client import Expectation, IngestClient
from .dialogue import turns_of
from .marks import carry_marks, mark_faults, unplaced_faults
from .view import ToolInvocation, Transcript

__all__ = [
    "EmptyTranscriptError",
    "Expectation",
    "IngestClient",
    "ToolInvocation",
    "Transcript",
    "carry_marks",
    "mark_faults",
    "turns_of",
    "unplaced_faults",
]
