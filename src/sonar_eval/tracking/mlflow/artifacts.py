"""The files of a cell as they may be published."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ..content import Content

# With content=none only files that tell numbers and names; the rest is talk.
_NUMBERS = ("result.json", "scenarios.jsonl", "conversation_ids.json")


def copy_files(source: Path, target: Path, content: Content) -> None:
    """Copy the files of `source` into `target` with all their texts treated.

    Hidden ones stay: what Hydra keeps there tells the address of the store, with its password.
    """
    for path in sorted(source.rglob("*")):
        inner = path.relative_to(source)
        hidden = any(part.startswith(".") for part in inner.parts)
        if not path.is_file() or hidden or (content.mode == "none" and str(inner) not in _NUMBERS):
            continue
        place = target / inner
        place.parent.mkdir(parents=True, exist_ok=True)
        if content.everything:
            shutil.copyfile(path, place)
        else:
            place.write_text(_masked(path, content), encoding="utf-8")


def _masked(path: Path, content: Content) -> str:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".json":
        return _json(text, content, indent=1)
    if path.suffix == ".jsonl":
        return "".join(_json(line, content) + "\n" for line in text.splitlines() if line.strip())
    return content.text(text)


def _json(text: str, content: Content, indent: int | None = None) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        # Cut off by a crash: no longer JSON, still text.
        return content.text(text)
    return json.dumps(content.value(value), ensure_ascii=False, indent=indent)
