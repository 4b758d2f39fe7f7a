"""The JSON that the harness and a bot's own process speak: what one end writes, the other reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sonar_eval import (
    Action,
    Delivered,
    FaultRule,
    FaultSpec,
    Fidelity,
    Form,
    FormField,
    FormSubmission,
    Seed,
    TrialContext,
)
from sonar_eval.adapter import Variant, wire

FAULTS = FaultSpec(
    (
        FaultRule("pay", Action.ERROR, when_call_index=2, payload="declined"),
        FaultRule("stock", Action.REPLACE_OUTPUT, payload={"units": [1, None, "é"]}),
        FaultRule("stock", Action.LATENCY, payload=1.5),
        FaultRule("menu", Action.TIMEOUT),
    )
)
CONTEXT = TrialContext(
    "conv-1",
    Seed({"stock": {"latte": 0}}),
    FAULTS,
    Fidelity.REAL,
    index=3,
    random_seed=99,
    variant=Variant("gpt", "polite", "Be polite.", {"provider": "openai", "temperature": 0.5}),
    params={"city": "Zürich"},
    tenant="acme",
)
DELIVERY = Form(
    "delivery", "Where to?", (FormField("name", required=True), FormField("time", "select", False, ("12:00", "15:00")))
)


def over_the_wire(body: Any) -> Any:
    return json.loads(json.dumps(body))


def test_a_setup_arrives_as_it_was_sent():
    setup = wire.read_setup(over_the_wire(wire.write_setup(CONTEXT)))
    assert setup == wire.TrialSetup(
        "conv-1",
        index=3,
        random_seed=99,
        seed={"stock": {"latte": 0}},
        params={"city": "Zürich"},
        variant=CONTEXT.variant,
        faults=FAULTS,
        tenant="acme",
    )


def test_a_setup_of_a_plain_trial_arrives_with_nothing_in_it():
    context = TrialContext("conv-1", Seed(), FaultSpec(), Fidelity.REAL)
    assert wire.read_setup(over_the_wire(wire.write_setup(context))) == wire.TrialSetup("conv-1")


def test_a_setup_may_be_no_more_than_an_id():
    assert wire.read_setup({"conversation_id": "conv-1"}) == wire.TrialSetup("conv-1")


def test_keys_of_a_newer_harness_are_left_alone():
    body = over_the_wire(wire.write_setup(CONTEXT))
    body["brand_new"] = 1
    body["variant"]["brand_new"] = 2
    body["faults"][0]["brand_new"] = 3
    assert wire.read_setup(body) == wire.read_setup(wire.write_setup(CONTEXT))


def test_a_fault_with_a_predicate_cannot_be_written():
    spec = FaultSpec((FaultRule("pay", Action.ERROR, when=lambda call: True),))
    with pytest.raises(ValueError, match=r"'pay'.*predicate"):
        wire.write_setup(TrialContext("conv-1", Seed(), spec, Fidelity.REAL))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"conversation_id": None}, "conversation_id"),
        ({"conversation_id": ""}, "conversation_id"),
        ({"conversation_id": 7}, "conversation_id"),
        ({"index": "first"}, "index"),
        ({"index": None}, "index"),
        ({"random_seed": [1]}, "random_seed"),
        ({"seed": "stock"}, "seed"),
        ({"params": [["a", 1]]}, "params"),
        ({"variant": "gpt"}, "variant"),
        ({"faults": "outage"}, "faults"),
        ({"faults": {"target": "pay", "action": "error"}}, "faults"),
        ({"faults": ["pay"]}, "faults"),
        ({"faults": [{"action": "error"}]}, "faults.*target"),
        ({"faults": [{"target": "pay"}]}, "faults.*action"),
        ({"faults": [{"target": "pay", "action": "explode"}]}, "faults.*explode"),
        ({"faults": [{"target": "pay", "action": "latency", "payload": "2s"}]}, "faults.*pay"),
    ],
)
def test_a_setup_of_the_wrong_form_is_refused_by_the_name_of_its_field(change, said):
    with pytest.raises(ValueError, match=said):
        wire.read_setup({**wire.write_setup(CONTEXT), **change})


def test_a_turn_arrives_as_it_was_sent():
    assert wire.read_turn(over_the_wire(wire.write_turn("hé\nllo", None))) == ("hé\nllo", None)


def test_a_turn_with_a_form_arrives_with_its_values():
    submission = FormSubmission("delivery", {"name": "Ada", "count": 2, "tags": ["a"]})
    assert wire.read_turn(over_the_wire(wire.write_turn("", submission))) == ("", submission)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "text"),
        ({"text": None}, "text"),
        ({"text": 7}, "text"),
        ({"text": "hi", "submission": "delivery"}, "submission"),
        ({"text": "hi", "submission": {"values": {}}}, "submission.*form"),
        ({"text": "hi", "submission": {"form": 7}}, "submission.*form"),
        ({"text": "hi", "submission": {"form": "delivery", "values": ["Ada"]}}, "values"),
    ],
)
def test_a_turn_of_the_wrong_form_is_refused_by_the_name_of_its_field(body, said):
    with pytest.raises(ValueError, match=said):
        wire.read_turn(body)


def test_what_was_delivered_arrives_with_media_and_forms():
    delivered = Delivered(("one", "zwei"), ({"url": "cat.png"},), (DELIVERY, Form("bare")))
    assert wire.read_delivered(over_the_wire(wire.write_delivered(delivered))) == delivered


def test_a_bot_may_deliver_nothing():
    assert wire.read_delivered(over_the_wire(wire.write_delivered(Delivered()))) == Delivered()
    assert wire.read_delivered({"messages": []}) == Delivered()


def test_a_form_may_leave_out_all_but_its_name():
    assert wire.read_form({"name": "f", "fields": [{"name": "x"}]}) == Form("f", "", (FormField("x"),))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "object"),
        ([], "object"),
        ("hi", "object"),
        ({}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi", None]}, "messages"),
        ({"messages": [], "forms": ["delivery"]}, "forms"),
        ({"messages": [], "forms": [{"title": "no name"}]}, "forms.*name"),
        ({"messages": [], "forms": [{"name": "f", "fields": ["x"]}]}, "forms"),
        ({"messages": [], "forms": [{"name": "f", "fields": [{"type": "text"}]}]}, "forms.*name"),
    ],
)
def test_an_answer_of_the_wrong_form_is_refused_by_the_name_of_its_field(body, said):
    with pytest.raises(ValueError, match=said):
        wire.read_delivered(body)
