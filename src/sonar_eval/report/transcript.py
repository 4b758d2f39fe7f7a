"""One trial for a person to read: who said what, which tools ran, what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .visible import in_markdown, in_one_line, quoted, score_in_words


def render_transcript(record: Mapping[str, Any]) -> str:
    """Render a trial record as Markdown; what user, bot, tools and judge wrote cannot pass for a part of it."""
    return "\n".join([*_head(record), "", "## Conversation", *_conversation(record), "", *_verdicts(record), ""])


def _head(record: Mapping[str, Any]) -> Iterator[str]:
    came_of_it = "passed" if record["passed"] else "not passed"
    yield f"# {in_markdown(record['scenario'])}, trial {record['index'] + 1}: {came_of_it}"
    yield ""
    yield f"- conversation `{record['conversation_id']}`, random seed {record['random_seed']}"
    ended = record["ended_by"] or ("a failure" if record["failure"] else "nobody knows whom")
    yield f"- outcome: {record['outcome']}, ended by {ended} after {record['turns']} turns"
    if record["failure"]:
        failure = record["failure"]
        yield f"- who failed: **{failure['owner']}** ({failure['step']}): {in_markdown(failure['message'])}"
    if record["redacted"]:
        yield "- the trace is redacted: parts of the tool data were withheld before they were stored"
    for fault in record["faults"]:
        yield f"- fault {_fault(fault)}: hit {fault['fired']} of {fault['calls_seen']} calls"
    if record.get("not_exercised"):
        yield "- **not exercised**: no fault took place in this trial"
    yield from _cost(record)
    for warning in record["warnings"]:
        yield f"- warning: {in_markdown(warning)}"
    if record["transcript"] is None:
        yield "- no transcript: the tool calls of this trial are not known"


def _cost(record: Mapping[str, Any]) -> Iterator[str]:
    """Say what the trial cost, as far as that is known and it cost anything."""
    known = {role: row["cost_usd"] for role, row in record.get("spent", {}).items() if row["cost_usd"]}
    total = record.get("cost_usd")
    if not known and not total:
        return
    said = f"${total:.4f}" if total is not None else "not all known"
    if record.get("earlier_spent"):
        said += " with the tries that were given up"
    yield f"- cost: {said} ({', '.join(f'{role} ${cost:.4f}' for role, cost in known.items()) or 'earlier tries only'})"


def _fault(fault: Mapping[str, Any]) -> str:
    index = fault.get("when_call_index")
    meant = [f"call {index}"] if index is not None else []
    meant += [fault["condition"]] if fault.get("condition") else []
    told = f" ({in_markdown(', '.join(meant))})" if meant else ""
    return f"`{fault['action']}` on `{in_one_line(fault['target'])}`{told}"


def _conversation(record: Mapping[str, Any]) -> Iterator[str]:
    calls = _calls_by_turn(record)
    for number, turn in enumerate(record["conversation"]):
        yield f"\n**User:**{quoted(turn['user'])}"
        for call in calls.get(number, ()):
            yield f"\n    {in_one_line(call)}"
        for message in turn["delivered"]:
            yield f"\n**Bot:**{quoted(message)}"
        for media in turn.get("media") or ():
            yield f"\n**Bot** sends a file or picture: {in_one_line(_short(media))}"
        if not (turn["delivered"] or turn.get("media") or turn["forms"]):
            yield "\n**Bot:** (nothing)"
        for form in turn["forms"]:
            fields = ", ".join(field["name"] for field in form["fields"])
            yield f"\n**Bot** sends the form *{in_markdown(form['name'])}*: {in_markdown(fields)}"
    for call in calls.get(-1, ()):
        yield f"\n    {in_one_line(call)}"


def conversation_blocks(record: Mapping[str, Any]) -> list[str]:
    """Return the conversation as plain text, one block per turn; calls of no known turn stand in one of their own."""
    calls = _calls_by_turn(record)
    blocks = []
    for number, turn in enumerate(record["conversation"]):
        said = [f"Bot: {message}" for message in turn["delivered"]]
        said += [f"Bot sends a file or picture: {_short(media)}" for media in turn.get("media") or ()]
        said += [f"Bot sends the form {form['name']}" for form in turn["forms"]]
        blocks.append("\n".join([f"User: {turn['user']}", *calls.get(number, ()), *(said or ["Bot: (nothing)"])]))
    return [*blocks, "\n".join(calls[-1])] if -1 in calls else blocks


def _calls_by_turn(record: Mapping[str, Any]) -> dict[int, list[str]]:
    content = (record["transcript"] or {}).get("content") or []
    return {
        turn: [" -> ".join(called_and_outcome(span, content)) for _, span in spans]
        for turn, spans in spans_by_turn(record).items()
    }


Span = Mapping[str, Any]


def spans_by_turn(record: Mapping[str, Any]) -> dict[int, list[tuple[int, Span]]]:
    """Put each tool call, with its place among all, to its turn when there is one trace per turn; else to -1."""
    transcript = record.get("transcript") or {"runs": [], "spans": []}
    runs = [run.get("trace_id") for run in transcript["runs"]]
    paired = len(runs) == len(record["conversation"])
    found: dict[int, list[tuple[int, Span]]] = {}
    called = (span for span in transcript["spans"] if span.get("kind") == "tool")
    for place, span in enumerate(called):
        turn = runs.index(span.get("trace_id")) if paired and span.get("trace_id") in runs else -1
        found.setdefault(turn, []).append((place, span))
    return found


def called_and_outcome(span: Span, content: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Write a tool call in two parts: what was called with what, and what came of it."""
    mine = [row for row in content if (row["span_id"], row.get("trace_id")) == (span["span_id"], span.get("trace_id"))]
    values = {row["type"]: row["value"] for row in mine}
    fault = span.get("fault")
    injected = f"   <- injected {fault['action']}" if fault else ""
    called = f"{span.get('tool_name')}({_short(values.get('tool_arguments'))})"
    if span.get("tool_success") is False:
        return called, f"FAILED {span.get('error_type')}: {span.get('error_message')}{injected}"
    unknown = "" if span.get("tool_success") else "(outcome unknown) "
    return called, f"{unknown}{_short(values.get('tool_result'))}{injected}"


def _short(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters)"


def _verdicts(record: Mapping[str, Any]) -> Iterator[str]:
    yield "## Verdict"
    for row in record["assertions"]:
        mark = "unknown" if row["unknown"] else ("held" if row["passed"] else "NOT held")
        detail = f": {in_markdown(row['detail'])}" if row["detail"] else ""
        yield f"- {in_markdown(row['name'])} ({row['severity']}): {mark}{detail}"
    grader = record["grader"]
    if grader:
        yield f"- judge: {score_in_words(grader['score'])}{_asked_again(grader)}. {in_markdown(grader['reasoning'])}"
        for row in grader.get("criteria", ()):
            reason = f": {in_markdown(row['reason'])}" if row["reason"] else ""
            yield f"    - {in_markdown(row['name'])}: {row['verdict'].replace('_', ' ')}{reason}"
    elif record["judge_asked"]:
        failure = record["grader_failure"] or {}
        yield f"- judge: no verdict. {in_markdown(failure.get('message', ''))}"


def _asked_again(grader: Mapping[str, Any]) -> str:
    scores = grader.get("scores", ())
    if not scores:
        return ""
    agreement = grader.get("agreement")
    agreed = f", agreement {agreement:.2f}" if agreement is not None else ""
    return f" (mean of {', '.join(f'{score:.2f}' for score in scores)}; asked {grader['repeats']} times{agreed})"
