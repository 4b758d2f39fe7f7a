"""What people read: tables and transcripts."""

from .render import ResultRow, result_table
from .transcript import render_transcript

__all__ = ["ResultRow", "render_transcript", "result_table"]
