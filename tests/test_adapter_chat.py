"""A bot made of a chat model and Python functions: its tools, its steps, and the spans it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, Optional

import pytest
import sonar_tracing
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from sonar_tracing.config import RedactionSettings
from sonar_tracing.processors.identity import IdentitySpanProcessor
from sonar_tracing.redaction import RedactionPolicy

from fakes import run
from sonar_eval import (
    Action,
    FaultRule,
    FaultSpec,
    IngestClient,
    LLMConfig,
    Message,
    ProxyInterceptor,
    ScriptedClient,
)
from sonar_eval.adapter.chat import ChatAgent, Tool, tool
from sonar_eval.errors import LLMAnswerError, LLMTransportError
from sonar_eval.ingest.server import EmbeddedIngest
from sonar_eval.llm import ChatReply, ToolRequest, Usage

CONFIG = LLMConfig("m-1", temperature=0.25, max_tokens=64)


def price(item: str, size: Literal["small", "large"] = "small") -> dict[str, Any]:
    """Look up a price.

    More about it than the model needs to know.
    """
    if item == "gold":
        raise LookupError("gold is not on the menu")
    return {"item": item, "size": size, "price": 4.1}


async def brew(cups: int) -> str:
    """Brew coffee,
    some cups of it.
    """
    return f"{cups} cups"


class Traced:
    """A tracer whose spans are kept."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("bot")

    def spans(self, operation: str) -> list[ReadableSpan]:
        """List the finished spans of one operation, in the order they ended."""
        return [
            span
            for span in self.exporter.get_finished_spans()
            if (span.attributes or {}).get("gen_ai.operation.name") == operation
        ]

    def one(self, operation: str) -> dict[str, Any]:
        (span,) = self.spans(operation)
        return dict(span.attributes or {})


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    yield made
    made.provider.shutdown()


def wants(name: str, /, call_id: str = "call_1", error: str | None = None, **arguments: Any) -> ChatReply:
    return ChatReply("", (ToolRequest(call_id, name, arguments, error),), Usage(10, 2), "tool_calls", "m-1-2026")


def make_agent(
    replies: Any, traced: Traced, *, tools: list[Tool] | None = None, faults: tuple[FaultRule, ...] = (), **more: Any
) -> tuple[ChatAgent, ScriptedClient]:
    client = ScriptedClient(replies)
    agent = ChatAgent(
        client,
        CONFIG,
        system="be kind",
        tools=[tool(price), tool(brew)] if tools is None else tools,
        name="cafe",
        interceptor=ProxyInterceptor(FaultSpec(faults)),
        tracer=traced.tracer,
        **more,
    )
    return agent, client


def schema(function: Any) -> dict[str, Any]:
    return tool(function).schema.parameters


def test_a_tool_is_described_by_its_name_docstring_and_signature():
    made = tool(price).schema
    assert (made.name, made.description) == ("price", "Look up a price.")
    assert made.parameters == {
        "type": "object",
        "properties": {"item": {"type": "string"}, "size": {"type": "string", "enum": ["small", "large"]}},
        "required": ["item"],
    }


def test_a_docstring_over_two_lines_is_told_in_one():
    assert tool(brew).schema.description == "Brew coffee, some cups of it."


def test_a_tool_may_be_given_another_name():
    assert tool(price, name="menu_lookup").schema.name == "menu_lookup"


def test_a_method_is_a_tool_without_its_self():
    class Shop:
        def open(self, day: str) -> bool:
            return day != "sunday"

    assert list(schema(Shop().open)["properties"]) == ["day"]


def test_a_function_without_parameters_or_docstring_is_a_tool():
    def bell() -> None: ...

    assert tool(bell).schema.description == ""
    assert schema(bell) == {"type": "object", "properties": {}, "required": []}


def test_every_supported_annotation_has_its_json_type():
    def everything(
        text: str,
        whole: int,
        real: float,
        flag: bool,
        names: list[str],
        rows: list[dict[str, int]],
        table: dict[str, Any],
        bare_list: list,
        bare_dict: dict,
        choice: Literal["a", "b"],
        number: Literal[1, 2],
        either: str | None,
        older: Optional[int],  # noqa: UP045
        picks: list[Literal["x"]] | None = None,
        plain="x",
    ) -> None: ...

    found = schema(everything)
    assert found["properties"] == {
        "text": {"type": "string"},
        "whole": {"type": "integer"},
        "real": {"type": "number"},
        "flag": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "rows": {"type": "array", "items": {"type": "object"}},
        "table": {"type": "object"},
        "bare_list": {"type": "array"},
        "bare_dict": {"type": "object"},
        "choice": {"type": "string", "enum": ["a", "b"]},
        "number": {"type": "integer", "enum": [1, 2]},
        "either": {"type": "string"},
        "older": {"type": "integer"},
        "picks": {"type": "array", "items": {"type": "string", "enum": ["x"]}},
        "plain": {"type": "string"},
    }
    assert set(found["properties"]) - set(found["required"]) == {"picks", "plain"}


