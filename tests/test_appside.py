"""What a team mounts in its own app: posted faults honoured, spans under the trial's conversation."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sonar_tracing.config import RedactionSettings
from sonar_tracing.processors.identity import IdentitySpanProcessor
from sonar_tracing.redaction import RedactionPolicy
from starlette.applications import Starlette

from fakes import run
from sonar_eval import (
    Action,
    Delivered,
    FaultRule,
    FaultSpec,
    Fidelity,
    FormSubmission,
    IngestClient,
    InjectedFault,
    Seed,
    Transcript,
    TrialContext,
    deserialize_faults,
    serialize_faults,
)
from sonar_eval.adapter import Variant, wire
from sonar_eval.adapter.http import HTTPBotAdapter
from sonar_eval.adapter.process import BotProcess
from sonar_eval.appside import FaultGate, trial_routes
from sonar_eval.ingest.server import EmbeddedIngest

CAFE_KEY = "key-of-the-cafe"
CAREFUL = Variant(
    "careful",
    "house",
    "You are the assistant of Café Lumen.",
    {"provider": "offline", "model": "offline-careful", "reliability": 1.0, "habit": 1.0},
)


class Traced:
    """A provider that stamps identities on spans and keeps them, as a traced bot's does."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(IdentitySpanProcessor(RedactionPolicy(RedactionSettings(mode="allow"))))
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("bot")

    def named(self, name: str) -> list[dict[str, Any]]:
        return [dict(span.attributes or {}) for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    yield made
    made.provider.shutdown()


def stock(item: str) -> dict[str, Any]:
    return {"item": item, "units": 3}


async def pay(amount: float) -> str:
    return f"paid {amount}"


def marks(attributes: dict[str, Any]) -> dict[str, Any]:
    return {key.rpartition(".")[2]: value for key, value in attributes.items() if key.startswith("sonar.eval.fault.")}


def test_without_faults_a_gate_lets_every_call_through(traced):
    gate = FaultGate()

    async def story() -> tuple[Any, Any]:
        with traced.tracer.start_as_current_span("tool"):
            return await gate.call("stock", stock, item="latte"), await gate.call("pay", pay, amount=3.0)

    assert run(story()) == ({"item": "latte", "units": 3}, "paid 3.0")
    assert marks(traced.named("tool")[0]) == {}


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        (FaultRule("pay", Action.ERROR, payload="declined"), InjectedFault),
        (FaultRule("pay", Action.TIMEOUT), TimeoutError),
        (FaultRule("pay", Action.REPLACE_OUTPUT, payload="paid nothing"), "paid nothing"),
        (FaultRule("pay", Action.LATENCY, payload=0.01), "paid 3.0"),
    ],
)
def test_a_gate_does_what_the_posted_faults_say_and_marks_the_span(traced, rule, outcome):
    gate = FaultGate(deserialize_faults(serialize_faults(FaultSpec((rule,)))))

    async def story() -> Any:
        with traced.tracer.start_as_current_span("tool"):
            return await gate.call("pay", pay, amount=3.0)

    if isinstance(outcome, str):
        assert run(story()) == outcome
    else:
        with pytest.raises(outcome, match="pay"):
            run(story())
    assert marks(traced.named("tool")[0]) == {"action": rule.action.value, "rule": 0, "call_index": 0}


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        (FaultRule("stock", Action.ERROR, first=1), InjectedFault),
        (FaultRule("stock", Action.TRUNCATE, payload=0.5), {"item": "latte"}),
        (FaultRule("stock", Action.CORRUPT, payload=2, seed=1), {"item": "garbled"}),
    ],
)
def test_a_gate_honours_every_posted_rule_with_and_without_a_loop(traced, rule, outcome):
    posted = serialize_faults(FaultSpec((rule,), seed=5))
    gates = [FaultGate(deserialize_faults(posted)) for _ in range(2)]

    async def awaited() -> Any:
        with traced.tracer.start_as_current_span("tool"):
            return await gates[0].call("stock", stock, item="latte")

    def at_once() -> Any:
        with traced.tracer.start_as_current_span("tool"):
            return gates[1].call_now("stock", stock, item="latte")

    if outcome is InjectedFault:
        for call in (lambda: run(awaited()), at_once):
            with pytest.raises(InjectedFault, match="stock"):
                call()
    else:
        answers = [run(awaited()), at_once()]
        assert answers[0] == answers[1] != {"item": "latte", "units": 3}
        assert outcome.keys() <= answers[0].keys()
    for span in traced.named("tool"):
        assert marks(span) == {"action": rule.action.value, "rule": 0, "call_index": 0}


