import asyncio
import sys
import threading
from dataclasses import dataclass
from functools import partial

import pytest

from fakes import run
from sonar_eval import (
    Action,
    FaultRule,
    FaultSpec,
    InjectedFault,
    InterceptDecision,
    ProxyInterceptor,
    ToolCall,
    deserialize_faults,
    serialize_faults,
)
from sonar_eval.interceptor import DecisionKind, fault_attributes, rule_reports


@pytest.fixture
def eager_switching():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def watched(target, index):
    """Break the call of `index`; a first rule that never matches writes down every index it is shown."""
    seen = []
    watch = FaultRule(target, Action.ERROR, when=lambda call: bool(seen.append(call.call_index)))
    return ProxyInterceptor(FaultSpec((watch, FaultRule(target, Action.ERROR, when_call_index=index)))), seen


def kinds(interceptor, *targets):
    return [interceptor.on_tool_call(ToolCall(target)).kind for target in targets]


@pytest.mark.parametrize("attempt", range(6))
def test_threads_that_call_at_once_get_an_index_each(eager_switching, attempt):
    interceptor, seen = watched("pay", 3)
    decisions = []
    start = threading.Barrier(8)

    def call_often():
        start.wait()
        for _ in range(1000):
            decisions.append(interceptor.on_tool_call(ToolCall("pay")))

    threads = [threading.Thread(target=call_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(8000))
    assert sum(decision.kind is DecisionKind.RAISE for decision in decisions) == 1
    assert [firing.call_index for firing in interceptor.firings] == [3]
    assert interceptor.calls_seen == {"pay": 8000}


def test_coroutines_that_call_at_once_get_an_index_each():
    interceptor, seen = watched("pay", 3)

    async def pay():
        await asyncio.sleep(0)
        return "paid"

    async def main():
        calls = (interceptor.run("pay", {}, pay) for _ in range(8))
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = run(main())
    assert sorted(seen) == list(range(8))
    assert sum(isinstance(answer, InjectedFault) for answer in answers) == 1


def test_the_index_is_counted_by_the_interceptor_and_per_target():
    interceptor = ProxyInterceptor(FaultSpec((FaultRule("pay", Action.ERROR, when_call_index=1),)))
    first = interceptor.on_tool_call(ToolCall("pay", call_index=1))
    other = interceptor.on_tool_call(ToolCall("look"))
    second = interceptor.on_tool_call(ToolCall("pay", call_index=0))
    assert [first.kind, other.kind, second.kind] == [
        DecisionKind.PASSTHROUGH,
        DecisionKind.PASSTHROUGH,
        DecisionKind.RAISE,
    ]
    assert second.call_index == 1


def test_a_retry_counts_as_a_call_so_the_first_call_alone_fails_once():
    interceptor = ProxyInterceptor(FaultSpec((FaultRule("pay", Action.ERROR, when_call_index=0),)))
    assert kinds(interceptor, "pay", "pay") == [DecisionKind.RAISE, DecisionKind.PASSTHROUGH]


def test_a_rule_without_an_index_fails_every_attempt():
    interceptor = ProxyInterceptor(FaultSpec((FaultRule("pay", Action.ERROR),)))
    assert kinds(interceptor, "pay", "pay", "pay") == [DecisionKind.RAISE] * 3


def test_of_several_matching_rules_the_first_decides_alone():
    slow = FaultRule("pay", Action.LATENCY, payload=0.5)
    broken = FaultRule("pay", Action.ERROR)
    interceptor = ProxyInterceptor(FaultSpec((slow, broken)))
    assert kinds(interceptor, "pay") == [DecisionKind.DELAY]
    assert [(firing.rule, firing.action) for firing in interceptor.firings] == [(0, Action.LATENCY)]


def test_a_predicate_sees_the_arguments_and_chooses():
    rule = FaultRule("pay", Action.ERROR, when=lambda call: call.args["amount"] > 100)
    interceptor = ProxyInterceptor(FaultSpec((rule,)))
    small = interceptor.on_tool_call(ToolCall("pay", {"amount": 5}))
    large = interceptor.on_tool_call(ToolCall("pay", {"amount": 500}))
    assert (small.kind, large.kind) == (DecisionKind.PASSTHROUGH, DecisionKind.RAISE)


async def sometimes(call):
    return False


def sometimes_piecemeal(call):
    yield False


@pytest.mark.parametrize(
    ("when", "words"),
    [
        (sometimes, "when must not be async"),
        (sometimes_piecemeal, "when must not yield"),
        (True, "when must be callable, got True"),
    ],
)
def test_a_predicate_that_could_not_answer_is_refused_when_the_rule_is_made(when, words):
    with pytest.raises(ValueError, match=f"fault rule for 'pay': {words}"):
        FaultRule("pay", Action.ERROR, when=when)


def test_a_predicate_whose_answer_is_neither_yes_nor_no_picks_nothing():
    for answer in (sometimes(None), (False, "because"), sometimes, map(bool, ())):
        with pytest.raises(TypeError, match=r"it (answered with|must not be async)"):
            FaultRule("pay", Action.ERROR, when=lambda call, answer=answer: answer).matches(ToolCall("pay"))


def test_decisions_are_equal_by_what_is_to_happen():
    interceptor = ProxyInterceptor(FaultSpec((FaultRule("pay", Action.REPLACE_OUTPUT, payload=[1]),)))
    assert interceptor.on_tool_call(ToolCall("pay")) == InterceptDecision(DecisionKind.REPLACE, [1])
    assert interceptor.on_tool_call(ToolCall("look")) == InterceptDecision(DecisionKind.PASSTHROUGH)


@pytest.mark.parametrize(("payload", "seconds"), [(1.5, 1.5), (2, 2.0), (0, 0.0), (None, 0.0)])
def test_latency_is_a_number_of_seconds(payload, seconds):
    interceptor = ProxyInterceptor(FaultSpec((FaultRule("pay", Action.LATENCY, payload=payload),)))
    decision = interceptor.on_tool_call(ToolCall("pay"))
    assert decision == InterceptDecision(DecisionKind.DELAY, seconds)


@pytest.mark.parametrize("payload", ["2s", "1.5", -1, float("nan"), float("inf"), True, [1]])
def test_latency_that_is_no_number_is_refused_when_the_rule_is_made(payload):
    with pytest.raises(ValueError, match="'pay'"):
        FaultRule("pay", Action.LATENCY, payload=payload)


def test_a_delayed_call_still_takes_place():
    interceptor = ProxyInterceptor(FaultSpec((FaultRule("pay", Action.LATENCY, payload=0.001),)))
    result, decision = run(interceptor.run("pay", {"amount": 5}, lambda amount: amount * 2))
    assert result == 10
    assert decision.kind is DecisionKind.DELAY


def test_an_action_may_be_given_as_text_and_an_unknown_one_is_refused():
    assert FaultRule("pay", "timeout").action is Action.TIMEOUT
    with pytest.raises(ValueError, match="explode"):
        FaultRule("pay", "explode")


@pytest.mark.parametrize(
    ("action", "kind", "raised"),
    [(Action.ERROR, "error", InjectedFault), (Action.TIMEOUT, "timeout", TimeoutError)],
)
def test_a_raising_fault_names_itself_the_tool_and_the_reason(action, kind, raised):
    interceptor = ProxyInterceptor(FaultSpec((FaultRule("pay", action, payload="card reader down"),)))
    with pytest.raises(raised, match=f"injected {kind} for pay: card reader down") as caught:
        run(interceptor.run("pay", {}, lambda: "paid"))
    assert caught.value.sonar_decision.rule == 0


def test_a_replaced_output_spares_the_call():
    called = []
    interceptor = ProxyInterceptor(FaultSpec((FaultRule("look", Action.REPLACE_OUTPUT, payload={"rows": []}),)))
    result, decision = run(interceptor.run("look", {}, lambda: called.append(1)))
    assert result == {"rows": []}
    assert decision.kind is DecisionKind.REPLACE
    assert called == []


def test_a_replaced_output_changed_by_one_call_is_whole_for_the_next():
    rule = FaultRule("look", Action.REPLACE_OUTPUT, payload={"rows": []})
    interceptor = ProxyInterceptor(FaultSpec((rule,)))
    first, _ = run(interceptor.run("look", {}, dict))
    first["rows"].append("changed")
    second, _ = run(interceptor.run("look", {}, dict))
    assert second == {"rows": []}
    assert rule.payload == {"rows": []}


def test_tools_may_be_plain_async_or_return_something_to_await():
    async def later(x):
        return x + 1

    interceptor = ProxyInterceptor(FaultSpec())
    for tool in (lambda x: x + 1, later, lambda x: later(x)):
        result, decision = run(interceptor.run("add", {"x": 1}, tool))
        assert result == 2
        assert decision.kind is DecisionKind.PASSTHROUGH


def test_a_plain_tool_does_not_block_the_loop():
    async def main():
        loop, started, done = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def slow():
            loop.call_soon_threadsafe(started.set)
            return done.wait(10)

        call = asyncio.create_task(ProxyInterceptor(FaultSpec()).run("slow", {}, slow))
        await started.wait()
        done.set()
        return (await call)[0]

    assert run(main())


def test_the_tools_own_error_carries_the_decision_too():
    interceptor = ProxyInterceptor(FaultSpec((FaultRule("pay", Action.LATENCY),)))

    def broken():
        raise LookupError("no such card")

    with pytest.raises(LookupError) as caught:
        run(interceptor.run("pay", {}, broken))
    assert caught.value.sonar_decision.kind is DecisionKind.DELAY


def test_rule_reports_say_of_each_rule_how_often_it_fired_and_what_it_saw():
    spec = FaultSpec((FaultRule("pay", Action.ERROR, when_call_index=0), FaultRule("pay_api", Action.TIMEOUT)))
    interceptor = ProxyInterceptor(spec)
    kinds(interceptor, "pay", "pay", "look")
    fired = [(firing.rule, firing.call_index) for firing in interceptor.firings]
    reports = rule_reports(spec, fired, interceptor.calls_seen)
    assert [(report.target, report.fired, report.calls_seen) for report in reports] == [
        ("pay", 1, 2),
        ("pay_api", 0, 0),
    ]


def test_a_faulted_call_is_marked_with_rule_action_and_index():
    spec = FaultSpec((FaultRule("look", Action.ERROR), FaultRule("pay", Action.TIMEOUT, when_call_index=1)))
    interceptor = ProxyInterceptor(spec)
    spared = interceptor.on_tool_call(ToolCall("pay"))
    hit = interceptor.on_tool_call(ToolCall("pay"))
    assert fault_attributes(spared, spec.rules) == {}
    assert fault_attributes(hit, spec.rules) == {
        "sonar.eval.fault.action": "timeout",
        "sonar.eval.fault.rule": 1,
        "sonar.eval.fault.call_index": 1,
    }


def test_faults_come_back_from_their_wire_form():
    spec = FaultSpec(
        (
            FaultRule("pay", Action.ERROR, when_call_index=2, payload="down"),
            FaultRule("look", Action.REPLACE_OUTPUT, payload={"rows": [1]}),
        )
    )
    rows = serialize_faults(spec)
    assert deserialize_faults(rows) == spec
    assert deserialize_faults([{**rows[0], "of_a_later_version": 1}]).rules == spec.rules[:1]


def test_a_predicate_cannot_be_written_to_the_wire():
    spec = FaultSpec((FaultRule("pay", Action.ERROR, when=lambda call: True),))
    with pytest.raises(ValueError, match="predicate"):
        serialize_faults(spec)


def test_an_unknown_action_on_the_wire_is_refused():
    with pytest.raises(ValueError, match="explode"):
        deserialize_faults([{"target": "pay", "action": "explode"}])


# Applying a decision, with and without a loop.


def paid(amount):
    return {"paid": amount}


async def paid_later(amount):
    return {"paid": amount}


def called(spec, tool=paid, times=1, **options):
    """Call a tool so often, without a loop; an injected error stands for itself."""
    interceptor = ProxyInterceptor(spec, **options)
    answers = []
    for _ in range(times):
        try:
            answers.append(interceptor.call("pay", tool, amount=5))
        except (InjectedFault, TimeoutError) as error:
            answers.append(type(error))
    return answers


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        (FaultRule("look", Action.ERROR), {"paid": 5}),
        (FaultRule("pay", Action.ERROR), InjectedFault),
        (FaultRule("pay", Action.TIMEOUT), TimeoutError),
        (FaultRule("pay", Action.REPLACE_OUTPUT, payload=0), 0),
        (FaultRule("pay", Action.LATENCY, payload=0.001), {"paid": 5}),
        (FaultRule("pay", Action.TRUNCATE), {}),
        (FaultRule("pay", Action.CORRUPT, seed=3), "spoilt"),
    ],
)
def test_a_call_does_what_the_rule_says_with_and_without_a_loop(rule, outcome):
    async def awaited(tool):
        try:
            return await ProxyInterceptor(FaultSpec((rule,))).acall("pay", tool, amount=5)
        except (InjectedFault, TimeoutError) as error:
            return type(error)

    answers = [*called(FaultSpec((rule,))), run(awaited(paid)), run(awaited(paid_later))]
    if outcome == "spoilt":
        outcome = answers[0]
        assert outcome["paid"] != 5
    assert answers == [outcome] * 3


