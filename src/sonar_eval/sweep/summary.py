"""The last lines of a sweep, and the one line about a mistake."""

from __future__ import annotations

import os
import re
import sys
import traceback

from ..errors import SonarEvalError
from ..report import result_table
from .session import Session, rows

DEBUG = "SONAR_DEBUG"
_NOISE = ("full_key:", "reference_type=", "object_type=", "See https://hydra")


def tell_results(session: Session) -> int:
    """Print the table, every failed or missing cell with its reason, and how to look; return the exit status."""
    results = session.results()
    print(result_table(rows(results)))
    warnings = [(result["name"], line) for result in results for line in (result["report"] or {}).get("warnings", ())]
    for name, line in warnings:
        print(f"warning: {name}: {line}")
    failed = [(result["name"], result["error"]) for result in results if result["error"]]
    print(f"\nRecords and transcripts: {_near(str(session.folder))}")
    print(session.tracker.how_to_look())
    missing = session.cells - len(results)
    if not failed and not missing:
        return 0
    print(f"\n{len(failed) + missing} of {session.cells} cells failed:")
    for name, error in failed:
        print(f"  {name}: {error}")
    if missing:
        print(f"  {missing} left no result")
    return 1


def tell_mistake(error: BaseException) -> None:
    """Print what is wrong with the input in one line; with SONAR_DEBUG set, the traceback too."""
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    print(f"sonar-eval: {one_line(error)}", file=sys.stderr)


def one_line(error: BaseException) -> str:
    """Fold a message of many lines, such as Hydra's, into one."""
    text = str(error).partition("Config search path:")[0].strip() or type(error).__name__
    kept = [line for line in text.split("\n") if not line.strip().startswith(_NOISE)]
    options = "\n".join(kept).replace("\n\t", ", ").replace(":, ", ": ")
    folded = re.sub(r"\s*\n\s*", ". ", options)
    cause = error.__cause__
    if cause is not None and not isinstance(error, SonarEvalError) and str(cause) not in text:
        folded = f"{folded}. {one_line(cause)}"
    return re.sub(r"([.:,])\.", r"\1", re.sub(r"\s+", " ", folded)) + _hint(text)


def _hint(text: str) -> str:
    """Name the override that Hydra refuses without saying which."""
    if not text.startswith("Config group override must be"):
        return ""
    taken = [argument for argument in sys.argv[1:] if re.fullmatch(r"\w+=(null|true|false|[\d.]+)", argument)]
    return f": write the name of an option in {', '.join(taken)}" if taken else ""


def _near(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