class Money: ...


@pytest.mark.parametrize("hint", [Money, set[str], str | int, tuple[int, int], list[Money], Literal["a", 1], complex])
def test_an_annotation_without_a_json_type_is_refused_by_its_parameter(hint):
    def pay(amount: Any) -> None: ...

    pay.__annotations__["amount"] = hint
    with pytest.raises(TypeError, match="'amount'"):
        tool(pay)


def test_a_parameter_that_has_no_name_of_its_own_is_refused():
    def many(*items: str) -> None: ...

    def loose(**options: str) -> None: ...

    def placed(item: str, /) -> None: ...

    for function, name in ((many, "items"), (loose, "options"), (placed, "item")):
        with pytest.raises(TypeError, match=f"'{name}'"):
            tool(function)


def test_an_answer_without_tools_is_given_at_once(traced):
    agent, client = make_agent(["Hello."], traced)
    assert run(agent.reply("hi")) == "Hello."
    assert agent.messages == [Message("user", "hi"), Message("assistant", "Hello.")]
    (request,) = client.requests
    assert (request.config, request.system) == (CONFIG, "be kind")
    assert [entry.name for entry in request.tools] == ["price", "brew"]


def test_tools_run_until_the_model_answers_and_it_is_told_what_they_gave(traced):
    agent, client = make_agent([wants("price", item="latte"), wants("brew", "call_2", cups=2), "Done."], traced)
    assert run(agent.reply("two lattes")) == "Done."
    results = [message for message in client.requests[-1].messages if message.role == "tool"]
    assert [(message.tool_call_id, message.name) for message in results] == [("call_1", "price"), ("call_2", "brew")]
    assert json.loads(results[0].content) == {"item": "latte", "size": "small", "price": 4.1}
    assert results[1].content == "2 cups"


def test_several_calls_of_one_step_are_all_answered(traced):
    both = ChatReply("", (ToolRequest("a", "brew", {"cups": 1}), ToolRequest("b", "brew", {"cups": 2})))
    agent, _ = make_agent([both, "Done."], traced)
    assert run(agent.reply("hi")) == "Done."
    told = [(message.tool_call_id, message.content) for message in agent.messages if message.role == "tool"]
    assert told == [("a", "1 cups"), ("b", "2 cups")]


def test_a_conversation_goes_on_over_turns(traced):
    agent, client = make_agent(["One.", "Two."], traced)
    assert [run(agent.reply("a")), run(agent.reply("b"))] == ["One.", "Two."]
    assert [message.content for message in client.requests[1].messages] == ["a", "One.", "b"]


def told_of(agent: ChatAgent) -> dict[str, Any]:
    (message,) = [message for message in agent.messages if message.role == "tool"]
    told: dict[str, Any] = json.loads(message.content)
    return told


def circular() -> Any:
    """Give back what cannot be written."""
    result: list[Any] = []
    result.append(result)
    return result


@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (wants("price", item="gold"), "LookupError", "gold is not on the menu"),
        (wants("price"), "TypeError", "item"),
        (wants("brew", cups=1, spoons=2), "TypeError", "spoons"),
        (wants("tip", amount=3), "LookupError", "there is no tool 'tip'; there are price, brew, circular"),
        (wants("price", error="arguments are no JSON object: {"), "ValueError", "no JSON object"),
        (wants("circular"), "ValueError", "Circular"),
    ],
)
def test_a_tool_that_fails_tells_the_model_and_marks_its_span(traced, reply, error, said):
    agent, _ = make_agent([reply, "Sorry."], traced, tools=[tool(price), tool(brew), tool(circular)])
    assert run(agent.reply("hi")) == "Sorry."
    assert said in told_of(agent)["error"]
    assert error in told_of(agent)["error"]
    (span,) = traced.spans("execute_tool")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == error
    assert [event.name for event in span.events] == ["exception"]
    assert "gen_ai.tool.call.result" not in (span.attributes or {})
    (turn,) = traced.spans("invoke_agent")
    assert turn.status.status_code is not StatusCode.ERROR


