"""What a sweep costs beyond its trials: CPU per cell and per published trial, start-up, a hundred cells end to end.

One JSON line per case. CPU is that of the sweep's process and all it started; wall time counts only on an idle machine.

python tests/benchmarks/sweep.py [start|parts|hundred ...]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

AXES = ("model=offline-careful,offline-hasty", "prompt=v1,v2")
TWENTY = (*AXES, "scenario=order_latte,refund,clean_books,out_of_stock,change_of_mind")
HUNDRED = (*TWENTY, "fault=none,payment_outage,payment_flaky,payment_timeout,payment_error_once")
SWEEP = ("-m", "sonar_eval.sweep")
FEW, MANY = 1, 11


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    cpu_s: float
    wall_s: float


def cost(*arguments: str, folder: Path | None = None) -> Cost:
    """Run Python with these arguments in a folder of its own, and wait for all that it started."""
    with tempfile.TemporaryDirectory() as made:
        began, before = time.perf_counter(), os.times()
        ran = subprocess.run([sys.executable, *arguments], cwd=folder or made, capture_output=True, text=True)
        after, ended = os.times(), time.perf_counter()
    if ran.returncode not in (0, 1) or "Traceback" in ran.stderr:
        raise SystemExit(f"{arguments} failed: {ran.stderr}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(spent, ended - began)


def start() -> Iterator[dict]:
    """Measure what one waits for before anything is done; medians of 5."""
    cases = {
        "import": ("-c", "import sonar_eval"),
        "help": (*SWEEP, "--help"),
        "command_help": ("-m", "sonar_eval", "--help"),
        "dry_run_20_cells": (*SWEEP, *TWENTY, "dry_run=true"),
    }
    for name, arguments in cases.items():
        found = [cost(*arguments) for _ in range(5)]
        yield {
            "case": name,
            "cpu_s": round(statistics.median(one.cpu_s for one in found), 2),
            "wall_s": round(statistics.median(one.wall_s for one in found), 2),
        }


def parts() -> Iterator[dict]:
    """Take a sweep apart: the same cells with few and many trials, tracked and not."""
    tracked, kept = {}, {}
    for k in (FEW, MANY):
        tracked[k] = cost(*SWEEP, *TWENTY, f"task.k={k}").cpu_s
        kept[k] = cost(*SWEEP, *TWENTY, f"task.k={k}", "tracking=none").cpu_s
    one = cost(*SWEEP, f"task.k={FEW}").cpu_s
    one_kept = cost(*SWEEP, f"task.k={FEW}", "tracking=none").cpu_s
    trial = (kept[MANY] - kept[FEW]) / (20 * (MANY - FEW))
    published = (tracked[MANY] - tracked[FEW]) / (20 * (MANY - FEW)) - trial
    yield {
        "case": "parts",
        "cpu_s_per_cell": round((tracked[FEW] - one) / 19 - FEW * (trial + published), 3),
        "cpu_s_per_cell_untracked": round((kept[FEW] - one_kept) / 19 - FEW * trial, 3),
        "cpu_ms_per_trial": round(1000 * trial, 1),
        "cpu_ms_per_published_trial": round(1000 * published, 1),
        "one_cell_cpu_s": round(one, 2),
        "one_cell_untracked_cpu_s": round(one_kept, 2),
    }


def hundred() -> Iterator[dict]:
    """Run a hundred cells of five trials, everything published, and count what arrived."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        took = cost(*SWEEP, *HUNDRED, "task.k=5", folder=folder)
        results = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("sweeps/*/*/result.json")]
    yield {
        "case": "hundred",
        "cells": sum(result["run_id"] is not None for result in results),
        "trials": sum(result["report"]["judged"] for result in results),
        "wall_s": round(took.wall_s, 1),
        "cpu_s": round(took.cpu_s, 1),
    }


GROUPS = {"start": start, "parts": parts, "hundred": hundred}


def main() -> None:
    """Run the groups that are named, or all."""
    for name in sys.argv[1:] or GROUPS:
        for found in GROUPS[name]():
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
