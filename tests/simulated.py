"""Trial records and sweep folders as runs leave them, made up."""

from __future__ import annotations

import json
from pathlib import Path

from sonar_eval.report import Arm

SAFETY = "no-harm"
CAPABILITY = "task-done"


def trial(index, passed=True, *, outcome="judged", scenario="s", said=None, safe=True, calls=("lookup",), **changes):
    """Make the record of one trial; what is said differs from trial to trial unless told."""
    errored = outcome == "errored"
    spans = [
        {"kind": "tool", "span_id": str(place), "trace_id": "t", "tool_name": name, "tool_success": True}
        for place, name in enumerate(calls)
    ]
    rows = [
        {"name": CAPABILITY, "severity": "capability", "passed": passed, "detail": "", "unknown": False},
        {"name": SAFETY, "severity": "safety_critical", "passed": safe, "detail": "", "unknown": False},
    ]
    return {
        "schema_version": 1,
        "scenario": scenario,
        "conversation_id": f"{scenario}-{index}",
        "index": index,
        "random_seed": 0,
        "outcome": outcome,
        "passed": passed and safe and not errored,
        "assertions": [] if errored else rows,
        "judge_asked": False,
        "grader": None,
        "tokens": {"input": 100, "output": 10},
        "conversation": [
            {
                "user": "hello",
                "delivered": [said or f"answer {index}"],
                "submission": None,
                "forms": [],
                "latency_s": 0.5,
            }
        ],
        "transcript": {"runs": [], "spans": spans, "content": [], "completeness": None},
        **changes,
    }


def trials(passes, n, *, errors=0, **changes):
    """Make n trials of which the first `passes` pass, and further ones that errored."""
    judged = [trial(index, index < passes, **changes) for index in range(n)]
    return [*judged, *(trial(n + extra, False, outcome="errored", **changes) for extra in range(errors))]


def arm(name, passes, n=5, *, fault="none", errors=0, **changes):
    """Make an arm of one cell per count, in scenarios s0, s1, …"""
    sizes = [n] * len(passes) if isinstance(n, int) else n
    return Arm.of(
        name,
        {
            (f"s{place}", fault): trials(c, size, errors=errors, scenario=f"s{place}", **changes)
            for place, (c, size) in enumerate(zip(passes, sizes, strict=True))
        },
    )


def write_sweep(folder: Path, cells, *, command=()):
    """Write a sweep's folder; `cells` maps (model, prompt, scenario, fault) to trial records."""
    folder.mkdir(parents=True)
    (folder / "sweep.json").write_text(json.dumps({"cells": len(cells), "varies": [], "command": list(command)}))
    for number, (made_of, records) in enumerate(cells.items()):
        cell = folder / ".".join(made_of)
        cell.mkdir()
        result = {
            "choices": dict(zip(("model", "prompt", "scenario", "fault"), made_of, strict=True)),
            "varies": {},
            "started_ms": number,
            "report": {"asked": len(records)},
            "error": None,
        }
        (cell / "result.json").write_text(json.dumps(result))
        (cell / "trials.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder
