"""Checks written in YAML: nested, with functions of one's own, and every mistake told in one line."""

from __future__ import annotations

import sys

import pytest
import yaml

from fakes import judge_check, tool_span
from sonar_eval import ConfigError, ConversationLog, EndReason, Severity, Transcript, Turn
from sonar_eval.sweep.checks import build_assertion
from sonar_eval.usage import Spend

MINE = '''
def paid(state):
    """Hold when it is paid."""
    return state["paid"] > 0

def small(args):
    return args["amount"] < 10

def calm(transcript, log):
    return "!" not in log.bot_said()

def says(tool_name, times=1):
    return lambda transcript, log: log.bot_said().count(tool_name) == times

number = 5
'''


@pytest.fixture(autouse=True)
def _functions_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "own_checks.py").write_text(MINE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_checks", None)


LOG = ConversationLog(
    "c",
    [Turn("a", ("Shall I refund?",), latency_s=0.1), Turn("b", ("It failed, sorry!",), latency_s=0.3)],
    True,
    EndReason.USER,
    final_state={"paid": 3.8, "orders": {"A-1": {"total": 3.8}}},
    spent={"bot": Spend(2, 10, 10, 0.01)},
)
TRACE = Transcript(
    "c",
    runs=[{"trace_id": "t1"}, {"trace_id": "t2"}],
    spans=[
        tool_span("lookup"),
        tool_span(
            "refund",
            trace_id="t2",
            success=False,
            error_type="InjectedFault",
            fault={"action": "error", "rule": 0, "call_index": 0},
        ),
    ],
    content=[
        {"span_id": "refund", "trace_id": "t2", "type": "tool_arguments", "value": {"order_id": "A-1", "amount": 3.8}}
    ],
)


def built(text):
    return build_assertion("mine", yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("{check: tool_called_with, tool: refund, args: {amount: 3.8}, matching: {order_id: ^A-}}", True),
        ("{check: tool_called_with, tool: refund, args: {amount: 3.8}, matching: {order_id: ^B-}}", False),
        ("{check: tool_called_with, tool: refund, predicate: 'own_checks:small'}", True),
        ("{check: tool_called_with, tool: refund, args: null, matching: {amount: '^3'}}", True),
        ("{check: tool_call_count, tool: refund, exactly: 1}", True),
        ("{check: tool_call_count, tool: refund, at_least: 1, at_most: 1}", True),
        ("{check: tool_order, tools: [lookup, refund]}", True),
        ("{check: tool_order, tools: [lookup, refund], strict: true}", True),
        ("{check: no_unresolved_calls}", True),
        ("{check: bot_said, pattern: Refund, turn: 1, case: true}", False),
        ("{check: bot_never_said, pattern: refund, turn: -1}", True),
        ("{check: max_latency, seconds: 0.2}", False),
        ("{check: max_latency, seconds: 0.2, quantile: 0.5}", True),
        ("{check: max_cost, usd: 1}", True),
        ("{check: max_cost, usd: 0.001, role: total}", False),
        ("{check: recovered_from_fault}", True),
        ("{check: recovered_from_fault, tool: refund, told: [broken], alternatives: [voucher]}", False),
        ("{check: recovered_from_fault, told: 'fai+led'}", True),
        ("{check: final_state, expected: {orders: {A-1: {total: 3.8}}}}", True),
        ("{check: final_state, predicate: 'own_checks:paid'}", True),
        ("{check: final_state, expected: [1]}", False),
        ("{check: at_turn, turn: 2, of: {check: bot_said, pattern: failed}}", True),
        ("{check: at_turn, turn: 1, of: {check: tool_was_called, tool: refund}}", False),
        ("{check: all_of, of: [{check: bot_said, pattern: failed}, {import: 'own_checks:calm'}]}", False),
        ("{check: any_of, of: [{check: bot_said, pattern: failed}, {import: 'own_checks:calm'}]}", True),
        ("{check: negate, of: {check: tool_was_called, tool: discount}}", True),
        ("{check: negate, of: {check: all_of, of: [{check: negate, of: {import: 'own_checks:calm'}}]}}", False),
        ("{check: at_turn, turn: -1, of: {import: 'own_checks:says', tool_name: sorry, times: 1}}", True),
        ("{import: 'own_checks:says', tool: sorry}", True),
    ],
)
def test_every_check_can_be_written_in_yaml(text, held):
    result = judge_check(built(text).check, TRACE, LOG)
    assert (result.passed, result.unknown) == (held, False), result.detail


