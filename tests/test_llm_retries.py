"""How clients ask again: when, how long after, how often; and what they learn from a refusal."""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
import random
import socket
import threading
import time

import httpx
import pytest

from fakes import run
from providing import Hang, Refused, providing, said
from sonar_eval import ConversationLog, Grader, Transcript, Turn
from sonar_eval.errors import LLMAnswerError, LLMError, LLMRequestError, LLMSilenceError, LLMTransportError
from sonar_eval.llm import (
    AnthropicClient,
    LLMConfig,
    Message,
    Meter,
    OpenAIClient,
    RetryPolicy,
    ToolRequest,
    ToolSchema,
    Usage,
)
from sonar_eval.llm.answer import asked_wait_s
from sonar_eval.usage import Spend

CONFIG = LLMConfig("r-1", temperature=0.0, max_tokens=64)
HELLO = [Message("user", "hello")]
URL = "http://models.test/v1"


class Provider:
    """Answer with `replies` in order, the last one for ever; a reply is a response, an exception or a function."""

    def __init__(self, *replies) -> None:
        self.replies = list(replies)
        self.bodies: list[dict] = []
        self.slept: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(json.loads(request.content))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if callable(reply):
            reply = reply(self.bodies[-1])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def openai(self, **settings) -> OpenAIClient:
        return OpenAIClient(URL, "key", sleep=self.sleep, transport=httpx.MockTransport(self), **settings)

    def anthropic(self, **settings) -> AnthropicClient:
        return AnthropicClient("key", URL, sleep=self.sleep, transport=httpx.MockTransport(self), **settings)


def ok(content="hi", finish="stop", **message):
    body = {"choices": [{"message": {"content": content, **message}, "finish_reason": finish}], "usage": {}}
    return httpx.Response(200, json=body)


def message(*blocks, stop="end_turn"):
    return httpx.Response(200, json={"content": list(blocks), "stop_reason": stop, "usage": {"input_tokens": 3}})


def limited(status=429, **headers):
    return httpx.Response(status, json={"error": {"message": "slow down"}}, headers=headers)


def ask(client):
    return run(client.complete(CONFIG, "be kind", HELLO))


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry-after": "1"}, 1, 2),
        ({"retry-after-ms": "1500"}, 1.5, 2.5),
        ({}, 0, 1),
        ({"retry-after": "soon"}, 0, 1),
        ({"retry-after": "-5"}, 0, 1),
        ({"retry-after": "nan"}, 0, 1),
    ],
)
def test_a_rate_limit_is_waited_for_as_the_provider_asks(headers, least, most):
    provider = Provider(limited(**headers), ok())
    assert ask(provider.openai()) == "hi"
    (waited,) = provider.slept
    assert least <= waited <= most


def test_a_date_is_a_way_to_ask_too():
    date = email.utils.formatdate(time.time() + 2, usegmt=True)
    provider = Provider(limited(**{"retry-after": date}), ok())
    ask(provider.openai())
    assert 0.5 <= provider.slept[0] <= 4


@pytest.mark.parametrize("asked", ["0", "0.0", "Wed, 01 Jan 2020 00:00:00 GMT"])
def test_waits_grow_against_a_provider_that_says_at_once_with_every_rate_limit(asked):
    provider = Provider(limited(**{"retry-after": asked}))
    client = provider.openai()
    client._wire._chance = random.Random(1)
    with pytest.raises(LLMTransportError):
        ask(client)
    assert len(provider.slept) == 20
    assert sum(provider.slept) > 60


@pytest.mark.parametrize("text", ["Mon, 99 Foo", "", "1e999", "soon"])
def test_a_date_that_is_none_asks_for_nothing(text):
    assert asked_wait_s({"retry-after": text}) is None


def test_a_wait_that_is_too_long_is_cut_and_told():
    provider = Provider(limited(**{"retry-after": "86400"}))
    with pytest.raises(LLMTransportError, match=r"asks to wait 86400 s, and at most 5 s are waited"):
        ask(provider.openai(retry=RetryPolicy(max_retries=1, longest_asked_s=5)))
    assert provider.slept[0] <= 6


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_n_retries_are_n_plus_one_requests_at_most(retries):
    provider = Provider(limited(503))
    with pytest.raises(LLMTransportError, match="HTTP 503"):
        ask(provider.openai(retry=RetryPolicy(max_retries=retries)))
    assert len(provider.bodies) == retries + 1


def test_a_provider_that_is_down_is_given_up_sooner_than_one_that_is_busy():
    provider = Provider(limited(500), limited(429), limited(500))
    with pytest.raises(LLMTransportError, match=r"HTTP 500.*asked 5 times") as caught:
        ask(provider.openai(retry=RetryPolicy(max_retries=20, max_failures=2)))
    assert caught.value.retryable
    busy = Provider(*[limited(429)] * 15, ok())
    assert ask(busy.openai(retry=RetryPolicy(max_retries=20, max_failures=2))) == "hi"


def test_a_failure_after_many_rate_limits_is_waited_for_like_a_first_one():
    provider = Provider(*[limited(**{"retry-after-ms": "1"})] * 10, limited(500), ok())
    ask(provider.openai())
    assert provider.slept[-1] <= 1


@pytest.mark.parametrize(
    "trouble",
    [
        limited(500),
        limited(502),
        limited(529),
        httpx.RemoteProtocolError("Server disconnected without sending a response."),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout(""),
        httpx.Response(400, json={"error": {"type": "overloaded_error", "message": "busy"}}),
        httpx.Response(200, json={"error": {"code": 429, "message": "busy"}}),
        httpx.Response(200, json={"error": {"code": "503", "message": "busy"}}),
        httpx.Response(502, text="<html><h1>Bad gateway</h1></html>"),
        httpx.Response(503, headers={"retry-after": "1"}),
        limited(408),
        limited(409),
        httpx.Response(200, text='{"choices": [{"message": {"content": "hal'),
    ],
)
def test_what_may_pass_is_asked_again(trouble):
    provider = Provider(trouble, ok())
    assert ask(provider.openai()) == "hi"
    assert len(provider.bodies) == 2


def broken(error, content="", **more):
    choice = {"error": error, "message": {"role": "assistant", "content": content}, "finish_reason": "error"}
    return httpx.Response(200, json={"choices": [choice], **more})


