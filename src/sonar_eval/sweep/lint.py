"""What YAML makes of a configuration, where that is not what was meant."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from .schema import SweepConf
from .searchpath import user_confs

GROUPS: dict[str, Any] = {name: node for name, node in typing.get_type_hints(SweepConf).items() if is_dataclass(node)}
_KNOWN_RESOLVERS = r"oc\.|hydra[.:]|sonar\.|now:"
_OPEN = re.compile(rf"(?<!\\)\$\{{(?!{_KNOWN_RESOLVERS})")
# Fields of these lists are settings, not text for people; they may refer to others.
_TEXTS = ("text", "user_instructions", "instructions", "rubric", "reference", "say", "opening", "scripted_messages")


def lint_user_confs() -> list[str]:
    """Look through the user's folders; one line for each thing that will not be read as it was meant."""
    return [line for folder in user_confs() for line in lint_folder(folder)]


def lint_folder(folder: Path) -> list[str]:
    """Look through one folder of options; files outside our groups are not ours to judge."""
    return [
        f"{path.parent.parent.name}/{group}/{path.name}: {line}"
        for group, node in GROUPS.items()
        for path in sorted((folder / group).glob("*.y*ml"))
        for line in _lint_option(group, node, path)
    ]


def _lint_option(group: str, node: Any, path: Path) -> Iterator[str]:
    yield from _name(group, path.stem)
    try:
        loaded = OmegaConf.load(path)
        body = OmegaConf.to_container(loaded, resolve=False)
    # What the YAML parser raises is its own, and no subclass of anything we know here.
    except Exception as error:
        yield f"cannot be read: {' '.join(str(error).split())}"
        return
    if not isinstance(body, dict):
        yield f"expected keys and values, got {type(body).__name__}"
        return
    yield from _keys(body)
    yield from _scalars(node, body)
    yield from _interpolations(body)
    yield from _against_schema(node, loaded)


def _name(group: str, name: str) -> Iterator[str]:
    try:
        value = OverridesParser.create().parse_override(f"{group}={name}").value()
    except HydraException:
        value = None
    if value != name or OmegaConf.create(f"name: {name}").name != name:
        yield f"the name {name!r} is not read as text; rename the file, e.g. {group}-{name}"


def _keys(body: Any, where: str = "") -> Iterator[str]:
    if isinstance(body, dict):
        for key, value in body.items():
            if not isinstance(key, str):
                yield f"{where}{key!r}: YAML reads this key as {type(key).__name__}; quote it"
            yield from _keys(value, f"{where}{key}.")
    elif isinstance(body, list):
        for place, value in enumerate(body):
            yield from _keys(value, f"{where}{place}.")


def _scalars(node: Any, body: dict[Any, Any], where: str = "") -> Iterator[str]:
    """Name values that a text field would turn into other text, such as off into False."""
    hints = typing.get_type_hints(node)
    for entry in fields(node):
        value, kinds = body.get(entry.name), _kinds(hints[entry.name])
        inner = next((kind for kind in kinds if is_dataclass(kind)), None)
        if inner is not None and isinstance(value, dict):
            yield from _scalars(inner, value, f"{where}{entry.name}.")
        elif str in kinds and isinstance(value, bool | int | float):
            yield f"{where}{entry.name}: YAML reads this text as {value!r}; quote it"
        elif str in kinds and value is None and entry.name in body and entry.name in _TEXTS:
            yield f"{where}{entry.name}: is empty; a text that begins with # must be quoted"


def _kinds(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) or (hint,)


def _interpolations(body: Any, where: str = "", *, text: bool = False) -> Iterator[str]:
    if isinstance(body, dict):
        for key, value in body.items():
            yield from _interpolations(value, f"{where}{key}.", text=text or key in _TEXTS)
    elif isinstance(body, list):
        for place, value in enumerate(body):
            yield from _interpolations(value, f"{where}{place}.", text=text)
    elif text and isinstance(body, str) and _OPEN.search(body):
        yield f"{where.rstrip('.')}: ${{ begins a reference; write \\${{ for the characters themselves"


def _against_schema(node: Any, loaded: Any) -> Iterator[str]:
    loaded.pop("defaults", None)
    try:
        OmegaConf.merge(OmegaConf.structured(node), loaded)
    except OmegaConfBaseException as error:
        yield str(error).partition("\n")[0]
