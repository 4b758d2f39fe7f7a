"""The clients and the chat bot against servers that others wrote; run when they are asked for and there."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes import run
from serving import listens
from sonar_eval import LLMConfig, Message
from sonar_eval.errors import LLMRequestError, LLMTransportError
from sonar_eval.llm import AnthropicClient, OpenAIClient, RetryPolicy, ToolSchema
from test_llm_openai import unused_port
from test_sweep_chat_bot import shop
from test_sweep_run import sweep

HELLO = [Message("user", "Hello, how are you?")]
ORDER = ToolSchema("order", "Order something.", {"type": "object", "properties": {"item": {"type": "string"}}})
ONCE = RetryPolicy(max_retries=1, first_wait_s=0.01)
MODELS: dict[str, dict[str, Any]] = {
    "mock": {"mock_response": "Hello from a mock."},
    "limited": {"mock_response": "litellm.RateLimitError"},
    "broken": {"mock_response": "litellm.InternalServerError"},
    "caller": {
        "mock_response": "",
        "mock_tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "order", "arguments": '{"item": "tea"}'}}
        ],
    },
}


def asked_for(marker: str, *variables: str) -> Any:
    """Mark tests that run only by `-m marker`, with what they need named in the environment."""
    missing = [name for name in variables if not os.environ.get(name)]
    told = f"-m {marker}, with {' and '.join(variables)}"

    def mark(test: Any) -> Any:
        chosen = pytest.mark.skipif(f"{marker!r} not in (config.getoption('markexpr') or '')", reason=told)
        there = pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")
        return getattr(pytest.mark, marker)(pytest.mark.timeout(900)(chosen(there(test))))

    return mark


litellm = asked_for("litellm", "SONAR_TEST_LITELLM")
llama = asked_for("llama", "SONAR_TEST_LLAMA_PYTHON", "SONAR_TEST_LLAMA_MODEL")


@contextmanager
def started(command: list[str], port: int, log: Path, **environment: str) -> Iterator[str]:
    """Run a server until the block ends."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})
    try:
        deadline = time.monotonic() + 120
        while not listens(port):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder, port, key = tmp_path_factory.mktemp("litellm"), unused_port(), f"sk-{secrets.token_hex(16)}"
    models = [
        {"model_name": name, "litellm_params": {"model": "openai/mock", "api_key": "none", **more}}
        for name, more in MODELS.items()
    ]
    # JSON is YAML.
    (folder / "config.yaml").write_text(json.dumps({"model_list": models}))
    command = [os.environ["SONAR_TEST_LITELLM"], "--config", str(folder / "config.yaml"), "--host", "127.0.0.1"]
    with started([*command, "--port", str(port)], port, folder / "log", LITELLM_MASTER_KEY=key) as url:
        yield url, key


def clients(proxy) -> Mapping[str, OpenAIClient | AnthropicClient]:
    url, key = proxy
    return {"openai": OpenAIClient(url + "/v1", key, retry=ONCE), "anthropic": AnthropicClient(key, url, retry=ONCE)}


@litellm
@pytest.mark.parametrize("shape", ["openai", "anthropic"])
def test_litellm_answers_with_text_usage_and_finish_reason(proxy, shape):
    said = run(clients(proxy)[shape].complete(LLMConfig("mock", seed=3), "Be kind.", HELLO))
    assert (said, said.finish_reason) == ("Hello from a mock.", "stop")
    assert said.usage.input_tokens > 0
    assert said.usage.output_tokens > 0


@litellm
@pytest.mark.parametrize("shape", ["openai", "anthropic"])
@pytest.mark.parametrize(("model", "limited"), [("limited", 2), ("broken", 0)])
def test_litellm_in_trouble_is_asked_again_and_quoted(proxy, shape, model, limited):
    client = clients(proxy)[shape]
    with pytest.raises(LLMTransportError, match=r"this is a mock .* error.*asked 2 times"):
        run(client.complete(LLMConfig(model), "", HELLO))
    assert (client.waits.requests, client.waits.limited) == (2, limited)


@litellm
@pytest.mark.parametrize("shape", ["openai", "anthropic"])
def test_litellm_refusing_a_key_is_quoted_and_the_key_is_not(proxy, shape):
    wrong = f"sk-{secrets.token_hex(16)}"
    with pytest.raises(LLMRequestError, match="HTTP 40") as caught:
        run(clients((proxy[0], wrong))[shape].complete(LLMConfig("mock"), "", HELLO))
    assert wrong not in str(caught.value)


@litellm
def test_litellm_s_tool_call_is_read(proxy):
    reply = run(clients(proxy)["openai"].chat(LLMConfig("caller"), "", HELLO, [ORDER]))
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("order", {"item": "tea"})]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder, port = tmp_path_factory.mktemp("llama"), unused_port()
    options = {"model": os.environ["SONAR_TEST_LLAMA_MODEL"], "port": str(port), "n_ctx": "8192"}
    options["chat_format"] = "chatml-function-calling"
    command = [os.environ["SONAR_TEST_LLAMA_PYTHON"], "-m", "llama_cpp.server"]
    for name, value in options.items():
        command += [f"--{name}", value]
    with started(command, port, folder / "log") as url:
        httpx.get(url + "/v1/models", timeout=60, trust_env=False).raise_for_status()
        yield url + "/v1"


@llama
def test_llama_cpp_answers_with_text_and_usage(local):
    said = run(OpenAIClient(local).complete(LLMConfig("local", max_tokens=40, seed=2**40), "Be brief.", HELLO))
    assert said.strip()
    assert said.usage.input_tokens > 0
    assert said.usage.output_tokens > 0


@llama
def test_llama_cpp_takes_half_a_surrogate_pair(local):
    assert run(OpenAIClient(local).complete(LLMConfig("local", max_tokens=20), "", [Message("user", "hi \ud83d")]))


@llama
def test_llama_cpp_plays_the_bot_and_the_judge_of_a_sweep(local, tmp_path):
    done = sweep(
        shop(tmp_path),
        "bot=chat",
        "bot.tools=[my_tools:look_up]",
        "bot.max_steps=3",
        "scenario=ask_price",
        "scenario.scripted_messages=[What is the price of tea?]",
        "model=local",
        "model.max_tokens=100",
        "grader=local",
        "grader.llm.max_tokens=200",
        "task.k=2",
        "task.concurrency=1",
        "tracking=none",
        LOCAL_LLM_URL=local,
        LOCAL_LLM_MODEL="local",
    )
    assert done.status == 0, done.out + done.err
    for record in done.trials():
        assert record["outcome"] == "judged", record["failure"]
        assert record["judge_asked"]
        assert record["grader"] is not None or record["grader_failure"]["message"]
        assert record["spent"]["bot"]["input_tokens"] > 0
        assert record["spent"]["bot"]["cost_usd"] is None
        assert record["cost_usd"] is None