def test_arguments_may_have_any_name():
    def tool(target, tool):
        return target, tool

    interceptor = ProxyInterceptor(FaultSpec())
    assert interceptor.call("x", tool, target=1, tool=2) == (1, 2)
    assert run(interceptor.acall("x", tool, target=1, tool=2)) == (1, 2)


def test_a_coroutine_function_is_not_called_without_a_loop_and_never_left_unawaited():
    interceptor = ProxyInterceptor(FaultSpec())
    with pytest.raises(TypeError, match="await acall"):
        interceptor.call("pay", paid_later, amount=5)
    assert interceptor.calls_seen == {}


def test_the_tools_own_error_leaves_a_plain_call_with_its_decision():
    def broken(amount):
        raise LookupError("no such card")

    interceptor = ProxyInterceptor(FaultSpec((FaultRule("pay", Action.LATENCY),)))
    with pytest.raises(LookupError) as caught:
        interceptor.call("pay", broken, amount=5)
    assert caught.value.sonar_decision.kind is DecisionKind.DELAY


def find_nothing(amount):
    return next(iter(()))


@pytest.mark.parametrize("tool", [find_nothing, partial(find_nothing)])
def test_a_tool_that_runs_out_of_what_it_looks_through_fails_and_keeps_nobody_waiting(tool):
    interceptor = ProxyInterceptor(FaultSpec((FaultRule("pay", Action.LATENCY),)))
    with pytest.raises(RuntimeError, match=r"(find_nothing|partial) raised StopIteration, as next") as caught:
        run(asyncio.wait_for(interceptor.acall("pay", tool, amount=5), 20))
    assert isinstance(caught.value.__cause__, StopIteration)
    assert caught.value.sonar_decision.kind is DecisionKind.DELAY


@dataclass(frozen=True)
class Declined(Exception):
    code: int


class Sealed(Exception):
    __slots__ = ()

    @property
    def sonar_decision(self):
        return "mine"

    def __setattr__(self, name, value):
        raise ValueError("sealed")


@pytest.mark.parametrize("rules", [(), (FaultRule("pay", Action.LATENCY),)])
@pytest.mark.parametrize("error", [Declined(5), Sealed("no")])
def test_an_error_that_takes_no_attribute_leaves_as_the_tool_raised_it(error, rules):
    def broken(amount):
        raise error

    async def broken_later(amount):
        raise error

    interceptor = ProxyInterceptor(FaultSpec(rules))
    with pytest.raises(type(error)) as caught:
        interceptor.call("pay", broken, amount=5)
    assert caught.value is error
    for tool in (broken, broken_later):
        with pytest.raises(type(error)) as caught:
            run(interceptor.acall("pay", tool, amount=5))
        assert caught.value is error
    if isinstance(error, Declined):
        assert error.sonar_decision.rule == (0 if rules else None)


def test_a_decision_to_alter_carries_what_it_does_to_an_output():
    decision = ProxyInterceptor(FaultSpec((FaultRule("look", Action.TRUNCATE, payload=0.5),))).on_tool_call(
        ToolCall("look")
    )
    assert decision.kind is DecisionKind.ALTER
    assert decision.value([1, 2, 3, 4]) == [1, 2]


