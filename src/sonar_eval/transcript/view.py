"""Reading a trace as a conversation's inner side: which tools ran, with what, to what end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

_ANSWER = "final_answer"


@dataclass(frozen=True)
class ToolInvocation:
    """One call of a tool; `success` is None when the trace does not tell."""

    name: str
    success: bool | None
    error_type: str | None
    span_id: str
    started_at: str | None = None
    duration_ms: float | None = None
    trace_id: str | None = None
    call_id: str | None = None
    args: Any = None
    result: Any = None
    error_message: str | None = None
    soft_error: bool = False
    fault: dict[str, Any] | None = None
    """What was injected into this call, when something was."""

    @property
    def failed(self) -> bool:
        """Tell whether the trace shows a failure: said outright, or by an error type without a verdict."""
        return self.success is False or (self.success is None and bool(self.error_type))

    @property
    def outcome_unknown(self) -> bool:
        """Tell whether the trace says neither that it worked nor that it failed."""
        return self.success is None and not self.error_type


@dataclass
class Transcript:
    """The trace of one conversation: plain rows as the ingest answers them."""

    conversation_id: str = ""
    runs: list[dict[str, Any]] = field(default_factory=list)
    spans: list[dict[str, Any]] = field(default_factory=list)
    content: list[dict[str, Any]] = field(default_factory=list)
    completeness: dict[str, Any] | None = None
    """How far the trace is known to be whole; None when whoever made it did not say."""

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing arrived at all."""
        return not (self.runs or self.spans)

    @property
    def incomplete(self) -> bool:
        """Tell whether it is known not to be whole; unknown is not incomplete."""
        return isinstance(self.completeness, dict) and not self.completeness.get("complete", True)

    @property
    def redacted(self) -> bool:
        """Tell whether some of the content was withheld before it was stored."""
        return any(row.get("redaction") for row in self.content)

    @property
    def tool_calls(self) -> list[ToolInvocation]:
        """List the calls of tools, in the order of the rows."""
        answering = self._traces_answering_by_tool()
        return [
            self._invocation(span)
            for span in self.spans
            if span.get("kind") == "tool"
            and not (span.get("tool_name") == _ANSWER and span.get("trace_id") in answering)
        ]

    @property
    def calls_by_start(self) -> list[ToolInvocation]:
        """List the calls of tools by the time they started; in the order of the rows, where one tells no time."""
        calls = self.tool_calls
        starts = [start for call in calls if (start := _moment(call.started_at)) is not None]
        if len(starts) < len(calls):
            return calls
        return [calls[place] for place in sorted(range(len(calls)), key=starts.__getitem__)]

    def _traces_answering_by_tool(self) -> set[Any]:
        """Find the traces of the framework that hands its answer over as if it were a tool call."""
        return {
            run.get("trace_id")
            for run in self.runs
            if any("smolagents" in str(scope) for scope in run.get("scopes") or ())
        }

    def _invocation(self, span: dict[str, Any]) -> ToolInvocation:
        span_id, trace_id = str(span.get("span_id", "")), span.get("trace_id")
        content = self.content_for(span_id, trace_id=trace_id)
        return ToolInvocation(
            name=str(span.get("tool_name") or span.get("name") or ""),
            success=span.get("tool_success"),
            error_type=span.get("error_type"),
            span_id=span_id,
            started_at=span.get("started_at"),
            duration_ms=span.get("duration_ms"),
            trace_id=trace_id,
            call_id=span.get("call_id"),
            args=_value(content, "tool_arguments"),
            result=_value(content, "tool_result"),
            error_message=span.get("error_message"),
            soft_error=bool(span.get("soft_error")),
            fault=span.get("fault"),
        )

    def tokens(self) -> tuple[int, int]:
        """Sum prompt and completion tokens over the runs: at least so many, for a count nobody gave is 0."""
        return self._least("input_tokens"), self._least("output_tokens")

    def known_tokens(self) -> tuple[int | None, int | None]:
        """Sum prompt and completion tokens; None where some model call does not tell.

        A turn that asked no model took nothing. Where no turn has a count, nothing is known.
        """
        asking = self._traces_asking_models()
        return self._exact("input_tokens", asking), self._exact("output_tokens", asking)

    @property
    def tokens_known(self) -> bool:
        """Tell whether both counts are known of every model call."""
        return None not in self.known_tokens()

    def _least(self, side: str) -> int:
        return sum(run.get(side) or run.get(f"{side}_at_least") or 0 for run in self.runs)

    def _exact(self, side: str, asking: set[Any]) -> int | None:
        counts = [run.get(side) for run in self.runs]
        untold = any(
            count is None and (run.get("trace_id") in asking or _has_count(run))
            for count, run in zip(counts, self.runs, strict=True)
        )
        known = [count for count in counts if count is not None]
        return sum(known) if known and not untold else None

    def _traces_asking_models(self) -> set[Any]:
        """Find the traces in which a model was asked; agents that show no calls of models may have asked some."""
        kinds = {span.get("kind") for span in self.spans}
        kind = "llm" if "llm" in kinds else "agent"
        return {span.get("trace_id") for span in self.spans if span.get("kind") == kind}

    def content_for(self, span_id: str, *, trace_id: str | None = None) -> list[dict[str, Any]]:
        """List the content rows of one span; span ids are unique only within a trace."""
        return [
            row
            for row in self.content
            if row.get("span_id") == span_id and (trace_id is None or row.get("trace_id") in (None, trace_id))
        ]


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _has_count(run: dict[str, Any]) -> bool:
    sides = ("input_tokens", "output_tokens")
    return any(run.get(side) is not None or run.get(f"{side}_at_least") for side in sides)


def _value(content: list[dict[str, Any]], kind: str) -> Any:
    return next((row.get("value") for row in content if row.get("type") == kind), None)
