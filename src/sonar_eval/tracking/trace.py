"""A trial as a trace: the conversation, its turns, and below them what the bot's own spans say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from .assessment import Assessment, assess

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {
    "agent": "AGENT",
    "llm": "CHAT_MODEL",
    "tool": "TOOL",
    "retriever": "RETRIEVER",
    "embedding": "EMBEDDING",
    "guardrail": "GUARDRAIL",
    "chain": "CHAIN",
}


@dataclass(frozen=True)
class TraceSpan:
    """One span; `type` is MLflow's word for its kind."""

    span_id: str
    parent_id: str | None
    name: str
    type: str
    start_ns: int
    end_ns: int
    inputs: Any = None
    outputs: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class TrialTrace:
    """One trace: of a trial, or of one of its turns."""

    trace_id: str
    name: str
    request: str
    response: str
    failed: bool
    """Whether something broke; an assertion that did not hold breaks nothing."""
    conversation_id: str
    session: str | None
    tags: Mapping[str, str]
    spans: list[TraceSpan]
    assessments: list[Assessment] = field(default_factory=list)
    cost_usd: float | None = None

    @property
    def start_ns(self) -> int:
        """Return when it began."""
        return self.spans[0].start_ns

    @property
    def duration_ms(self) -> int:
        """Return how long it took."""
        return max(0, (self.spans[0].end_ns - self.spans[0].start_ns) // 1_000_000)


def trial_traces(
    record: Mapping[str, Any], choices: Mapping[str, str], scope: str, *, per_turn: bool = False
) -> list[TrialTrace]:
    """Draw the trace of a trial, or one per turn.

    Trace ids are made of `scope` and the conversation's id: a trial that is published twice, into two runs, gives
    two traces. Spans keep their ids, and tell the trace they came from.
    """
    drawing = _Drawing(record, choices, scope)
    return drawing.turns() if per_turn and record["conversation"] else [drawing.whole()]


class _Drawing:
    """The work on one trial."""

    def __init__(self, record: Mapping[str, Any], choices: Mapping[str, str], scope: str) -> None:
        self._record = record
        self._choices = choices
        self._scope = scope
        self._id = str(record["conversation_id"])
        transcript = record.get("transcript") or {"runs": [], "spans": [], "content": []}
        self._runs = sorted(transcript["runs"], key=lambda run: run.get("started_at") or "")
        self._spans = transcript["spans"]
        self._content = _by_span(transcript["content"])
        self._conversation = record["conversation"]
        starts = [at for row in self._spans if (at := _ns(row.get("started_at"))) is not None]
        self._start = _ns(record.get("started_at")) or min(starts, default=0)
        ends = [_end(row, self._start) for row in self._spans]
        length = int((record.get("duration_s") or 0) * 1e9)
        self._end = max([self._start + length, *ends])
        self._taken: set[str] = set()

    def whole(self) -> TrialTrace:
        """Draw one trace of everything."""
        root = self._new_id("conversation")
        said = [message for turn in self._conversation for message in _messages(turn)]
        last = said.pop() if said and said[-1]["role"] == "assistant" else None
        conversation = TraceSpan(
            root,
            None,
            "conversation",
            "AGENT",
            self._start,
            self._end,
            {"messages": said},
            {"messages": [last]} if last else None,
            self._facts(),
            self._failure(),
        )
        below = [span for number in range(len(self._conversation)) for span in self._turn(number, root)]
        unpaired = [] if self._paired else list(self._bot(self._spans, root))
        return self._trace(
            "", f"{self._choices.get('scenario')} / {self._choices.get('fault')}", self._label(), last,
            [conversation, *below, *unpaired], assess(self._record),
        )  # fmt: skip

    def turns(self) -> list[TrialTrace]:
        """Draw a trace for each turn; the verdicts stand at the first."""
        drawn = []
        for number, turn in enumerate(self._conversation):
            spans = list(self._turn(number, None))
            if number == 0 and not self._paired:
                spans += self._bot(self._spans, spans[0].span_id)
            said = _messages(turn)
            last = said[-1] if said[-1]["role"] == "assistant" else None
            verdicts = assess(self._record) if number == 0 else []
            drawn.append(self._trace(f"turn {number}", f"turn {number + 1}", said[0]["content"], last, spans, verdicts))
        return drawn

    def _trace(
        self,
        part: str,
        name: str,
        request: str,
        last: Mapping[str, Any] | None,
        spans: list[TraceSpan],
        assessments: list[Assessment],
    ) -> TrialTrace:
        failure = self._failure()
        return TrialTrace(
            _hex(f"{self._scope}/{self._id}/{part}", 32),
            name,
            request,
            str(last["content"]) if last else (f"({failure})" if failure else "(nothing)"),
            failure is not None,
            self._id,
            self._id if part else None,
            self._tags(),
            spans,
            assessments,
            _cost(self._record) if part in ("", "turn 0") else None,
        )

    def _label(self) -> str:
        return f"{self._choices.get('scenario')} / {self._choices.get('fault')} / trial {self._record['index'] + 1}"

    def _tags(self) -> dict[str, str]:
        record = self._record
        tags = {"conversation_id": self._id, "trial": str(record["index"] + 1), "outcome": str(record["outcome"])}
        tags |= {
            axis: self._choices[axis] for axis in ("model", "prompt", "scenario", "fault") if axis in self._choices
        }
        if record["failure"]:
            tags["failed_by"] = str(record["failure"]["owner"])
        if record["not_exercised"]:
            tags["not_exercised"] = "true"
        return tags

    def _facts(self) -> dict[str, Any]:
        """List what a trial's record knows and no span tells."""
        record = self._record
        keys = ("outcome", "ended_by", "random_seed", "faults", "warnings", "earlier_failures")
        facts = {f"sonar.{key}": record[key] for key in keys if record.get(key)}
        facts["sonar.trace_ids"] = [run.get("trace_id") for run in self._runs]
        return facts

    def _failure(self) -> str | None:
        failure = self._record["failure"]
        if not failure:
            return None
        return f"{failure['owner']} failed{' in ' + failure['step'] if failure['step'] else ''}: {failure['message']}"

    @property
    def _paired(self) -> bool:
        """Tell whether there is one trace of the bot's for each turn, so that it is known which belongs where."""
        return bool(self._runs) and len(self._runs) == len(self._conversation)

    def _turn(self, number: int, root: str | None) -> Iterator[TraceSpan]:
        turn = self._conversation[number]
        mine = self._new_id(f"turn {number}")
        said = _messages(turn)
        start, end = self._window(number)
        trace_id = self._runs[number].get("trace_id") if self._paired else None
        rows = [row for row in self._spans if self._paired and row.get("trace_id") == trace_id]
        start = min([start, *(at for row in rows if (at := _ns(row.get("started_at"))) is not None)])
        end = max([end, *(_end(row, start) for row in rows)])
        yield TraceSpan(
            mine, root, f"turn {number + 1}", "CHAIN", start, end,
            {"messages": said[:1]}, {"messages": said[1:]}, {"sonar.latency_s": turn["latency_s"]},
        )  # fmt: skip
        yield from self._bot(rows, mine)

    def _window(self, number: int) -> tuple[int, int]:
        """Return when a turn took place: by its trace, else laid out by how long each turn took."""
        lengths = [int((turn["latency_s"] or 0) * 1e9) for turn in self._conversation]
        if self._paired and (at := _ns(self._runs[number].get("started_at"))) is not None:
            return at, at + lengths[number]
        idle = max(0, self._end - self._start - sum(lengths)) // (len(lengths) + 1)
        start = self._start + sum(lengths[:number]) + idle * (number + 1)
        return start, start + lengths[number]

    def _bot(self, rows: Iterable[Mapping[str, Any]], above: str) -> Iterator[TraceSpan]:
        """Hang the bot's spans below `above`; one whose parent is not there hangs there too."""
        rows = list(rows)
        ids = {_place(row): self._keep_id(row) for row in rows}
        for row in rows:
            mine = ids[_place(row)]
            parent = ids.get((row.get("trace_id"), row.get("parent_span_id")), above)
            yield self._bot_span(row, mine, parent if parent != mine else above)

    def _bot_span(self, row: Mapping[str, Any], span_id: str, parent: str) -> TraceSpan:
        start = _ns(row.get("started_at")) or self._start
        inputs, outputs = _in_and_out(row, self._content.get(_place(row), []))
        return TraceSpan(
            span_id,
            parent,
            str(row.get("tool_name") or row.get("name") or "span"),
            _TYPES.get(str(row.get("kind")), "UNKNOWN"),
            start,
            max(start, _end(row, start)),
            inputs,
            outputs,
            self._attributes(row),
            _broken(row),
        )

    def _attributes(self, row: Mapping[str, Any]) -> dict[str, Any]:
        found = {"sonar.trace_id": row.get("trace_id"), "sonar.span_id": row.get("span_id"), "sonar.name": row["name"]}
        keys = ("call_id", "tool_success", "success_basis", "soft_error", "source", "late", "conflict", "fault")
        found |= {f"sonar.{key}": row[key] for key in keys if row.get(key) not in (None, False)}
        run = next((run for run in self._runs if _head(run) == _place(row)), None)
        given, made = (run.get("input_tokens"), run.get("output_tokens")) if run is not None else (None, None)
        if given is not None and made is not None:
            usage = {"input_tokens": given, "output_tokens": made, "total_tokens": given + made}
            found["mlflow.chat.tokenUsage"] = usage
        if run is not None and run.get("model"):
            found["sonar.model"] = run["model"]
        return found

    def _keep_id(self, row: Mapping[str, Any]) -> str:
        """Keep a span's id, unless it is none or taken: ids are unique only within their own trace."""
        given = str(row.get("span_id") or "")
        usable = len(given) == 16 and set(given) <= set("0123456789abcdef") and given.strip("0")
        if not usable or given in self._taken:
            return self._new_id(f"{row.get('trace_id')}/{given}/{len(self._taken)}")
        self._taken.add(given)
        return given

    def _new_id(self, what: str) -> str:
        made = _hex(f"{self._id}/{what}", 16)
        self._taken.add(made)
        return made


def ended_ms(record: Mapping[str, Any]) -> int | None:
    """Return when a trial ended, in milliseconds since 1970; None when its record does not tell."""
    start = _ns(record.get("started_at"))
    return None if start is None else start // 1_000_000 + int((record.get("duration_s") or 0) * 1000)


def _hex(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:length]


def _ns(moment: str | None) -> int | None:
    if not moment:
        return None
    at = datetime.fromisoformat(moment)
    known = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (known - _EPOCH) // timedelta(microseconds=1) * 1000


def _end(row: Mapping[str, Any], start: int) -> int:
    begun = _ns(row.get("started_at"))
    return (start if begun is None else begun) + int((row.get("duration_ms") or 0) * 1e6)


def _place(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row.get("trace_id"), row.get("span_id")


def _head(run: Mapping[str, Any]) -> tuple[Any, Any]:
    return run.get("trace_id"), run.get("head_span_id")


def _by_span(content: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, Any], list[Mapping[str, Any]]]:
    found: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
    for row in content:
        found.setdefault(_place(row), []).append(row)
    return found


def _messages(turn: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a turn as chat messages: the user's, then what the bot delivered."""
    asked = str(turn["user"])
    if turn["submission"]:
        filled = json.dumps(turn["submission"]["values"], ensure_ascii=False, default=str)
        asked = f"{asked}\n[form {turn['submission']['form']}: {filled}]".strip()
    said = [str(text) for text in turn["delivered"]]
    said += [f"[file or picture: {media}]" for media in turn.get("media") or ()]
    said += [f"[form {form['name']}: {', '.join(entry['name'] for entry in form['fields'])}]" for form in turn["forms"]]
    return [{"role": "user", "content": asked}, *({"role": "assistant", "content": text} for text in said)]


def _in_and_out(row: Mapping[str, Any], content: list[Mapping[str, Any]]) -> tuple[Any, Any]:
    if row.get("kind") == "tool":
        values = {entry["type"]: entry["value"] for entry in content}
        return values.get("tool_arguments"), values.get("tool_result")
    # A model's answer is what stands after the last word that is not its own.
    answer = len(content)
    while answer and content[answer - 1].get("role") == "assistant":
        answer -= 1
    given, made = ([_message(entry) for entry in part] for part in (content[:answer], content[answer:]))
    return {"messages": given} if given else None, {"messages": made} if made else None


def _message(entry: Mapping[str, Any]) -> dict[str, Any]:
    role, value = entry.get("role") or "user", entry["value"]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if entry["type"] == "tool_arguments":
        call = {"name": entry.get("name"), "arguments": text}
        return {"role": role, "tool_calls": [{"id": entry.get("call_id"), "type": "function", "function": call}]}
    found = {"role": role, "content": text}
    return {**found, "tool_call_id": entry["call_id"]} if entry.get("call_id") else found


def _broken(row: Mapping[str, Any]) -> str | None:
    if not row.get("error_type") and row.get("tool_success") is not False:
        return None
    return ": ".join(str(part) for part in (row.get("error_type"), row.get("error_message")) if part) or "failed"


def _cost(record: Mapping[str, Any]) -> float | None:
    spent = record.get("spent") or {}
    costs = [row.get("cost_usd") for row in spent.values() if isinstance(row, Mapping)]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