def test_a_gate_counts_calls_per_tool_and_hits_only_the_one_that_is_meant(traced):
    gate = FaultGate(FaultSpec((FaultRule("pay", Action.REPLACE_OUTPUT, when_call_index=1, payload="no"),)))

    async def story() -> list[Any]:
        said = []
        for _ in range(3):
            await gate.call("stock", stock, item="latte")
            with traced.tracer.start_as_current_span("tool"):
                said.append(await gate.call("pay", pay, amount=1.0))
        return said

    assert run(story()) == ["paid 1.0", "no", "paid 1.0"]
    assert [marks(span).get("call_index") for span in traced.named("tool")] == [None, 1, None]
    assert [(firing.target, firing.call_index) for firing in gate.interceptor.firings] == [("pay", 1)]


def test_a_tool_that_fails_by_itself_is_not_marked_as_faulted(traced):
    def broken() -> None:
        raise KeyError("no such order")

    async def story() -> None:
        with traced.tracer.start_as_current_span("tool"):
            await FaultGate(FaultSpec((FaultRule("pay", Action.ERROR),))).call("broken", broken)

    with pytest.raises(KeyError, match="no such order"):
        run(story())
    assert marks(traced.named("tool")[0]) == {}


def test_arguments_of_a_tool_may_have_any_name():
    def everything(**given: Any) -> dict[str, Any]:
        return given

    given = {"target": 1, "tool": 2, "self": 3, "args": 4}
    assert run(FaultGate().call("everything", everything, **given)) == given


def test_a_gate_works_where_nothing_is_traced():
    with pytest.raises(InjectedFault):
        run(FaultGate(FaultSpec((FaultRule("pay", Action.ERROR),))).call("pay", pay, amount=1.0))


class Shop:
    """A traced bot whose tools stand behind the gate of its trial."""

    def __init__(self, traced: Traced, setup: wire.TrialSetup) -> None:
        self.traced = traced
        self.gate = FaultGate(setup.faults)

    async def send(self, text: str, submission: FormSubmission | None) -> Delivered:
        with self.traced.tracer.start_as_current_span("turn"):
            await asyncio.sleep(0.01)
            with self.traced.tracer.start_as_current_span("tool"):
                try:
                    return Delivered((await self.gate.call("pay", pay, amount=float(text)),))
                except InjectedFault as fault:
                    return Delivered((f"sorry, {fault}",))

    async def close(self) -> None:
        with self.traced.tracer.start_as_current_span("close"):
            return


def drive(traced: Traced) -> HTTPBotAdapter:
    async def open_shop(setup: wire.TrialSetup) -> Shop:
        with traced.tracer.start_as_current_span("open"):
            return Shop(traced, setup)

    app = Starlette(routes=trial_routes(open_shop))
    return HTTPBotAdapter("http://bot.test" + wire.DEFAULT_PREFIX, transport=httpx.ASGITransport(app=app))


def context(conversation_id: str, *rules: FaultRule, **more: Any) -> TrialContext:
    return TrialContext(conversation_id, Seed(more.pop("seed", {})), FaultSpec(rules), Fidelity.REAL, **more)


def test_everything_a_turn_does_is_traced_under_its_conversation_and_tenant(traced):
    adapter = drive(traced)

    async def trial(name: str) -> None:
        session = await adapter.setup_trial(context(name, tenant=f"tenant of {name}"))
        for amount in ("1", "2"):
            await adapter.send(session, amount)
        await adapter.teardown_trial(session)

    async def story() -> None:
        await asyncio.gather(*(trial(name) for name in "abc"))

    run(story())
    for name in ("open", "turn", "tool"):
        found = [(span["sonar.conversation.id"], span["sonar.tenant.id"]) for span in traced.named(name)]
        count = 1 if name == "open" else 2
        assert sorted(found) == sorted((letter, f"tenant of {letter}") for letter in "abc" for _ in range(count))


def test_faults_of_one_trial_do_not_touch_another(traced):
    adapter = drive(traced)

    async def story() -> list[Delivered]:
        hit = await adapter.setup_trial(context("hit", FaultRule("pay", Action.ERROR, payload="declined")))
        spared = await adapter.setup_trial(context("spared"))
        return [await adapter.send(session, "1") for session in (hit, spared)]

    said = [delivered.messages[0] for delivered in run(story())]
    assert said == ["sorry, injected error for pay: declined", "paid 1.0"]
    assert {span["sonar.conversation.id"]: bool(marks(span)) for span in traced.named("tool")} == {
        "hit": True,
        "spared": False,
    }


@pytest.fixture(scope="module")
def ingest() -> Iterator[EmbeddedIngest]:
    with EmbeddedIngest("acme") as running:
        yield running


@pytest.fixture(scope="module")
def cafe_url(ingest: EmbeddedIngest) -> Iterator[str]:
    """Start the café's bot in a process of its own, which by itself sends spans once an hour."""
    environment = {
        "SONAR_ENDPOINT": ingest.base_url,
        "SONAR_API_KEY": ingest.api_key,
        "SONAR_SCHEDULE_DELAY_MS": "3600000",
        wire.KEY_VARIABLE: CAFE_KEY,
    }
    process = BotProcess([sys.executable, "-m", "sonar_eval.demo", "--port", "{port}"], environment=environment)
    run(process.start())
    yield process.base_url + wire.DEFAULT_PREFIX
    run(process.stop())


