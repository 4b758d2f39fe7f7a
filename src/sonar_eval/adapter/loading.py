"""Finding an adapter by name, and refusing one that cannot work."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, cast

from ..errors import ConfigError, MissingAttributeError, MissingModuleError
from .contract import BotAdapter

_METHODS = ("setup_trial", "send", "teardown_trial")


def load_object(path: str) -> Any:
    """Import `"module:attribute"`; the attribute may be dotted.

    Raises `ConfigError` that says which half was not found. Importing runs the module's code.
    """
    module_name, separator, attribute = path.partition(":")
    if not (separator and module_name and attribute):
        raise ConfigError(f"expected 'module:attribute', got {path!r}")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise MissingModuleError(
            f"cannot import {path!r}: no module {error.name!r}; is it installed, or in the current folder?"
        ) from error
    except Exception as error:
        raise ConfigError(f"cannot import {path!r}: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise MissingAttributeError(f"cannot load {path!r}: {module_name} has no attribute {attribute!r}") from None
    return found


def load_adapter(path: str) -> BotAdapter:
    """Load the adapter at `"module:attribute"`: an instance, or a class or factory that takes no argument.

    Raises `ConfigError` (a `ValueError`) when it is not found, `TypeError` when it is no adapter.
    """
    found = load_object(path)
    if _makes_one(found):
        found = found()
    validate_bot_adapter(found)
    return cast(BotAdapter, found)


def check_adapter(path: str) -> None:
    """Raise what `load_adapter` would, as far as that can be told without making the adapter."""
    found = load_object(path)
    if not _makes_one(found):
        validate_bot_adapter(found)
        return
    if isinstance(found, type):
        # Instances may bring the name; methods are there already.
        missing = [f"{method}()" for method in _METHODS if not callable(getattr(found, method, None))]
        if missing:
            raise TypeError(f"{path!r} is no bot adapter: it lacks {', '.join(missing)}")
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise ConfigError(f"{path!r} is no adapter, and cannot be called to get one: {error}") from error
    except ValueError:
        # Some built-in callables have no signature to look at.
        return


def _makes_one(found: Any) -> bool:
    """Tell a class or factory from an adapter that is there already."""
    ready = all(callable(getattr(found, method, None)) for method in _METHODS)
    return isinstance(found, type) or (callable(found) and not ready)


def validate_bot_adapter(candidate: Any, *, nameless: bool = False) -> None:
    """Raise `TypeError` naming everything that `candidate` lacks to be a bot adapter (a name not if `nameless`).

    A run does not ask for the name; whoever loads an adapter by its path does.
    """
    missing = [f"{method}()" for method in _METHODS if not callable(getattr(candidate, method, None))]
    if not nameless and not isinstance(getattr(candidate, "name", None), str):
        missing.insert(0, "name (a string)")
    if missing:
        raise TypeError(
            f"{candidate!r} is no bot adapter: it lacks {', '.join(missing)}; derive it from sonar_eval.BaseBotAdapter"
        )