# Which calls are hit.


def test_the_first_calls_fail_and_the_rest_do_not():
    rule = FaultRule("pay", Action.ERROR, first=2)
    assert called(FaultSpec((rule,)), times=4) == [InjectedFault, InjectedFault, {"paid": 5}, {"paid": 5}]


def hits(trial, probability=0.3, times=2000, **rule):
    spec = FaultSpec((FaultRule("pay", Action.ERROR, probability=probability, **rule),), seed=trial)
    return [kind is DecisionKind.RAISE for kind in kinds(ProxyInterceptor(spec), *["pay"] * times)]


def test_chance_hits_as_often_as_it_says_and_the_same_calls_for_the_same_seed():
    assert 500 < sum(hits(7)) < 700
    assert hits(7) == hits(7)
    assert hits(7) != hits(8)
    assert (sum(hits(7, 0.0)), sum(hits(7, 1))) == (0, 2000)


def test_a_rule_s_own_seed_holds_in_every_trial():
    assert hits(7, seed=1) == hits(8, seed=1)
    assert hits(7, seed=1) != hits(7, seed=2)


def test_two_rules_of_one_probability_hit_apart():
    rules = [FaultRule("pay", Action.LATENCY, probability=0.5), FaultRule("pay", Action.ERROR, probability=0.5)]
    found = kinds(ProxyInterceptor(FaultSpec(tuple(rules))), *["pay"] * 400)
    assert 60 < found.count(DecisionKind.RAISE) < 140


