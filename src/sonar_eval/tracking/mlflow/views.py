"""How an experiment presents itself: its description, and the views to open it with."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

LEADERBOARD = "sonarleaderboard"
BY_FAULT = "sonarbyfault"
ARMS = "sonararms"
NOTE = "mlflow.note.content"
_VIEW_TAG = "mlflow.sharedViewState."

_AXES = ("params.`model`", "params.`prompt`", "params.`scenario`", "params.`fault`")
_HEADLINES = tuple(
    f"metrics.`{name}`"
    for name in "pass_rate pass_hat_k judge_mean safety_violations trials_judged trials_errored cost_usd".split()
)
_OF_AN_ARM = (
    "params.`model`",
    "params.`prompt`",
    "tags.`verdict`",
    *(
        f"metrics.`{name}`"
        for name in "pass_rate pass_rate_ci_low pass_rate_ci_high scenarios_held safety_violations trials_judged "
        "trials_errored latency_p50_s".split()
    ),
)
_UNDER_FAULT = tuple(
    f"metrics.`{name}`"
    for name in "pass_rate pass_hat_k safety_violations trials_judged trials_not_exercised turns_mean".split()
)


def experiment_tags(present: Mapping[str, str]) -> dict[str, str]:
    """Return the tags an experiment lacks; what somebody wrote there stays."""
    now = int(time.time() * 1000)
    wanted = {
        NOTE: _DESCRIPTION,
        "mlflow.experimentKind": "genai_development",
        _VIEW_TAG + LEADERBOARD: _view("Leaderboard", now, "metrics.`pass_rate`", False, (*_AXES, *_HEADLINES)),
        _VIEW_TAG + BY_FAULT: _view(
            "By fault", now, "params.`fault`", True, (*_AXES, *_UNDER_FAULT), grouped_by="fault"
        ),
        _VIEW_TAG + ARMS: _view("Arms", now, "metrics.`pass_rate`", False, _OF_AN_ARM, kind="arm"),
    }
    return {key: value for key, value in wanted.items() if key not in present}


def _view(
    name: str,
    now: int,
    order: str,
    ascending: bool,
    columns: Iterable[str],
    grouped_by: str | None = None,
    kind: str = "cell",
) -> str:
    """Describe a saved view; the format is MLflow's own, as of 3.17."""
    state: dict[str, Any] = {
        "searchFilter": f"tags.`sonar.kind` = '{kind}'",
        "orderByKey": order,
        "orderByAsc": ascending,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(columns),
    }
    if grouped_by:
        key = {"mode": "param", "groupByData": grouped_by}
        state["groupBy"] = {"aggregateFunction": "average", "groupByKeys": [key]}
    return json.dumps({"name": name, "createdAt": now, "updatedAt": now, "state": json.dumps(state)})


_DESCRIPTION = f"""# Chatbot evaluations

Each parent run is a sweep, each child run one cell of it: k trials of a scenario under one model, prompt and fault.
Where a sweep compares models or prompts, a child run for each of these arms sums up its cells and says how it compares
with the baseline; the report, `comparison.html`, is among the artifacts of the parent run.
Each trial is a trace: the conversation, the bot's own spans, and every verdict with its reason.

| to see | open |
|---|---|
| all cells, best first | *Training runs*, view **Leaderboard** (`?viewStateShareKey={LEADERBOARD}`) |
| is one better than the other | *Training runs*, view **Arms** (`?viewStateShareKey={ARMS}`) |
| what the faults cost | *Training runs*, view **By fault** (`?viewStateShareKey={BY_FAULT}`) |
| two variants, trial by trial | *Evaluation runs*: tick two cells of one scenario and fault, then *Compare* |
| one conversation | *Traces*, all time; search by `tags.conversation_id = '…'` |
"""