UPSTREAM = [
    broken({"code": 502, "message": "upstream died"}),
    broken({"code": "503", "message": "upstream died"}),
    broken({"code": 502, "message": "upstream died"}, "Half an ans"),
    broken({"message": "upstream died"}),
    broken("upstream died"),
    broken(None),
    httpx.Response(200, json={"error": {"code": 500, "message": "upstream died"}}),
    httpx.Response(200, json={"error": {"code": 504, "message": "upstream died"}}),
    httpx.Response(200, json={"error": {"code": "502", "message": "upstream died"}}),
    httpx.Response(200, json={"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}),
    httpx.Response(200, json={"type": "error", "error": {"type": "timeout_error", "message": "too slow"}}),
]


@pytest.mark.parametrize("trouble", UPSTREAM)
@pytest.mark.parametrize("make", ["openai", "anthropic"])
def test_an_upstream_error_in_a_200_is_asked_again_like_its_status(make, trouble):
    good = ok() if make == "openai" else message({"type": "text", "text": "hi"})
    provider = Provider(trouble, good)
    reply = run(getattr(provider, make)().chat(CONFIG, "", HELLO, ()))
    assert (reply.text, len(provider.bodies), len(provider.slept)) == ("hi", 2, 1)


@pytest.mark.parametrize("trouble", UPSTREAM)
def test_an_upstream_error_that_stays_is_the_providers_and_no_empty_answer(trouble):
    provider = Provider(trouble)
    with pytest.raises(LLMTransportError, match=r"HTTP 200.*error.*\(asked 3 times\)") as caught:
        run(provider.openai(retry=RetryPolicy(2)).chat(CONFIG, "", HELLO, ()))
    assert caught.value.retryable
    assert caught.value.usage is None


@pytest.mark.parametrize("code", [400, 402, 403, "content_policy_violation", "insufficient_quota"])
def test_an_error_in_a_choice_that_will_not_pass_is_asked_once_and_quoted(code):
    provider = Provider(broken({"code": code, "message": "not allowed"}))
    with pytest.raises(LLMAnswerError, match=r"answered an error.*not allowed"):
        run(provider.openai().chat(CONFIG, "", HELLO, ()))
    assert len(provider.bodies) == 1


@pytest.mark.parametrize("status", [400, 404])
def test_a_refusal_that_is_called_an_api_error_is_a_refusal(status):
    error = {"type": "api_error", "message": "model not found", "code": 500}
    provider = Provider(httpx.Response(status, json={"error": error}))
    with pytest.raises(LLMRequestError, match="model not found"):
        ask(provider.openai())
    assert len(provider.bodies) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_pass_is_asked_once(status):
    provider = Provider(limited(status))
    with pytest.raises(
        LLMRequestError, match=f"r-1 at http://models.test/v1/chat/completions answered HTTP {status}"
    ) as caught:
        ask(provider.openai())
    assert not caught.value.retryable
    assert len(provider.bodies) == 1


def test_waits_grow_and_no_two_clients_wait_alike():
    policy = RetryPolicy(max_retries=6)
    ones, others = random.Random(1), random.Random(2)
    waits = [policy.wait_s(attempt, None, ones) for attempt in range(7)]
    assert waits != [policy.wait_s(attempt, None, others) for attempt in range(7)]
    assert all(wait <= min(30, 2**attempt) for attempt, wait in enumerate(waits))
    assert policy.wait_s(0, 1.0, ones) != policy.wait_s(0, 1.0, others)


def test_an_answer_used_up_by_thinking_is_no_answer_and_is_not_paid_for_twice():
    for thinking in ({"reasoning_content": "let me think [[END]]"}, {"reasoning": "hm"}, {}):
        provider = Provider(ok(None if thinking else "", "length", **thinking))
        with pytest.raises(LLMAnswerError, match=r"cut off before it began .*'length', max_tokens=64") as caught:
            ask(provider.openai())
        assert "let me think" not in str(caught.value)
        assert len(provider.bodies) == 1


def test_silence_is_asked_about_once_more():
    provider = Provider(ok(None), ok("there"))
    assert ask(provider.openai()) == "there"
    provider = Provider(ok(None))
    with pytest.raises(LLMSilenceError):
        ask(provider.openai())
    assert len(provider.bodies) == 2


def test_an_answer_that_is_cut_off_is_returned_and_marked():
    completion = ask(Provider(ok("half a sent", "length")).openai())
    assert (completion, completion.finish_reason) == ("half a sent", "length")


def picky(body):
    for name, code in (("temperature", "unsupported_value"), ("max_tokens", "unsupported_parameter")):
        if name in body:
            error = {"message": f"Unsupported: '{name}'", "code": code, "param": name}
            return httpx.Response(400, json={"error": error})
    return ok()


def test_what_a_model_does_not_take_is_learnt_once_and_told_once(caplog):
    provider = Provider(picky)
    client = provider.openai()
    with caplog.at_level(logging.WARNING, "sonar_eval"):
        assert [ask(client) for _ in range(3)] == ["hi"] * 3
    assert len(provider.bodies) == 5
    assert "temperature" not in provider.bodies[-1]
    assert provider.bodies[-1]["max_completion_tokens"] == 64
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert all("r-1" in line for line in told)
    assert "temperature" in told[0]
    assert "max_tokens" in told[1]


def test_requests_that_are_refused_side_by_side_are_all_asked_again(caplog):
    everybody_asked = threading.Barrier(5)

    def answer(body):
        if "temperature" in body:
            everybody_asked.wait(10)
            error = {"message": "no", "code": "unsupported_value", "param": "temperature"}
            raise Refused(400, json.dumps({"error": error}))
        return "hi"

    async def story(client):
        return await asyncio.gather(*(client.complete(CONFIG, "", HELLO) for _ in range(5)))

    with providing(answer, at_once=True) as server, caplog.at_level(logging.WARNING, "sonar_eval"):
        assert run(story(OpenAIClient(server.url))) == ["hi"] * 5
    assert len(server.bodies) == 10
    assert len(caplog.records) == 1


def test_what_one_model_refuses_another_is_still_sent():
    provider = Provider(lambda body: picky(body) if body["model"] == "r-1" else ok())
    client = provider.openai()
    ask(client)
    run(client.complete(LLMConfig("other", 0.5), "", HELLO))
    assert provider.bodies[-1]["temperature"] == 0.5


def test_a_refusal_of_something_we_did_not_send_is_no_lesson():
    error = {"message": "bad", "code": "unsupported_parameter", "param": "seed"}
    provider = Provider(httpx.Response(400, json={"error": error}))
    with pytest.raises(LLMRequestError):
        ask(provider.openai())
    assert len(provider.bodies) == 1


def test_a_model_that_refuses_both_names_of_a_parameter_is_not_asked_for_ever():
    def refuse(body):
        name = "max_tokens" if "max_tokens" in body else "max_completion_tokens"
        return httpx.Response(400, json={"error": {"code": "unsupported_parameter", "param": name}})

    provider = Provider(refuse)
    with pytest.raises(LLMRequestError):
        ask(provider.openai())
    assert len(provider.bodies) == 2


def test_a_server_that_never_answers_is_named_with_its_timeout():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted = []

        def accept():
            try:
                while True:
                    accepted.append(listener.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        policy = RetryPolicy(max_retries=2, first_wait_s=0.01)
        client = OpenAIClient(url, timeout_s=0.3, retry=policy)
        with pytest.raises(LLMTransportError, match=rf"{url}.* \(timeout 0.3 s\): ReadTimeout \(asked 3 times\)"):
            ask(client)
        assert len(accepted) == 3
        for connection in accepted:
            connection.close()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_the_default_patience_is_a_minute_at_least():
    assert OpenAIClient(URL)._wire._timeout_s >= 60


def test_anthropic_is_asked_in_its_own_form():
    provider = Provider(message({"type": "text", "text": "ok"}))
    history = [
        *HELLO,
        Message("assistant", "", (ToolRequest("t1", "pay", {"a": 1}), ToolRequest("t2", "pay", {}))),
        Message("tool", "done", tool_call_id="t1"),
        Message("tool", "failed", tool_call_id="t2"),
    ]
    tool = ToolSchema("pay", "Pay.", {"type": "object"})
    reply = run(provider.anthropic().chat(LLMConfig("c-1", 0.2, 99, seed=7), "be kind", history, [tool]))
    (body,) = provider.bodies
    assert reply.text == "ok"
    assert reply.finish_reason == "stop"
    assert body["system"] == "be kind"
    assert (body["max_tokens"], body["temperature"], body["model"]) == (99, 0.2, "c-1")
    assert "seed" not in body
    assert [entry["role"] for entry in body["messages"]] == ["user", "assistant", "user"]
    assert [block["tool_use_id"] for block in body["messages"][2]["content"]] == ["t1", "t2"]
    assert body["tools"] == [{"name": "pay", "description": "Pay.", "input_schema": {"type": "object"}}]


def test_anthropic_thinking_is_no_answer_and_tool_calls_are_read():
    thinking = {"type": "thinking", "thinking": "hm"}
    assert ask(Provider(message(thinking, {"type": "text", "text": "ok"})).anthropic()) == "ok"
    use = {"type": "tool_use", "id": "t1", "name": "pay", "input": {"amount": 5}}
    reply = run(Provider(message(use, stop="tool_use")).anthropic().chat(CONFIG, "", HELLO, ()))
    assert reply.tool_calls == (ToolRequest("t1", "pay", {"amount": 5}),)
    assert reply.finish_reason == "tool_calls"


def test_anthropic_arguments_that_are_no_object_are_quoted_in_the_letters_they_have():
    use = {"type": "tool_use", "id": "t1", "name": "pay", "input": ["größer"]}
    (call,) = run(Provider(message(use, stop="tool_use")).anthropic().chat(CONFIG, "", HELLO, ())).tool_calls
    assert (call.arguments, call.error) == ({}, 'arguments are no JSON object: ["größer"]')


def test_anthropic_refusing_and_anthropic_silent_are_two_things():
    with pytest.raises(LLMAnswerError, match="refus"):
        ask(Provider(message(stop="refusal")).anthropic())
    provider = Provider(message(stop="end_turn"))
    with pytest.raises(LLMSilenceError, match="end_turn"):
        ask(provider.anthropic())
    assert len(provider.bodies) == 2


def test_anthropic_overload_is_asked_again():
    overload = httpx.Response(529, json={"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    provider = Provider(overload, message({"type": "text", "text": "ok"}))
    assert ask(provider.anthropic()) == "ok"
    assert len(provider.slept) == 1


def test_garbage_from_anthropic_is_quoted():
    with pytest.raises(LLMAnswerError, match="answered no message"):
        ask(Provider(httpx.Response(200, json={"oops": 1})).anthropic())


def test_openai_refusals_and_parts_are_read():
    with pytest.raises(LLMAnswerError, match="I can't help"):
        ask(Provider(ok(None, refusal="I can't help")).openai())
    parts = [{"type": "thinking", "text": "no"}, {"type": "text", "text": "Hal"}, {"type": "text", "text": "lo"}]
    assert ask(Provider(ok(parts)).openai()) == "Hallo"


def test_a_quota_that_is_used_up_is_not_waited_for():
    error = {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}
    provider = Provider(httpx.Response(429, json={"error": error}))
    with pytest.raises(LLMRequestError, match="current quota"):
        ask(provider.openai())
    assert len(provider.bodies) == 1


@pytest.mark.parametrize(
    "body",
    [{"error": {"message": "no such deployment", "code": {"odd": 1}}}, {"error": "boom"}, {"error": ["boom"]}],
)
def test_a_200_that_holds_an_error_is_an_answer_error_that_quotes_it(body):
    with pytest.raises(LLMAnswerError, match=r"no such deployment|boom"):
        ask(Provider(httpx.Response(200, json=body)).openai())


def test_json_that_breaks_off_again_and_again_is_a_transport_error():
    provider = Provider(httpx.Response(200, text='{"choices": ['))
    with pytest.raises(LLMTransportError, match=r"JSON that breaks off: \{.choices.: \[ \(asked 2 times"):
        ask(provider.openai(retry=RetryPolicy(max_retries=1)))


def test_a_tool_call_without_text_is_no_silence_to_a_bot():
    call = {"id": "a", "function": {"name": "pay", "arguments": "{}"}}
    for content in (None, "", []):
        provider = Provider(ok(content, "tool_calls", tool_calls=[call]))
        reply = run(provider.openai().chat(CONFIG, "", HELLO, ()))
        assert (reply.text, [entry.name for entry in reply.tool_calls]) == ("", ["pay"])
        assert len(provider.bodies) == 1


@pytest.mark.parametrize("make", ["openai", "anthropic"])
def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_kept(make):
    answer = message({"type": "text", "text": "ok"}) if make == "anthropic" else ok("ok")
    provider = Provider(answer)
    said = [Message("user", "cut \ud83d off"), Message("assistant", "x"), Message("user", "\ud83d\ude00 é")]
    assert run(getattr(provider, make)().complete(CONFIG, "be \udc00 kind", said)) == "ok"
    texts = json.dumps(provider.bodies[0], ensure_ascii=False)
    assert "cut \ufffd off" in texts
    assert "be \ufffd kind" in texts
    assert "\U0001f600 é" in texts


def test_half_a_surrogate_pair_in_an_answer_is_replaced():
    body = '{"choices": [{"message": {"content": "half \\ud83d, whole \\ud83d\\ude00"}}]}'
    assert ask(Provider(httpx.Response(200, text=body)).openai()) == "half \ufffd, whole \U0001f600"


def test_one_request_that_is_told_to_wait_holds_the_others_back():
    provider = Provider(limited(**{"retry-after": "30"}), ok())
    client = provider.openai()

    async def both():
        await client.complete(CONFIG, "", HELLO)
        await client.complete(CONFIG, "", HELLO)

    run(both())
    its_own, the_next = provider.slept
    assert 30 <= its_own <= 31
    assert 29 <= the_next <= 31
    assert (client.waits.limited, client.waits.retries, client.waits.queued) == (1, 1, 1)


@pytest.mark.parametrize("status", [429, 503, 529])
def test_an_overload_halves_what_is_under_way(status):
    provider = Provider(limited(status), ok())
    client = provider.openai()
    before = client._wire.limiter("r-1").limit
    ask(client)
    assert client._wire.limiter("r-1").limit == before // 2
    assert client._wire.limiter("another").limit == before


@pytest.mark.parametrize("trouble", [limited(500), limited(400), httpx.ReadTimeout("")])
def test_another_failure_leaves_it_as_it_is(trouble):
    provider = Provider(trouble, ok())
    client = provider.openai()
    before = client._wire.limiter("r-1").limit
    if isinstance(trouble, httpx.Response) and trouble.status_code == 400:
        with pytest.raises(LLMRequestError):
            ask(client)
    else:
        ask(client)
    assert client._wire.limiter("r-1").limit == before
    assert not client._wire.limiter("r-1")._under_way


def test_a_client_works_in_one_cell_after_the_other():
    provider = Provider(limited(**{"retry-after-ms": "1"}), ok())
    client = provider.openai()

    async def cell():
        await asyncio.gather(*(client.complete(CONFIG, "", HELLO) for _ in range(100)))

    for _ in range(3):
        run(cell())
    assert len(provider.bodies) == 301


@pytest.mark.parametrize(
    ("base_url", "asked"),
    [
        (
            "https://x.azure.test/openai/deployments/gpt?api-version=2024-06-01",
            "https://x.azure.test/openai/deployments/gpt/chat/completions?api-version=2024-06-01",
        ),
        ("https://x.test/v1/?a=b&c=d", "https://x.test/v1/chat/completions?a=b&c=d"),
        ("http://x.test", "http://x.test/chat/completions"),
    ],
)
def test_the_query_of_a_base_url_is_kept(base_url, asked):
    urls = []

    def answer(request):
        urls.append((str(request.url), request.headers))
        return ok()

    client = OpenAIClient(base_url, "sk-azure-123", key_header="api-key", transport=httpx.MockTransport(answer))
    assert ask(client) == "hi"
    ((url, headers),) = urls
    assert url == asked
    assert headers["api-key"] == "sk-azure-123"
    assert "authorization" not in headers


@pytest.mark.parametrize("base_url", ["http://x.test", "http://x.test/v1", "http://x.test/v1/", "http://x.test/"])
def test_anthropic_s_version_stands_once_in_the_path_and_its_key_where_it_is_told(base_url):
    seen = []

    def answer(request):
        seen.append(request)
        return message({"type": "text", "text": "ok"})

    ask(AnthropicClient("sk-1", base_url, key_header="Authorization", transport=httpx.MockTransport(answer)))
    (request,) = seen
    assert str(request.url) == "http://x.test/v1/messages"
    assert request.headers["authorization"] == "Bearer sk-1"
    assert "x-api-key" not in request.headers


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": 90, "completion_tokens": 5}, Usage(90, 5)),
        (
            {"prompt_tokens": 90, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 60}},
            Usage(90, 5, 60),
        ),
        ({"prompt_tokens": 90, "completion_tokens": 5, "prompt_tokens_details": None}, Usage(90, 5)),
        ({"prompt_tokens": "90", "completion_tokens": True}, Usage()),
        ({"prompt_tokens": -1, "completion_tokens": 1.5}, Usage()),
        (None, Usage()),
    ],
)
def test_openai_s_usage_is_read_with_what_was_cached(usage, read):
    body = {"choices": [{"message": {"content": "hi"}}], "usage": usage}
    assert ask(Provider(httpx.Response(200, json=body)).openai()).usage == read


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"input_tokens": 10, "output_tokens": 5}, Usage(10, 5)),
        (
            {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 20},
            Usage(100, 5, 70, 20),
        ),
        ({"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": None}, Usage(10, 5)),
        ("many", Usage()),
        (None, Usage()),
    ],
)
def test_anthropic_s_usage_counts_the_cache_as_input(usage, read):
    body = {"content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn", "usage": usage}
    assert ask(Provider(httpx.Response(200, json=body)).anthropic()).usage == read


def test_a_silence_and_the_answer_after_it_are_both_counted():
    provider = Provider(message(), message({"type": "text", "text": "ok"}))
    usage = ask(provider.anthropic()).usage
    assert (usage.calls, usage.input_tokens) == (2, 6)


@pytest.mark.parametrize(
    "answers",
    [(message(), message()), (message(stop="max_tokens"),), (message(stop="refusal"),)],
)
def test_an_error_tells_what_was_paid_for_it(answers):
    with pytest.raises(LLMAnswerError) as caught:
        ask(Provider(*answers).anthropic())
    assert (caught.value.usage.calls, caught.value.usage.input_tokens) == (len(answers), 3 * len(answers))


TOLD = {"prompt_tokens": 1000, "completion_tokens": 100}
LITTLE = {"prompt_tokens": 1, "completion_tokens": 1}


def counted(content="hi", usage=TOLD, **message):
    choice = {"message": {"content": content, **message}, "finish_reason": "stop"}
    return httpx.Response(200, json={"choices": [choice], "usage": usage})


NO_CHOICE = httpx.Response(200, json={"choices": [], "usage": TOLD})
STREAMED = httpx.Response(200, text='data: {"choices": [{"delta": {"content": "hi"}}]}')
HALF = httpx.Response(200, text='{"choices": [{"message": {"content": "hal')
SILENT_THEN = [
    ((counted(""), counted(None, LITTLE, refusal="no")), Usage(1001, 101, calls=2)),
    ((counted(""), httpx.Response(400, text="no")), Usage(1000, 100)),
    ((counted(""), NO_CHOICE), Usage(2000, 200, calls=2)),
    ((counted(""), counted("", LITTLE)), Usage(1001, 101, calls=2)),
    ((counted(""), broken({"code": 403}, usage=LITTLE)), Usage(1001, 101, calls=2)),
    ((counted(""), broken({"code": 403})), Usage(1000, 100)),
    ((counted(""), STREAMED), Usage(calls=2)),
    ((counted(""), httpx.ReadTimeout("")), Usage(1000, 100)),
    ((NO_CHOICE,), Usage(1000, 100)),
    ((STREAMED,), Usage()),
    ((broken({"code": 502}, usage=TOLD), httpx.Response(400, text="no")), Usage(1000, 100)),
    ((HALF, httpx.Response(400, text="no")), Usage()),
    ((httpx.Response(400, text="no"),), None),
    ((httpx.ReadTimeout(""),), None),
]