def test_threads_do_not_change_what_chance_hits(eager_switching):
    spec = FaultSpec((FaultRule("pay", Action.ERROR, probability=0.3),), seed=7)
    interceptor = ProxyInterceptor(spec)
    threads = [threading.Thread(target=kinds, args=(interceptor, *["pay"] * 250)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hit = {index for index, is_hit in enumerate(hits(7)) if is_hit}
    assert {firing.call_index for firing in interceptor.firings} == hit
    assert len(interceptor.firings) == len(hit)


class Clock:
    """Show the times given, one after the other."""

    def __init__(self, *times):
        self.times = list(times)

    def __call__(self):
        return self.times.pop(0)


def test_an_outage_lasts_from_the_first_call_for_as_long_as_it_says():
    rule = FaultRule("pay", Action.ERROR, for_s=5)
    answers = called(FaultSpec((rule,)), times=4, clock=Clock(100.0, 104.9, 105.1, 200.0))
    assert answers == [InjectedFault, InjectedFault, {"paid": 5}, {"paid": 5}]


def test_an_outage_may_begin_with_a_later_call_and_then_hits_every_one():
    rule = FaultRule("pay", Action.ERROR, when_call_index=1, for_s=5)
    answers = called(FaultSpec((rule,)), times=4, clock=Clock(100.0, 101.0, 102.0, 107.0))
    assert answers == [{"paid": 5}, InjectedFault, InjectedFault, {"paid": 5}]


def test_the_call_of_another_tool_begins_no_outage():
    interceptor = ProxyInterceptor(FaultSpec((FaultRule("pay", Action.ERROR, for_s=5),)), clock=Clock(50.0, 54.0))
    assert kinds(interceptor, "look", "pay", "pay")[1:] == [DecisionKind.RAISE] * 2


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ({"first": 0}, "first must be a whole number >= 1, got 0"),
        ({"first": 1.5}, "first must be"),
        ({"first": True}, "first must be"),
        ({"probability": 1.1}, "probability must lie between 0 and 1, got 1.1"),
        ({"probability": -0.1}, "probability must"),
        ({"probability": "often"}, "probability must"),
        ({"probability": float("nan")}, "probability must"),
        ({"for_s": 0}, "for_s must be seconds, more than 0, got 0"),
        ({"for_s": -1}, "for_s must"),
        ({"for_s": float("inf")}, "for_s must"),
        ({"for_s": "5s"}, "for_s must"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"first": 2, "for_s": 1}, "exclude each other"),
        ({"when_call_index": -1}, "when_call_index must"),
        ({"action": Action.CORRUPT, "payload": 0}, "corrupt wants how many values to spoil"),
        ({"action": Action.CORRUPT, "payload": "all"}, "corrupt wants"),
        ({"action": Action.TRUNCATE, "payload": 1}, "truncate wants the share to keep"),
        ({"action": Action.TRUNCATE, "payload": -0.5}, "truncate wants"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_when_it_is_made(condition, said):
    with pytest.raises(ValueError, match=said) as caught:
        FaultRule("pay", **{"action": Action.ERROR, **condition})
    assert "'pay'" in str(caught.value)


# Crossing to the bot's process.


def test_further_keys_stand_on_the_wire_only_when_they_are_set():
    plain = FaultRule("pay", Action.ERROR, when_call_index=2, payload="down", seed=4)
    assert serialize_faults(FaultSpec((plain,), seed=9)) == [
        {"target": "pay", "action": "error", "when_call_index": 2, "payload": "down"}
    ]
    chancy = FaultRule("pay", Action.CORRUPT, probability=0.5, for_s=2.0)
    (row,) = serialize_faults(FaultSpec((chancy,), seed=9))
    assert row == {
        "target": "pay",
        "action": "corrupt",
        "when_call_index": None,
        "payload": None,
        "probability": 0.5,
        "for_s": 2.0,
        "seed": 9,
    }
    (first,) = serialize_faults(FaultSpec((FaultRule("pay", Action.ERROR, first=3),), seed=9))
    assert (first["first"], "seed" in first) == (3, False)


def test_the_bots_process_breaks_the_calls_that_this_one_would_and_in_the_same_way():
    rules = (FaultRule("look", Action.ERROR), FaultRule("pay", Action.CORRUPT, probability=0.4))
    spec = FaultSpec(rules, seed=11)
    there = deserialize_faults(serialize_faults(spec))
    assert called(spec, times=50) == called(there, times=50)
    assert called(spec, times=50) != called(FaultSpec(rules, seed=12), times=50)


@pytest.mark.parametrize("payload", [{1, 2}, object(), b"raw", float("nan"), {"rows": [float("inf")]}])
def test_a_payload_that_is_no_json_cannot_be_written_to_the_wire(payload):
    spec = FaultSpec((FaultRule("look", Action.REPLACE_OUTPUT, payload=payload),))
    with pytest.raises(ValueError, match=r"'look'.*must be JSON"):
        serialize_faults(spec)


def test_reports_say_which_calls_were_meant():
    rule = FaultRule("pay", Action.ERROR, probability=0.25, for_s=2)
    assert rule_reports(FaultSpec((rule,)), [], {})[0].condition == "probability 0.25, for 2 s"
