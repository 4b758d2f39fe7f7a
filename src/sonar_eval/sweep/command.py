"""The command that `resume=` goes on with: that of the earlier sweep, changed by what is given now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError
from ..store import SWEEP_FILE
from .resume import read_sweep
from .retrieval import SWEEPS, retrieve_sweep, store_of

_ARGUMENT = re.compile(r"\+{0,2}resume=(.*)", re.DOTALL)
_IN_MLFLOW = "mlflow:"


def with_earlier_command(arguments: Sequence[str]) -> list[str]:
    """Put the command of the sweep that `resume=` names before the given arguments, which win."""
    named = [found.group(1) for argument in arguments if (found := _ARGUMENT.fullmatch(argument))]
    if not named or named[-1] in ("", "null"):
        return list(arguments)
    given = [argument for argument in arguments if not _ARGUMENT.fullmatch(argument)]
    folder = _earlier_folder(_unquoted(named[-1]), given)
    replaced = {_override_key(argument) for argument in given} | {"hydra.sweep.dir", "dry_run", "resume"}
    recorded = [line for line in read_sweep(folder)["command"] if _override_key(line) not in replaced]
    quoted = re.sub(r"(['\\])", r"\\\1", str(folder))
    return [*recorded, *given, f"resume='{quoted}'"]


def _earlier_folder(named: str, given: Sequence[str]) -> Path:
    """Find the folder that `resume=` names: `last` is the sweep in ./sweeps that was begun or continued last.

    Of `mlflow:RUN_ID`, a sweep's run, the folder is put together again.
    """
    if named.startswith(_IN_MLFLOW):
        return retrieve_sweep(store_of(given), named.removeprefix(_IN_MLFLOW)).resolve()
    if named != "last":
        return Path(named).expanduser().resolve()
    written = [path for path in Path(SWEEPS).glob(f"*/{SWEEP_FILE}") if path.is_file()]
    if not written:
        raise ConfigError("resume=last: there is no sweep in ./sweeps; name a folder with resume=DIR")
    return max(written, key=lambda path: path.stat().st_mtime_ns).parent.resolve()


def _unquoted(value: str) -> str:
    quoted = re.fullmatch(r"""(['"])(.*)\1""", value, re.DOTALL)
    return quoted.group(2) if quoted else value


def _override_key(argument: str) -> str:
    return argument.partition("=")[0].lstrip("+~")