@pytest.mark.parametrize(("answers", "taken"), SILENT_THEN)
def test_an_error_tells_of_all_that_was_paid_for_on_the_way_to_it(answers, taken):
    with pytest.raises(LLMError) as caught:
        ask(Provider(*answers).openai(retry=RetryPolicy(1)))
    assert caught.value.usage == taken


@pytest.mark.parametrize(
    ("answers", "taken"),
    [
        ((counted(""), counted()), Usage(2000, 200, calls=2)),
        ((broken({"code": 502}, usage=TOLD), counted()), Usage(2000, 200, calls=2)),
        ((broken({"code": 502}), counted()), Usage(1000, 100)),
        ((HALF, counted()), Usage(calls=2)),
        ((limited(500), limited(429), counted()), Usage(1000, 100)),
    ],
)
def test_an_answer_tells_of_all_that_was_paid_for_on_the_way_to_it(answers, taken):
    completion = ask(Provider(*answers).openai())
    assert (completion, completion.usage) == ("hi", taken)


def test_what_was_paid_for_before_time_ran_out_is_not_lost():
    asked_again = threading.Event()

    def answer(body):
        if len(server.bodies) == 1:
            return said("")
        asked_again.set()
        raise Hang

    async def story(meter):
        asked = asyncio.create_task(meter.complete(CONFIG, "", HELLO))
        assert await asyncio.to_thread(asked_again.wait, 10)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    with providing(answer) as server:
        meter = Meter(OpenAIClient(server.url))
        run(story(meter))
    assert meter.spent == Spend(1, 100, 10, None)


def test_a_judge_that_is_asked_again_costs_what_all_its_answers_cost():
    provider = Provider(NO_CHOICE, counted(json.dumps({"score": 1, "reasoning": "fine"})))
    meter = Meter(provider.openai())
    log = ConversationLog("c1", [Turn("hi", ("hello",))])
    assert run(Grader(meter, CONFIG, "be kind", repeats=3).grade(Transcript(), log)).score == 1
    assert meter.spent == Spend(3, 3000, 300, None)
