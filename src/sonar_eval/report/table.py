"""Rows of text as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .visible import in_markdown, in_one_line


def aligned(lines: Iterable[Sequence[str]]) -> str:
    """Set rows in columns, for a terminal."""
    rows = [[in_one_line(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def table(lines: Iterable[Sequence[str]]) -> str:
    """Write rows as a Markdown table, the first one its head."""
    head, *rows = [[escaped(cell) for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def escaped(text: str) -> str:
    """Write a text so that it stays in its cell."""
    return in_markdown(text).replace("|", "\\|")
