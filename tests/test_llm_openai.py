"""The client for OpenAI's chat completions: what it asks, what it reads, and how it fails."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from fakes import run
from sonar_eval.errors import (
    LLMAnswerError,
    LLMError,
    LLMRequestError,
    LLMSilenceError,
    LLMTransportError,
    describe,
)
from sonar_eval.llm import ChatReply, LLMConfig, Message, OpenAIClient, RetryPolicy, ToolRequest, ToolSchema, Usage

KEY = "sk-very-secret-1234"
URL = "http://models.test/v1"
CONFIG = LLMConfig("m-1", temperature=0.25, max_tokens=64)
HELLO = [Message("user", "hello")]
ONCE = RetryPolicy(max_retries=0)
ORDER = ToolSchema("order", "Order it.", {"type": "object", "properties": {"item": {"type": "string"}}})


class Endpoint:
    """Answer every request alike, and keep what was asked."""

    def __init__(self, answer: Any = None, *, status: int = 200, text: str | None = None) -> None:
        self.answer, self.status, self.text = answer, status, text
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.text is not None:
            return httpx.Response(self.status, text=self.text)
        return httpx.Response(self.status, json=self.answer)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests]

    def client(self, key: str | None = KEY, **settings: Any) -> OpenAIClient:
        return OpenAIClient(URL, key, retry=ONCE, transport=httpx.MockTransport(self), **settings)


def completion(content: Any = "hi", finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    """Make the body of an answer."""
    return {
        "model": "m-1-2026",
        "choices": [{"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3},
    }


def call(name: str = "order", arguments: Any = '{"item": "latte"}', **more: Any) -> dict[str, Any]:
    return {"id": "call_9", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def said(endpoint: Endpoint, config: LLMConfig = CONFIG) -> Any:
    return run(endpoint.client().complete(config, "be kind", HELLO))


def chatted(answer: Any) -> ChatReply:
    return run(Endpoint(answer).client().chat(CONFIG, "", HELLO, [ORDER]))


def failure(endpoint: Endpoint) -> LLMError:
    with pytest.raises(LLMError) as caught:
        said(endpoint)
    return caught.value


def test_a_request_has_the_system_prompt_first_and_the_sampling_of_the_config():
    endpoint = Endpoint(completion())
    messages = [Message("user", "hi"), Message("assistant", "hello"), Message("user", "bye")]
    run(endpoint.client().complete(CONFIG, "be kind", messages))
    assert endpoint.bodies == [
        {
            "model": "m-1",
            "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "hello"},
                {"role": "user", "content": "bye"},
            ],
            "temperature": 0.25,
            "max_tokens": 64,
        }
    ]
    (request,) = endpoint.requests
    assert (request.method, str(request.url)) == ("POST", f"{URL}/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_without_a_system_prompt_there_is_no_system_message():
    endpoint = Endpoint(completion())
    run(endpoint.client().complete(CONFIG, "", HELLO))
    assert endpoint.bodies[0]["messages"] == [{"role": "user", "content": "hello"}]


def test_without_a_key_no_authorization_is_sent():
    endpoint = Endpoint(completion())
    run(endpoint.client(key=None).complete(CONFIG, "", HELLO))
    assert "authorization" not in endpoint.requests[0].headers


def test_a_base_url_may_end_in_a_slash():
    endpoint = Endpoint(completion())
    client = OpenAIClient(URL + "/", retry=ONCE, transport=httpx.MockTransport(endpoint))
    run(client.complete(CONFIG, "", HELLO))
    assert str(endpoint.requests[0].url) == f"{URL}/chat/completions"


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1, 2**31, 2**40 + 5, 2**63])
def test_a_seed_is_sent_in_31_bits(seed):
    endpoint = Endpoint(completion())
    said(endpoint, LLMConfig("m", seed=seed))
    sent = endpoint.bodies[0]["seed"]
    assert 0 <= sent < 2**31
    assert sent == seed % 2**31


def test_no_seed_is_sent_when_there_is_none():
    endpoint = Endpoint(completion())
    said(endpoint)
    assert "seed" not in endpoint.bodies[0]


def test_extra_settings_go_into_the_body():
    endpoint = Endpoint(completion())
    run(endpoint.client(extra_body={"top_p": 0.5, "temperature": 0}).complete(CONFIG, "", HELLO))
    assert (endpoint.bodies[0]["top_p"], endpoint.bodies[0]["temperature"]) == (0.5, 0)


def test_tools_and_their_calls_are_written_in_the_form_of_the_endpoint():
    endpoint = Endpoint(completion())
    asked = Message("assistant", "", tool_calls=(ToolRequest("call_1", "order", {"item": "café"}),))
    answered = Message("tool", '{"ok": true}', tool_call_id="call_1", name="order")
    run(endpoint.client().chat(CONFIG, "", [*HELLO, asked, answered], [ORDER]))
    (body,) = endpoint.bodies
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "order",
                "description": "Order it.",
                "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
            },
        }
    ]
    written = body["messages"][1]["tool_calls"][0]
    assert (written["id"], written["type"], written["function"]["name"]) == ("call_1", "function", "order")
    assert written["function"]["arguments"] == '{"item": "café"}'
    assert body["messages"][2] == {"role": "tool", "content": '{"ok": true}', "tool_call_id": "call_1"}


def test_without_tools_the_body_names_none():
    endpoint = Endpoint(completion())
    run(endpoint.client().chat(CONFIG, "", HELLO, ()))
    assert "tools" not in endpoint.bodies[0]


def test_the_answer_is_a_plain_text_that_carries_usage_and_finish_reason():
    answer = said(Endpoint(completion("Hello, you.")))
    assert answer == "Hello, you."
    assert isinstance(answer, str)
    assert (answer.usage, answer.finish_reason) == (Usage(12, 3), "stop")


def test_a_text_cut_off_at_the_limit_is_returned_and_marked():
    assert said(Endpoint(completion("Once upon a", "length"))).finish_reason == "length"


@pytest.mark.parametrize("usage", [None, {}, "many", [1]])
def test_a_provider_that_does_not_count_leaves_the_usage_unknown(usage):
    assert said(Endpoint({**completion(), "usage": usage})).usage == Usage(None, None)


def test_a_chat_reply_carries_text_calls_usage_and_the_model_that_answered():
    reply = chatted(completion("One moment.", "tool_calls", tool_calls=[call()]))
    assert reply == ChatReply(
        "One moment.",
        (ToolRequest("call_9", "order", {"item": "latte"}),),
        Usage(12, 3),
        "tool_calls",
        "m-1-2026",
    )


def test_a_chat_reply_without_a_model_names_the_one_that_was_asked():
    assert chatted({"choices": [{"message": {"content": "hi"}}]}).model == "m-1"


@pytest.mark.parametrize("arguments", ["", "  ", None, "{}", {}])
def test_a_call_without_arguments_has_none(arguments):
    (request,) = chatted(completion(None, tool_calls=[call(arguments=arguments)])).tool_calls
    assert (request.arguments, request.error) == ({}, None)


def test_arguments_that_are_an_object_already_are_taken():
    (request,) = chatted(completion(None, tool_calls=[call(arguments={"item": "latte"})])).tool_calls
    assert request.arguments == {"item": "latte"}


@pytest.mark.parametrize("arguments", ['{"item": "lat', "latte", '["latte"]', "3", '"latte"', "null", ["latte"]])
def test_arguments_that_are_no_json_object_are_reported_and_not_guessed(arguments):
    (request,) = chatted(completion(None, tool_calls=[call(arguments=arguments)])).tool_calls
    assert request.arguments == {}
    assert request.error is not None
    assert str(arguments)[:6] in request.error


def test_calls_without_an_id_get_one_each():
    calls = [call(id=None), call(id=""), call(id="mine")]
    requests = chatted(completion(None, tool_calls=calls)).tool_calls
    assert len({request.id for request in requests}) == 3
    assert all(request.id for request in requests)
    assert requests[2].id == "mine"


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "text", "text": "Hal"}, {"type": "text", "text": "lo"}],
        [{"type": "thinking", "thinking": "[[END]] hm"}, {"type": "text", "text": "Hallo"}],
        [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "Hallo"}],
    ],
)
def test_content_in_parts_is_joined_and_thinking_left_out(parts):
    assert said(Endpoint(completion(parts))) == "Hallo"


def test_a_refusal_is_an_error_that_quotes_it_and_is_no_silence():
    error = failure(Endpoint(completion(None, refusal="I can't help with that")))
    assert type(error) is LLMAnswerError
    assert "I can't help with that" in str(error)


@pytest.mark.parametrize("content", [None, "", "  \n", []])
@pytest.mark.parametrize("finish", ["stop", None, "content_filter"])
def test_an_answer_without_text_is_silence(content, finish):
    assert isinstance(failure(Endpoint(completion(content, finish))), LLMSilenceError)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"reasoning_content": "let me think [[END]] …"},
        {"reasoning": "let me think"},
    ],
)
@pytest.mark.parametrize("content", [None, ""])
def test_an_answer_cut_off_before_it_began_names_the_limit_and_is_no_silence(content, message):
    error = failure(Endpoint(completion(content, "length", **message)))
    assert type(error) is LLMAnswerError
    for part in ("max_tokens=64", "'length'", "m-1", "12"):
        assert part in str(error)
    assert "let me think" not in str(error)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 524, 529])
def test_a_status_that_may_pass_is_a_transport_error_with_the_providers_words(status):
    error = failure(Endpoint({"error": {"message": "please slow down"}}, status=status))
    assert isinstance(error, LLMTransportError)
    for part in (str(status), "please slow down", "m-1", URL):
        assert part in str(error)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 302])
def test_a_status_that_will_not_pass_is_a_request_error_with_the_providers_words(status):
    error = failure(Endpoint({"error": {"message": "unsupported parameter"}}, status=status))
    assert isinstance(error, LLMRequestError)
    for part in (str(status), "unsupported parameter", "m-1", URL):
        assert part in str(error)


def test_a_long_error_page_is_quoted_in_part():
    assert len(str(failure(Endpoint(status=500, text="x" * 100_000)))) < 2000


def test_an_answer_that_is_no_json_is_quoted():
    error = failure(Endpoint(text="<html>welcome to the proxy</html>"))
    assert isinstance(error, LLMAnswerError)
    assert "welcome to the proxy" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "hi",
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": [{"message": {"content": {"text": "hi"}}}]},
        {"choices": [{"message": {"content": [{"type": "text", "text": None}]}}]},
        {"choices": [{"message": {"content": ["hi"]}}]},
        {"choices": [{"message": {"content": None, "tool_calls": [{"function": None}]}}]},
        {"choices": [{"message": {"content": None, "tool_calls": [{"function": {"arguments": "{}"}}]}}]},
        {"error": {"message": "overloaded"}},
    ],
)
def test_an_answer_that_is_no_completion_is_an_answer_error_and_no_crash(answer):
    error = failure(Endpoint(answer))
    assert isinstance(error, LLMAnswerError)
    assert "m-1" in str(error)


def test_an_answer_whose_bytes_are_damaged_is_a_transport_error():
    def damaged(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))

    client = OpenAIClient(URL, KEY, retry=ONCE, transport=httpx.MockTransport(damaged))
    with pytest.raises(LLMTransportError, match="m-1"):
        run(client.complete(CONFIG, "", HELLO))


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(handle: Callable[[socket.socket], None]) -> Iterator[str]:
    """Accept one connection after the other on loopback and hand each to `handle`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stopped = threading.Event()

        def accept() -> None:
            while not stopped.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    handle(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        stopped.set()
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_an_endpoint_that_is_not_there_is_named():
    url = f"http://127.0.0.1:{unused_port()}/v1"
    with pytest.raises(LLMTransportError) as caught:
        run(OpenAIClient(url, KEY, retry=ONCE, timeout_s=7).complete(CONFIG, "", HELLO))
    for part in ("m-1", url, "7 s", "ConnectError"):
        assert part in str(caught.value)


def test_an_endpoint_that_never_answers_is_given_up_with_words():
    done = threading.Event()

    def wait(connection: socket.socket) -> None:
        done.wait(5)

    with serving(wait) as url:
        with pytest.raises(LLMTransportError) as caught:
            run(OpenAIClient(url, KEY, retry=ONCE, timeout_s=0.2).complete(CONFIG, "", HELLO))
        done.set()
    for part in ("m-1", url, "0.2 s", "ReadTimeout"):
        assert part in str(caught.value)


def test_an_endpoint_that_hangs_up_is_a_transport_error_with_words():
    with serving(lambda connection: connection.recv(100) and None) as url:
        with pytest.raises(LLMTransportError) as caught:
            run(OpenAIClient(url, KEY, retry=ONCE).complete(CONFIG, "", HELLO))
    assert "m-1" in describe(caught.value)


def test_by_default_a_slow_judge_has_minutes():
    waits: list[float | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        waits.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, json=completion())

    run(OpenAIClient(URL, retry=ONCE, transport=httpx.MockTransport(answer)).complete(CONFIG, "", HELLO))
    assert waits[0] is not None
    assert waits[0] >= 60


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint({"error": f"Incorrect API key provided: {KEY}"}, status=401),
        Endpoint({"error": f"key {KEY} is over its limit"}, status=429),
        Endpoint(text=f"you said {KEY}"),
        Endpoint({"you said": KEY}),
        Endpoint(completion(None, refusal=f"I will not use {KEY}")),
    ],
)
def test_the_key_is_in_no_error_even_when_the_provider_repeats_it(endpoint):
    error = failure(endpoint)
    assert KEY not in str(error)
    assert KEY not in repr(error)


