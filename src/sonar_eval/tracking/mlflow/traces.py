"""Trials written as traces, with their own ids and times."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ..assessment import Assessment
from ..contract import CellRecord
from ..trace import TraceSpan, TrialTrace, trial_traces

_SPANS_IN_ONE_CALL = 400
_PREVIEW = 1000
_TAG_LIMIT = 4000
_TRACES_IN_ONE_CALL = 100


class TraceWriter:
    """Write the traces of runs into one experiment."""

    def __init__(self, uri: str, experiment_id: str, *, per_turn: bool = False) -> None:
        from mlflow.tracing.client import TracingClient

        self._client = TracingClient(uri)
        self._experiment_id = experiment_id
        self._per_turn = per_turn

    def write(self, run_id: str, cell: CellRecord) -> int:
        """Write the trials of a cell; returns the number of traces."""
        judge = str((cell.config.get("grader") or {}).get("type") or "judge")
        traces = [
            trace
            for record in cell.records
            for trace in trial_traces(record, cell.choices, run_id, per_turn=self._per_turn)
        ]
        waiting: list[Any] = []
        for trace in traces:
            # The header first: it settles previews and state, which the spans would else decide.
            self._client.start_trace(_header(trace, run_id, self._experiment_id, judge))
            waiting += (_span(span, trace) for span in trace.spans)
            if len(waiting) >= _SPANS_IN_ONE_CALL:
                self._client.log_spans(self._experiment_id, waiting)
                waiting = []
        if waiting:
            self._client.log_spans(self._experiment_id, waiting)
        return len(traces)

    def remove(self, run_id: str) -> None:
        """Delete the traces of a run."""
        for ids in _batches(self._ids(run_id)):
            self._client.delete_traces(self._experiment_id, trace_ids=ids)

    def _ids(self, run_id: str) -> list[str]:
        found: list[str] = []
        token = None
        while True:
            page = self._client.search_traces(
                locations=[self._experiment_id],
                filter_string=f"run_id = '{run_id}'",
                max_results=500,
                include_spans=False,
                page_token=token,
            )
            found += (trace.info.trace_id for trace in page)
            token = page.token
            if not token:
                return found


def _batches(ids: list[str]) -> Iterator[list[str]]:
    for place in range(0, len(ids), _TRACES_IN_ONE_CALL):
        yield ids[place : place + _TRACES_IN_ONE_CALL]


def _header(trace: TrialTrace, run_id: str, experiment_id: str, judge: str) -> Any:
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    metadata = {"mlflow.sourceRun": run_id, "mlflow.trace_schema.version": "3"}
    if trace.session:
        metadata["mlflow.trace.session"] = trace.session
    if trace.cost_usd is not None:
        metadata["mlflow.trace.cost"] = json.dumps({"total_cost": trace.cost_usd})
    return TraceInfo(
        f"tr-{trace.trace_id}",
        TraceLocation.from_experiment_id(experiment_id),
        trace.start_ns // 1_000_000,
        TraceState.ERROR if trace.failed else TraceState.OK,
        request_preview=trace.request[:_PREVIEW],
        response_preview=trace.response[:_PREVIEW],
        client_request_id=trace.conversation_id,
        execution_duration=trace.duration_ms,
        trace_metadata=metadata,
        tags={"mlflow.traceName": trace.name, **{key: value[:_TAG_LIMIT] for key, value in trace.tags.items()}},
        assessments=[_feedback(finding, trace, run_id, judge) for finding in trace.assessments],
    )


def _feedback(finding: Assessment, trace: TrialTrace, run_id: str, judge: str) -> Any:
    from mlflow.entities import AssessmentError, AssessmentSource, Feedback

    kind, who = ("LLM_JUDGE", judge) if finding.by_judge else ("CODE", "sonar-eval")
    at = (trace.start_ns // 1_000_000) + trace.duration_ms
    notes = {"mlflow.assessment.sourceRunId": run_id, **finding.notes}
    if trace.session:
        notes["mlflow.trace.session"] = trace.session
    return Feedback(
        finding.name[:250],
        finding.value if finding.error is None else None,
        AssessmentError("NO_VERDICT", finding.error) if finding.error is not None else None,
        AssessmentSource(source_type=kind, source_id=who),
        rationale=finding.rationale or None,
        trace_id=f"tr-{trace.trace_id}",
        metadata=notes,
        create_time_ms=at,
        last_update_time_ms=at,
    )


def _span(span: TraceSpan, trace: TrialTrace) -> Any:
    from mlflow.entities import Span

    attributes = {"mlflow.traceRequestId": f"tr-{trace.trace_id}", "mlflow.spanType": span.type, **span.attributes}
    if span.inputs is not None:
        attributes["mlflow.spanInputs"] = span.inputs
    if span.outputs is not None:
        attributes["mlflow.spanOutputs"] = span.outputs
    failed = span.error is not None
    status = {"code": "STATUS_CODE_ERROR" if failed else "STATUS_CODE_OK", "message": span.error or ""}
    return Span.from_dict(
        {
            "trace_id": _base64(trace.trace_id),
            "span_id": _base64(span.span_id),
            "parent_span_id": _base64(span.parent_id) if span.parent_id else "",
            "name": span.name,
            "start_time_unix_nano": span.start_ns,
            "end_time_unix_nano": span.end_ns,
            "status": status,
            "attributes": {
                key: json.dumps(value, ensure_ascii=False, default=str)
                for key, value in attributes.items()
                if value is not None
            },
            "events": list(_events(span)),
        }
    )


def _events(span: TraceSpan) -> Iterable[dict[str, Any]]:
    if span.error is not None:
        kind, _, message = span.error.partition(": ")
        attributes = {"exception.type": kind, "exception.message": message or kind}
        yield {"name": "exception", "time_unix_nano": span.end_ns, "attributes": attributes}


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(bytes.fromhex(text)).decode()