def test_a_result_of_any_value_is_written_down(traced):
    def odd() -> Any:
        return {"money": Money, "none": None}

    agent, _ = make_agent([wants("odd"), "Done."], traced, tools=[tool(odd)])
    assert run(agent.reply("hi")) == "Done."
    assert told_of(agent)["none"] is None


def test_a_model_reads_what_a_tool_gives_or_fails_with_in_the_letters_it_has(traced):
    def menu() -> Any:
        return {"größe": "große Tasse 日本"}

    def order() -> Any:
        raise ValueError("kein Kännchen")

    agent, client = make_agent([wants("menu"), wants("order"), "Done."], traced, tools=[tool(menu), tool(order)])
    run(agent.reply("hi"))
    told = [message.content for message in client.requests[-1].messages if message.role == "tool"]
    assert told == ['{"größe": "große Tasse 日本"}', '{"error": "ValueError: kein Kännchen"}']
    results = [(span.attributes or {}).get("gen_ai.tool.call.result") for span in traced.spans("execute_tool")]
    assert results == [told[0], None]


def test_half_a_surrogate_pair_in_a_result_costs_the_span_nothing(traced):
    def broken() -> Any:
        return {"name": "Zoë \ud83d"}

    agent, _ = make_agent([wants("broken"), "Done."], traced, tools=[tool(broken)])
    run(agent.reply("hi"))
    (span,) = traced.spans("execute_tool")
    sent = str((span.attributes or {})["gen_ai.tool.call.result"]).encode()
    assert json.loads(sent) == {"name": "Zoë \ud83d"}


@pytest.mark.parametrize(
    ("rule", "told", "error"),
    [
        (FaultRule("brew", Action.ERROR, payload="out of beans"), "out of beans", "InjectedFault"),
        (FaultRule("brew", Action.TIMEOUT), "TimeoutError", "TimeoutError"),
        (FaultRule("brew", Action.REPLACE_OUTPUT, payload={"cups": 0}), '{"cups": 0}', None),
        (FaultRule("brew", Action.LATENCY, payload=0.01), "2 cups", None),
    ],
)
def test_a_fault_reaches_the_model_and_marks_the_span_of_the_call(traced, rule, told, error):
    other = FaultRule("price", Action.ERROR)
    agent, _ = make_agent([wants("brew", cups=2), "Hm."], traced, faults=(other, rule))
    assert run(agent.reply("hi")) == "Hm."
    (message,) = [message for message in agent.messages if message.role == "tool"]
    assert told in message.content
    attributes = traced.one("execute_tool")
    marks = {key.rpartition(".")[2]: value for key, value in attributes.items() if key.startswith("sonar.eval.fault.")}
    assert marks == {"action": rule.action.value, "rule": 1, "call_index": 0}
    assert attributes.get("error.type") == error


def test_only_the_call_that_was_hit_is_marked(traced):
    rule = FaultRule("brew", Action.ERROR, when_call_index=1)
    calls = [wants("brew", str(n), cups=n) for n in range(3)]
    agent, _ = make_agent([*calls, "Done."], traced, faults=(rule,))
    run(agent.reply("hi"))
    marked = ["sonar.eval.fault.call_index" in (span.attributes or {}) for span in traced.spans("execute_tool")]
    assert marked == [False, True, False]


def test_a_model_that_never_stops_calling_tools_is_stopped_without_an_answer(traced):
    agent, client = make_agent([wants("brew", cups=1)], traced, max_steps=3)
    assert run(agent.reply("hi")) == ""
    assert len(client.requests) == 3
    assert json.loads(traced.one("invoke_agent")["gen_ai.output.messages"]) == []


def test_an_error_of_the_model_comes_through_as_it_is(traced):
    agent, _ = make_agent([LLMTransportError("the provider is down")], traced)
    with pytest.raises(LLMTransportError, match="the provider is down"):
        run(agent.reply("hi"))
    (span,) = traced.spans("chat")
    assert span.status.status_code is StatusCode.ERROR


