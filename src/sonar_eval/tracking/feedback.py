"""What people said of conversations in MLflow."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError, in_short

_PAGE = 500


@dataclass(frozen=True)
class HumanFeedback:
    """One piece of feedback by a person: its name, what it says, who said it."""

    conversation_id: str
    name: str
    value: object
    by: str


def human_feedback(uri: str, conversations: Container[str]) -> list[HumanFeedback]:
    """Read people's feedback on the traces of `conversations`; of several by one person under one name, the last.

    Raises `ConfigError` when the store cannot be read.
    """
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    if path != uri and not Path(path).is_file():
        raise ConfigError(f"there is no store {uri} to read feedback from; name one with --tracking-uri")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    latest: dict[tuple[str, str, str], tuple[int, HumanFeedback]] = {}
    try:
        for trace in _traces(MlflowClient(uri)):
            conversation_id = trace.info.client_request_id or trace.info.tags.get("conversation_id")
            if conversation_id is not None and conversation_id in conversations:
                for when, row in _feedback(conversation_id, trace.info.assessments or ()):
                    key = (row.conversation_id, row.name, row.by)
                    if key not in latest or latest[key][0] <= when:
                        latest[key] = (when, row)
    except Exception as error:
        raise ConfigError(f"MLflow at {uri}: {in_short(error)}") from error
    return [row for _, row in latest.values()]


def _traces(client: Any) -> Iterator[Any]:
    experiments = [found.experiment_id for found in client.search_experiments(max_results=1000)]
    token = None
    while experiments:
        page = client.search_traces(locations=experiments, max_results=_PAGE, page_token=token, include_spans=False)
        yield from page
        token = page.token
        if not token:
            return


def _feedback(conversation_id: str, assessments: Any) -> Iterator[tuple[int, HumanFeedback]]:
    for one in assessments:
        # Expectations have no feedback; what a person took back or replaced is no longer valid.
        said = getattr(one, "feedback", None)
        if said is None or said.value is None or getattr(one, "valid", True) is False:
            continue
        if str(one.source.source_type).upper() == "HUMAN":
            row = HumanFeedback(conversation_id, one.name, said.value, str(one.source.source_id or ""))
            yield int(one.last_update_time_ms or one.create_time_ms or 0), row