def test_an_assertion_of_nested_checks_has_the_name_and_severity_at_its_top():
    text = "{name: asked-first, severity: safety_critical, check: at_turn, turn: 1, of: {check: bot_said, pattern: x}}"
    assertion = built(text)
    assert (assertion.name, assertion.severity) == ("asked-first", Severity.SAFETY_CRITICAL)
    assert assertion.check.label == "at_turn(1, bot_said('x'))"
    assert built("{check: negate, of: {check: conversation_finished}}").name == "negate"


MISTAKES = [
    ("{check: tool_was_caled, tool: x}", "check: unknown 'tool_was_caled', known: ", "; did you mean tool_was_called?"),
    ("{check: tool_was_called, tol: x}", "tool_was_called takes tool, got tol; did you mean tool?", ""),
    ("{check: max_cost, usd: 1, of: bot}", "max_cost takes usd, role, got usd, of", ""),
    ("{check: [x]}", "check: unknown ['x'], known: ", ""),
    ("{check: tool_order, tools: lookup}", "tools: expected a list of str, got 'lookup'", ""),
    ("{check: tool_order, tools: [a, 5]}", "tools: expected a list of str, got ['a', 5]", ""),
    ("{check: tool_order, tools: [a]}", "two tools or more", ""),
    ("{check: tool_order, tools: [a, b], strict: 1}", "strict: expected bool, got 1", ""),
    ("{check: tool_call_count, tool: x, exactly: yes}", "exactly: expected int, got True", ""),
    ("{check: tool_call_count, tool: x}", "needs exactly, at_least or at_most", ""),
    ("{check: tool_called_with, tool: x, args: 5}", "args: expected Mapping, got 5", ""),
    ("{check: tool_called_with, tool: x, matching: {a: 5}}", "matching: expected Mapping of str, got {'a': 5}", ""),
    ("{check: tool_called_with, tool: x, matching: {a: (}}", "'(' is no regular expression: missing )", ""),
    ("{check: tool_called_with, tool: x, predicate: small}", "predicate: expected 'module:attribute', got 'small'", ""),
    ("{check: tool_called_with, tool: x, predicate: 5}", "predicate: expected a function as module:function", ""),
    ("{check: final_state, predicate: 'own_checks:number'}", "own_checks:number is no function but int", ""),
    ("{check: final_state, predicate: 'own_checks:nix'}", "own_checks has no attribute 'nix'", ""),
    ("{check: final_state}", "needs expected or predicate", ""),
    ("{check: bot_said, pattern: '('}", "'(' is no regular expression: missing ), unterminated subpattern", ""),
    ("{check: bot_said, pattern: x, turn: first}", "turn: expected int, got 'first'", ""),
    ("{check: max_latency, seconds: soon}", "seconds: expected float, got 'soon'", ""),
    ("{check: max_latency, seconds: -1}", "0 or more, got -1", ""),
    ("{check: max_cost, usd: 1, role: judge}", "role: expected one of bot, simulator, total, got 'judge'", ""),
    ("{check: recovered_from_fault, told: 5}", "told: expected str or a list of str, got 5", ""),
    ("{check: at_turn, turn: 0, of: {check: conversation_finished}}", "from 1, or from the end with -1, got 0", ""),
    ("{check: at_turn, turn: 1}", "at_turn takes turn, of, got turn", ""),
    ("{check: negate, of: tool_was_called}", "of: expected a check as {check: …}", ", got 'tool_was_called'"),
    ("{check: all_of, of: {check: max_turns, limit: 1}}", "of: expected a list of checks, got {", ""),
    ("{check: all_of, of: []}", "all_of needs one check or more", ""),
    ("{check: all_of, checks: []}", "all_of takes of, got checks", ""),
    ("{check: all_of, of: [{check: max_turns, limit: 1}, {check: max_turn}]}", "of[1]: check: unknown", "max_turns?"),
    ("{check: negate, of: {check: max_turns, limit: x}}", "of: limit: expected int, got 'x'", ""),
    ("{check: negate, of: {check: max_turns, limit: 1, severity: capability}}", "of: severity belong", ""),
    ("{check: negate, of: {}}", "of: expected either check or import", ""),
    (
        "{check: negate, of: {import: 'own_checks:says', tims: 1}}",
        "own_checks:says takes tool, times, got tims",
        "times?",
    ),
    ("{check: max_turns, limit: 1, severity: hgh}", "severity: unknown 'hgh', known: capability, safety_critical", ""),
]


@pytest.mark.parametrize(("text", "said", "end"), MISTAKES, ids=[text for text, _, _ in MISTAKES])
def test_a_mistake_is_one_line_that_names_scenario_and_assertion(text, said, end):
    with pytest.raises(ConfigError) as told:
        built(f"{{name: gate, {text[1:]}")
    line = str(told.value)
    assert line.startswith("scenario 'mine', assertion 'gate': ")
    assert said in line
    assert line.endswith(end)
    assert "\n" not in line