def test_a_turn_leaves_spans_of_the_current_genai_names(traced):
    agent, _ = make_agent(
        [wants("price", item="latte"), ChatReply("4.10, please.", usage=Usage(20, 5))], traced, provider="vllm"
    )
    run(agent.reply("how much?"))
    names = [span.name for span in traced.exporter.get_finished_spans()]
    assert names == ["chat m-1", "execute_tool price", "chat m-1", "invoke_agent cafe"]

    turn = traced.one("invoke_agent")
    assert (turn["gen_ai.agent.name"], turn["gen_ai.provider.name"]) == ("cafe", "vllm")
    assert json.loads(turn["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "4.10, please."}]}
    ]

    call = traced.one("execute_tool")
    assert call["gen_ai.tool.name"] == "price"
    assert call["gen_ai.tool.call.id"] == "call_1"
    assert call["gen_ai.tool.type"] == "function"
    assert json.loads(call["gen_ai.tool.call.arguments"]) == {"item": "latte"}
    assert json.loads(call["gen_ai.tool.call.result"])["price"] == 4.1

    first, second = (dict(span.attributes or {}) for span in traced.spans("chat"))
    assert (first["gen_ai.provider.name"], first["gen_ai.request.model"]) == ("vllm", "m-1")
    assert (first["gen_ai.request.temperature"], first["gen_ai.request.max_tokens"]) == (0.25, 64)
    assert (first["gen_ai.usage.input_tokens"], first["gen_ai.usage.output_tokens"]) == (10, 2)
    assert first["gen_ai.response.model"] == "m-1-2026"
    assert list(first["gen_ai.response.finish_reasons"]) == ["tool_calls"]
    assert list(second["gen_ai.response.finish_reasons"]) == ["stop"]
    assert json.loads(first["gen_ai.system_instructions"]) == [{"type": "text", "content": "be kind"}]
    assert json.loads(first["gen_ai.output.messages"])[0]["parts"] == [
        {"type": "tool_call", "id": "call_1", "name": "price", "arguments": {"item": "latte"}}
    ]
    told = json.loads(second["gen_ai.input.messages"])[-1]
    assert (told["role"], told["parts"][0]["type"], told["parts"][0]["id"]) == ("tool", "tool_call_response", "call_1")


def test_what_a_model_took_for_no_answer_stands_in_its_span(traced):
    refused = LLMAnswerError("refused")
    refused.usage = Usage(20, 5, cached_tokens=15)
    agent, _ = make_agent([refused], traced)
    with pytest.raises(LLMAnswerError):
        run(agent.reply("hi"))
    told = {key: value for key, value in traced.one("chat").items() if key.startswith("gen_ai.usage")}
    assert told == {
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 15,
    }


def test_the_steps_of_a_turn_are_children_of_its_agent_span(traced):
    agent, _ = make_agent([wants("brew", cups=1), "Done."], traced)
    run(agent.reply("hi"))
    (turn,) = traced.spans("invoke_agent")
    steps = [*traced.spans("chat"), *traced.spans("execute_tool")]
    assert len(steps) == 3
    assert {span.parent.span_id for span in steps if span.parent} == {turn.context.span_id}


def test_tokens_a_model_does_not_count_leave_no_attribute(traced):
    agent, _ = make_agent(["Hello."], traced)
    run(agent.reply("hi"))
    assert not [key for key in traced.one("chat") if key.startswith("gen_ai.usage")]


@pytest.mark.parametrize(
    ("used", "known"), [(Usage(20, 5), (40, 9)), (Usage(20, None), (40, None)), (Usage(), (None, None))]
)
def test_a_conversation_is_read_back_from_the_ingest_as_it_was_held(used, known):
    rule = FaultRule("brew", Action.ERROR, payload="out of beans")
    with EmbeddedIngest("acme") as ingest:
        exporter = OTLPSpanExporter(
            endpoint=ingest.base_url + "/v1/traces", headers={"x-sonar-api-key": ingest.api_key}
        )
        traced = Traced()
        traced.provider.add_span_processor(IdentitySpanProcessor(RedactionPolicy(RedactionSettings(mode="allow"))))
        traced.provider.add_span_processor(SimpleSpanProcessor(exporter))
        answer = ChatReply("Sorry.", usage=used)
        agent, _ = make_agent([wants("price", item="latte"), wants("brew", cups=2), answer], traced, faults=(rule,))
        with sonar_tracing.identity(conversation_id="conv-1", tenant_id="acme"):
            run(agent.reply("hi"))
        traced.provider.shutdown()
        client = IngestClient(ingest.base_url, "acme", api_key=ingest.api_key)
        transcript = run(client.pull("conv-1", delay=0))
    looked, brewed = transcript.tool_calls
    assert (looked.name, looked.success, looked.args) == ("price", True, {"item": "latte"})
    assert looked.result == {"item": "latte", "size": "small", "price": 4.1}
    assert (brewed.name, brewed.success, brewed.error_type) == ("brew", False, "InjectedFault")
    assert brewed.error_message == "injected error for brew: out of beans"
    assert brewed.fault == {"action": "error", "rule": 0, "call_index": 0}
    assert looked.fault is None
    assert transcript.known_tokens() == known
    assert transcript.tokens() == (20 + (used.input_tokens or 0), 4 + (used.output_tokens or 0))