@pytest.fixture
def cafe(cafe_url: str) -> HTTPBotAdapter:
    return HTTPBotAdapter(cafe_url, name="cafe", key=CAFE_KEY)


def held(cafe: HTTPBotAdapter, ingest: EmbeddedIngest, ctx: TrialContext, *texts: str) -> tuple[list[str], Transcript]:
    """Hold a conversation with the real bot and fetch its trace, once, right after the end."""

    async def story() -> tuple[list[str], Transcript]:
        session = await cafe.setup_trial(ctx)
        said = [message for text in texts for message in (await cafe.send(session, text)).messages]
        await cafe.teardown_trial(session)
        client = IngestClient(ingest.base_url, ingest.tenant, api_key=ingest.api_key)
        return said, await client.fetch(ctx.conversation_id)

    return run(story())


def test_the_whole_trace_is_there_as_soon_as_the_trial_is_torn_down(cafe, ingest):
    ctx = context("flushed", variant=CAREFUL, tenant="acme")
    said, transcript = held(cafe, ingest, ctx, "A small latte, please.", "Yes, go ahead.")
    assert "All paid" in said[-1]
    names = [call.name for call in transcript.tool_calls]
    assert names[-1] == "payment_api"
    assert "order_create" in names
    assert all(call.success for call in transcript.tool_calls)
    assert len(transcript.runs) == 2
    assert transcript.tokens_known


def test_a_posted_fault_breaks_the_tool_in_the_bots_process_and_shows_in_the_trace(cafe, ingest):
    rule = FaultRule("payment_api", Action.ERROR, when_call_index=0, payload="terminal offline")
    ctx = context("faulted", rule, variant=CAREFUL, tenant="acme")
    _, transcript = held(cafe, ingest, ctx, "A small latte, please.", "Yes, go ahead.")
    paid = [call for call in transcript.tool_calls if call.name == "payment_api"]
    assert paid[0].fault == {"action": "error", "rule": 0, "call_index": 0}
    assert (paid[0].success, paid[0].error_type) == (False, "InjectedFault")
    assert paid[0].error_message == "injected error for payment_api: terminal offline"
    assert [(call.success, call.fault) for call in paid[1:]] == [(True, None)]
    assert [call.name for call in transcript.tool_calls if call.fault] == ["payment_api"]


def test_a_replaced_output_reaches_the_bot_and_shows_in_the_trace(cafe, ingest):
    rule = FaultRule("stock_check", Action.REPLACE_OUTPUT, payload={"item": "latte", "in_stock": 0})
    ctx = context("replaced", rule, variant=CAREFUL, tenant="acme")
    said, transcript = held(cafe, ingest, ctx, "A small latte, please.")
    assert "sold out" in said[0]
    (checked,) = [call for call in transcript.tool_calls if call.name == "stock_check"]
    assert checked.result == {"item": "latte", "in_stock": 0}
    assert checked.success
    assert checked.fault is not None
    assert checked.fault["action"] == "replace_output"


def test_the_seed_of_a_trial_is_the_bots_world(cafe, ingest):
    ctx = context("seeded", variant=CAREFUL, tenant="acme", seed={"stock": {"latte": 0}})
    said, _ = held(cafe, ingest, ctx, "A small latte, please.")
    assert "sold out" in said[0]


def test_trials_at_the_same_time_keep_their_spans_apart(cafe, ingest):
    async def trial(name: str) -> list[str]:
        session = await cafe.setup_trial(context(name, variant=CAREFUL, tenant="acme"))
        await cafe.send(session, "A small latte, please.")
        await cafe.teardown_trial(session)
        client = IngestClient(ingest.base_url, ingest.tenant, api_key=ingest.api_key)
        transcript = await client.fetch(name)
        return [call.name for call in transcript.tool_calls]

    async def story() -> list[list[str]]:
        return await asyncio.gather(*(trial(f"parallel {n}") for n in range(6)))

    found = run(story())
    assert found[0]
    assert all(names == found[0] for names in found)


def test_the_bots_process_refuses_whoever_lacks_the_key(cafe_url):
    stranger = HTTPBotAdapter(cafe_url, key="guess")
    with pytest.raises(ConnectionError, match="401"):
        run(stranger.setup_trial(context("stolen")))


def test_tearing_down_is_quick_when_there_is_nothing_to_send(cafe):
    started = time.monotonic()
    run(cafe.teardown_trial(run(cafe.setup_trial(context("idle", variant=CAREFUL)))))
    assert time.monotonic() - started < 5
