"""From the rows of a scenario's `assertions` to checks; a mistake is one line that names scenario and assertion."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from ..adapter import load_object
from ..assertions import CHECKS, Assertion, Check, Severity
from ..assertions.naming import suggestion
from ..errors import ConfigError, describe

# What a check's factory calls its argument, and what one would write in YAML.
_ALIASES = {"tool": "tool_name"}
_WRITTEN = {name: key for key, name in _ALIASES.items()}
_OF_THE_ASSERTION = ("name", "severity")


def build_assertion(scenario: str, row: Mapping[str, Any]) -> Assertion:
    """Build one assertion of a scenario; raises `ConfigError` that says what is wrong with it."""
    where = f"scenario {scenario!r}, assertion {row.get('name') or row.get('check') or row.get('import')!r}"
    severity = row.get("severity", Severity.CAPABILITY.value)
    _known(f"{where}: severity", severity, [level.value for level in Severity])
    check = _check(where, {key: value for key, value in row.items() if key not in _OF_THE_ASSERTION})
    label = str(row.get("check") or str(row.get("import")).rpartition(":")[2])
    return Assertion(str(row.get("name") or label), Severity(severity), check)


def _check(where: str, row: Any) -> Check:
    """Build what one row describes: a check of ours, or one that is imported."""
    if not isinstance(row, Mapping):
        raise ConfigError(f"{where}: expected a check as {{check: …}} or {{import: …}}, got {row!r}")
    arguments = {str(key): value for key, value in row.items() if key not in ("check", "import")}
    if ("check" in row) == ("import" in row):
        raise ConfigError(f"{where}: expected either check or import")
    if "import" in row:
        return _imported(where, str(row["import"]), arguments)
    name = row["check"]
    _known(f"{where}: check", name, CHECKS)
    return _made(where, CHECKS[name], arguments)


def _made(where: str, factory: Callable[..., Check], arguments: Mapping[str, Any]) -> Check:
    named = _bound(where, factory.__name__, factory, arguments)
    hints = typing.get_type_hints(factory)
    return _call(where, factory, {name: _value(where, name, value, hints[name]) for name, value in named.items()})


def _bound(where: str, label: str, factory: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Give the arguments the names that the factory has for them, and make sure that it takes them."""
    signature = inspect.signature(factory)
    keywords = [name for name, found in signature.parameters.items() if found.kind is not found.VAR_POSITIONAL]
    named = {
        _ALIASES[key] if key not in keywords and _ALIASES.get(key) in keywords else key: value
        for key, value in arguments.items()
    }
    try:
        signature.bind(**named)
    except TypeError as error:
        written = [_WRITTEN.get(name, name) for name in keywords]
        raise ConfigError(f"{where}: {_misfit(label, written, arguments)}") from error
    return named


def _misfit(name: str, written: Sequence[str], arguments: Iterable[str]) -> str:
    given = list(arguments)
    meant = next((meant for key in given if key not in written and (meant := suggestion(key, written))), "")
    said = f"{name} takes {', '.join(written) or 'no argument'}, got {', '.join(given) or 'nothing'}"
    return f"{said}; {meant}" if meant else said


def _call(where: str, factory: Callable[..., Check], named: Mapping[str, Any]) -> Check:
    try:
        return factory(**named)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except Exception as error:
        raise ConfigError(f"{where}: {describe(error)}") from error


def _value(where: str, name: str, value: Any, hint: Any) -> Any:
    """Read one argument: a check within a check, a function by its path, or plain values of the right kind."""
    key = f"{where}: {_WRITTEN.get(name, name)}"
    if hint == Check:
        return _nested(key, value)
    if hint == Sequence[Check]:
        if not isinstance(value, list):
            raise ConfigError(f"{key}: expected a list of checks, got {value!r}")
        return [_nested(f"{key}[{place}]", row) for place, row in enumerate(value)]
    kinds = [kind for kind in _kinds(hint) if kind is not types.NoneType]
    for kind in kinds:
        if typing.get_origin(kind) is Callable:
            return _function(key, value, takes=len(typing.get_args(kind)[0]))
    if value is None and len(kinds) < len(_kinds(hint)):
        return value
    if not any(_fits(value, kind) for kind in kinds):
        raise ConfigError(f"{key}: expected {' or '.join(map(_named, kinds))}, got {value!r}")
    return value


def _nested(where: str, row: Any) -> Check:
    misplaced = [key for key in _OF_THE_ASSERTION if isinstance(row, Mapping) and key in row]
    if misplaced:
        raise ConfigError(f"{where}: {' and '.join(misplaced)} belong to the assertion, not to a check within it")
    return _check(where, row)


def _function(where: str, path: Any, *, takes: int | None = None) -> Any:
    """Import a function; with `takes`, one that can be called with so many arguments."""
    if not isinstance(path, str):
        raise ConfigError(f"{where}: expected a function as module:function, got {path!r}")
    found = _loaded(where, path)
    if not callable(found):
        raise ConfigError(f"{where}: {path} is no function but {type(found).__name__}")
    if takes is not None:
        _require_taking(f"{where}: {path}", found, ["the value"] * takes)
    return found


def _require_taking(what: str, function: Callable[..., Any], given: Sequence[str]) -> None:
    """Refuse a function that cannot be called with what is given, or that answers later."""
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{what} must not be async: it has to answer at once")
    try:
        inspect.signature(function).bind(*given)
    except TypeError as error:
        raise ConfigError(f"{what} cannot be called with ({', '.join(given)}): {error}") from error
    except ValueError:
        # Some built-in callables have no signature to look at.
        return


def _loaded(where: str, path: str) -> Any:
    try:
        return load_object(path)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _kinds(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is Any:
        return True
    if origin is Literal:
        return value in inner
    if isinstance(value, bool):
        return origin is bool
    if origin is float:
        return isinstance(value, int | float)
    if origin is Sequence:
        return isinstance(value, list) and all(_fits(entry, inner[0]) for entry in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(entry, inner[1]) for entry in value.values())
    return isinstance(value, origin)


def _named(kind: Any) -> str:
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is Literal:
        return "one of " + ", ".join(map(str, inner))
    if origin is Sequence:
        return f"a list of {_named(inner[0])}"
    return f"Mapping of {_named(inner[1])}" if origin is Mapping and inner[1] is not Any else str(origin.__name__)


def _imported(where: str, path: str, arguments: Mapping[str, Any]) -> Check:
    """Take the object as a check; with arguments, call it to get one."""
    found = _function(where, path)
    if arguments:
        return _call(where, found, _bound(where, path, found, arguments))
    _require_taking(f"{where}: {path}", found, ("transcript", "log"))
    return cast(Check, found)


def _known(what: str, value: Any, known: Iterable[str]) -> None:
    names = sorted(known)
    if value not in names:
        meant = suggestion(str(value), names)
        said = f"{what}: unknown {value!r}, known: {', '.join(names)}"
        raise ConfigError(f"{said}; {meant}" if meant else said)