@pytest.mark.parametrize("kept", range(len(KEY) + 1))
@pytest.mark.parametrize("status", [200, 401, 429])
def test_not_even_a_part_of_the_key_is_left_where_a_long_answer_is_cut(kept, status):
    told = str(failure(Endpoint(text="x" * (500 - kept) + KEY, status=status)))
    assert "sk-v" not in told
    assert "xx" in told


@pytest.mark.parametrize("kept", [4, 10, 18])
def test_not_even_a_part_of_the_key_is_left_where_an_unknown_object_is_cut(kept):
    assert "sk-v" not in str(failure(Endpoint({"said": "x" * (500 - len("{'said': '") - kept) + KEY})))


def test_the_key_is_in_no_description_of_the_client():
    client = OpenAIClient(URL, KEY)
    assert KEY not in repr(client)
    assert URL in repr(client)


def test_a_key_read_from_a_file_with_its_line_break_works_and_stays_secret():
    requests: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        requests.append(connection.recv(65536))
        body = json.dumps(completion()).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)

    with serving(answer) as url:
        assert run(OpenAIClient(url, KEY + "\n").complete(CONFIG, "", HELLO)) == "hi"
    assert f"Bearer {KEY}\r\n".encode() in requests[0]


def test_one_client_serves_several_event_loops():
    endpoint = Endpoint(completion())
    client = endpoint.client()
    assert [run(client.complete(CONFIG, "", HELLO)) for _ in range(3)] == ["hi"] * 3
