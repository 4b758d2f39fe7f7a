"""The last lines of a sweep, and the one line about a mistake."""

from __future__ import annotations

import os
import re
import shlex
import sys
import traceback
from typing import Any

from ..errors import SonarEvalError, in_short
from ..report import result_table
from .comparison import compare_sweep, publish_comparisons, write_reports
from .plan import Plan
from .publish import how_to_catch_up, unpublished
from .session import Session, rows

DEBUG = "SONAR_DEBUG"
_NOISE = ("full_key:", "reference_type=", "object_type=", "See https://hydra")


def tell_plan(plan: Plan) -> None:
    """Print what is to come: a dry run's only output, or what stands beside the results of a sweep."""
    for line in plan.warnings:
        print(f"warning: {line}", file=sys.stderr)
    print("\n".join(plan.lines), file=sys.stdout if plan.dry else sys.stderr, flush=True)


def tell_results(session: Session) -> int:
    """Print the table, every cell that is not all judged with its reason, and how to look; return the exit status."""
    results = session.results()
    print(result_table(rows(results)))
    warnings = [(result["name"], line) for result in results for line in (result["report"] or {}).get("warnings", ())]
    for name, line in warnings:
        print(f"warning: {name}: {line}")
    _tell_comparison(session)
    print(f"\nRecords and transcripts: {_near(str(session.folder))}")
    print(session.tracker.how_to_look())
    failed = [(result["name"], result["error"]) for result in results if result["error"]]
    partial = [(result["name"], result["incomplete"]) for result in results if _is_partial(result)]
    if not failed and not partial:
        return 0
    print(f"\nTo run again what is missing: {_to_go_on(session)}")
    for told, lines in (("are not all judged", partial), ("failed", failed)):
        if lines:
            print(f"\n{len(lines)} of {len(session.cells)} cells {told}:")
            print("\n".join(f"  {name}: {reason}" for name, reason in lines))
    if any(unpublished(results)):
        print(f"All trials are on disk. When the tracker is back: {how_to_catch_up(_near(str(session.folder)))}")
    return 1


def tell_look(session: Session) -> None:
    """Print what a look at the arms said, while the sweep goes on."""
    if session.looked is not None:
        print(f"task.k=auto: {session.looked.reason}", file=sys.stderr, flush=True)


def _tell_comparison(session: Session) -> None:
    """Print how the arms compare and where the report lies; what goes wrong with that costs no result."""
    try:
        compared = compare_sweep(session.folder)
        reports = write_reports(session.folder, compared)
    except Exception as error:
        print(f"\nThe arms were not compared: {one_line(error)}")
        return
    for one, report in zip(compared, reports, strict=True):
        print("\n" + "\n".join(one.lines()))
        print(f"  Report: {_near(str(report))}")
    if session.looked is not None:
        print(f"  task.k=auto: {session.looked.reason}")
    try:
        publish_comparisons(session.folder, compared, session.tracker, session.sweep_id)
    except Exception as error:
        print(f"  Not published: {in_short(error)}; afterwards: {how_to_catch_up(_near(str(session.folder)))}")


def _is_partial(result: dict[str, Any]) -> bool:
    return not result["error"] and bool(result.get("incomplete"))


def tell_interrupted(session: Session | None) -> None:
    """Print what is left after an interrupt, and how to go on."""
    said = "interrupted" if session is None else "interrupted; trials that had finished are on disk; to go on: "
    print(f"sonar-eval: {said}{'' if session is None else _to_go_on(session)}", file=sys.stderr)


def _to_go_on(session: Session) -> str:
    return f"sonar-eval sweep resume={shlex.quote(_near(str(session.folder)))}"


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
    """Say what Hydra does not: the extra that is missing, or the override that it refuses."""
    plugin = re.search(r"Could not find 'hydra/launcher/(\w+)'", text)
    if plugin:
        extra = "slurm" if plugin[1].startswith("submitit") else plugin[1]
        return f". For this launcher: pip install 'sonar-eval[{extra}]'"
    if not text.startswith("Config group override must be"):
        return ""
    taken = [argument for argument in sys.argv[1:] if re.fullmatch(r"\w+=(null|true|false|[\d.]+)", argument)]
    return f": write the name of an option in {', '.join(taken)}" if taken else ""


def _near(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
