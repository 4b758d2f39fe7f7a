"""Functions of one's own that are to say yes or no, and answers that say neither."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any


def unfit(function: Any) -> str:
    """Say why this cannot be a function that answers yes or no, as in "must not be async"; empty when it can."""
    while isinstance(function, partial):
        function = function.func
    if not callable(function):
        return f"must be callable, got {function!r}"
    # What such a function returns is true whatever it would have found.
    if _is(inspect.iscoroutinefunction, function) or _is(inspect.isasyncgenfunction, function):
        return "must not be async"
    return "must not yield: it has to return its answer" if _is(inspect.isgeneratorfunction, function) else ""


def _is(kind: Callable[[Any], bool], function: Any) -> bool:
    return kind(function) or kind(type(function).__call__)


def says_nothing(answer: Any) -> str:
    """Say why neither yes nor no can be read from an answer, as in "answered with a tuple …"; empty when it can.

    Numbers, texts, lists and matches are read as Python does: true is what is there.
    """
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        return "must not be async: it has to answer at once"
    if callable(answer):
        named = getattr(answer, "label", None) or getattr(answer, "__name__", None) or type(answer).__name__
        return f"answered with a function, {named}, which is neither yes nor no: it has to be called"
    if isinstance(answer, Iterator | AsyncIterator):
        return f"answered with an iterator, {type(answer).__name__}, which is neither yes nor no: put any(…) around it"
    if isinstance(answer, tuple):
        return "answered with a tuple, which is neither yes nor no: it has to return one value"
    if isinstance(answer, BaseException):
        return f"answered with an exception, {answer!r}, which is neither yes nor no: it has to be raised"
    return ""
