"""When a trace counts as whole: by count, by structure, by quiet, or not at all."""

from dataclasses import replace

import pytest

from sonar_eval.ingest.completeness import Circumstances, assess
from sonar_eval.ingest.mapping import map_spans
from sonar_eval.ingest.span import Span
from sonar_eval.transcript import wire

CONVERSATION = {"sonar.conversation.id": "c"}
QUIET = Circumstances(quiet_s=12.0, quiet_wanted_s=11.0, turns=1)
FRESH = replace(QUIET, quiet_s=0.2)


def span(number, parent=None, *, trace=1, **attributes):
    return Span(
        f"{trace:032x}", f"{number:016x}", parent and f"{parent:016x}", "span", attributes=CONVERSATION | attributes
    )


def agent(number=1, parent=None, **more):
    return span(number, parent, **{"gen_ai.operation.name": "invoke_agent"}, **more)


def tool(number, parent=1, name="pay", **more):
    return span(number, parent, **{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}, **more)


def model(number, parent=1, calls=(), **more):
    parts = [{"type": "tool_call", "id": call_id, "name": name, "arguments": {}} for call_id, name in calls]
    output = [{"role": "assistant", "parts": parts or [{"type": "text", "content": "done"}]}]
    return span(number, parent, **{"gen_ai.operation.name": "chat", "gen_ai.output.messages": output}, **more)


def marker(*spans, started=None, ended=None, process="p", number=99):
    xor = 0
    for entry in spans:
        xor ^= int(entry.span_id, 16)
    counts = {
        wire.MARKER_STARTED: len(spans) if started is None else started,
        wire.MARKER_ENDED: len(spans) if ended is None else ended,
        wire.MARKER_XOR: f"{xor:016x}",
        wire.MARKER_PROCESS: process,
    }
    return replace(span(number, trace=2, **counts), name=wire.MARKER_NAME)


def assessed(spans, around=QUIET):
    return assess(map_spans(spans), around)


def test_all_that_was_counted_is_here_at_once():
    spans = [agent(), tool(2)]
    found = assessed([*spans, marker(*spans)], FRESH)
    assert (found.level, found.complete, found.final) == (3, True, True)
    assert (found.spans, found.expected) == (2, 2)


def test_a_lost_span_is_told_without_waiting_for_quiet():
    spans = [agent(), tool(2)]
    found = assessed([spans[0], marker(*spans)], replace(QUIET, quiet_s=1.5))
    assert (found.level, found.complete, found.final) == (0, False, True)
    assert found.reasons == ["1 of 2 spans were lost on their way"]


def test_the_last_batch_may_come_after_the_marker():
    spans = [agent(), tool(2)]
    assert not assessed([spans[0], marker(*spans)], FRESH).final


def test_another_span_in_the_place_of_a_counted_one_is_not_it():
    spans = [agent(), tool(2)]
    found = assessed([spans[0], tool(7), marker(*spans)], FRESH)
    assert not found.complete


def test_a_tool_that_hangs_is_waited_for_and_then_told():
    spans = [agent(), tool(2)]
    seen = [spans[0], marker(*spans, ended=1)]
    assert not assessed(seen, FRESH).final
    found = assessed(seen)
    assert (found.level, found.complete, found.open) == (1, True, 1)
    assert found.reasons == ["1 spans had not ended when the bot was torn down"]


def test_spans_begun_after_the_marker_make_it_wait_for_quiet():
    spans = [agent(), tool(2)]
    seen = [*spans, tool(3), marker(*spans)]
    assert not assessed(seen, FRESH).final
    assert assessed(seen).level == 1


def test_two_processes_are_added_up():
    here, there = [agent()], [tool(2), tool(3)]
    markers = [marker(*here, process="a"), marker(*there, process="b", number=98)]
    assert assessed([*here, *there, *markers], FRESH).level == 3


def test_of_a_marker_sent_twice_the_one_of_the_higher_count_holds():
    spans = [agent(), tool(2)]
    markers = [marker(spans[0]), marker(*spans, number=98)]
    assert assessed([*spans, *markers], FRESH).level == 3


def test_a_span_outside_of_the_conversation_is_not_counted():
    spans = [agent()]
    stray = replace(tool(2), attributes={"gen_ai.operation.name": "execute_tool"})
    assert assessed([*spans, stray, marker(*spans)], FRESH).level == 3


def test_without_a_marker_nothing_is_said_before_it_was_quiet():
    found = assessed([agent(), tool(2)], FRESH)
    assert (found.level, found.complete, found.final) == (0, False, False)
    assert found.reasons == ["quiet for 0.2 s of 11 s"]


def test_an_ended_turn_without_holes_is_whole_by_its_structure():
    found = assessed([agent(), model(2, calls=[("c1", "pay")]), tool(3, **{"gen_ai.tool.call.id": "c1"}), model(4)])
    assert (found.level, found.reasons, found.turns_seen) == (2, [], 1)


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        ([tool(3, parent=8), agent()], "1 spans have a parent that did not come"),
        ([agent(), model(2, calls=[("c1", "pay")])], "tool calls without an outcome: pay"),
        ([tool(2, parent=None)], "0 of 1 turns left an end in the trace"),
    ],
)
def test_a_hole_leaves_no_more_than_quiet(spans, reason):
    found = assessed(spans)
    assert found.level == 1
    assert reason in found.reasons


def test_a_turn_that_is_missing_beside_one_that_is_there_was_lost():
    found = assessed([agent()], replace(QUIET, turns=2))
    assert (found.level, found.complete, found.final) == (0, False, True)
    assert "1 of 2 turns left an end in the trace" in found.reasons[0]


def test_a_missing_turn_may_still_come_while_it_is_not_quiet():
    found = assessed([agent()], replace(QUIET, turns=2, quiet_s=1.0))
    assert (found.level, found.final) == (0, False)


def test_a_bot_whose_turns_leave_no_end_at_all_is_merely_quiet():
    found = assessed([tool(2, parent=None)], replace(QUIET, turns=2))
    assert (found.level, found.complete) == (1, True)


def test_not_knowing_the_turns_proves_nothing():
    assert assessed([agent()], replace(QUIET, turns=None)).level == 1


def test_each_model_call_without_a_tool_ends_a_turn_of_a_bot_without_agents():
    spans = [model(1, None, trace=1), model(2, None, calls=[("c", "pay")], trace=3), model(3, None, trace=4)]
    assert assessed(spans).turns_seen == 2


def test_a_remote_parent_is_no_orphan():
    remote = replace(agent(1, 77), flags=0x300)
    assert assessed([remote]).orphans == 0


def test_refused_requests_leave_it_unproven():
    found = assessed([agent()], replace(QUIET, refused=2))
    assert (found.level, found.complete) == (0, False)
    assert "2 requests" in found.reasons[0]


def test_a_trace_that_the_asker_names_must_have_a_head():
    named = replace(QUIET, turns=None, traces=(f"{1:032x}", f"{5:032x}"))
    assert assessed([agent()], named).reasons == ["1 of 2 turns have no trace with a head"]


def test_a_marker_that_makes_no_sense_is_none():
    broken = replace(marker(agent()), attributes=CONVERSATION | {wire.MARKER_STARTED: 1, wire.MARKER_XOR: "zz"})
    assert assessed([agent(), broken], FRESH).level == 0
