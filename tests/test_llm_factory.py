"""From a model's settings to its client."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from fakes import run
from sonar_eval import ConfigError, LLMConfig, Message, OpenAIClient
from sonar_eval.llm import make_client, make_config

SETTINGS = {"provider": "openai", "model": "m-1", "base_url": "http://127.0.0.1:9/v1"}
VARIABLE = "SONAR_EVAL_TEST_KEY"


def test_settings_make_a_client_of_their_endpoint():
    client = make_client(SETTINGS)
    assert isinstance(client, OpenAIClient)
    assert "http://127.0.0.1:9/v1" in repr(client)


class Echo(BaseHTTPRequestHandler):
    """Answer with the authorization that was sent, as the model's text."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        said = self.headers["authorization"]
        body = json.dumps({"choices": [{"message": {"content": said}}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_the_key_is_taken_from_the_variable_that_is_named(monkeypatch):
    monkeypatch.setenv(VARIABLE, "  sk-secret-12345 \n")
    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        client = make_client({**SETTINGS, "base_url": url, "api_key_env": VARIABLE})
        said = run(client.complete(LLMConfig("m-1"), "", [Message("user", "hi")]))
        server.shutdown()
        thread.join()
    assert said == "Bearer sk-secret-12345"
    assert "sk-secret" not in repr(client)


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_variable_that_holds_no_key_is_named(monkeypatch, value):
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ConfigError, match=VARIABLE):
        make_client({**SETTINGS, "api_key_env": VARIABLE})


@pytest.mark.parametrize("provider", ["anthropik", "", None])
def test_an_unknown_provider_is_named_with_the_known_ones(provider):
    with pytest.raises(ConfigError, match=r"unknown provider.*known here: anthropic, openai") as caught:
        make_client({**SETTINGS, "provider": provider})
    assert repr(provider) in str(caught.value)
    assert "m-1" in str(caught.value)


@pytest.mark.parametrize("base_url", [None, ""])
def test_a_missing_base_url_is_asked_for_with_an_example(base_url):
    with pytest.raises(ConfigError, match=r"'m-1'.*base_url.*http://"):
        make_client({**SETTINGS, "base_url": base_url})


@pytest.mark.parametrize(
    ("base_url", "told"),
    [
        ("localhost:11434/v1", r"got 'localhost:11434/v1'; write http://localhost:11434/v1 or https://"),
        ("api.models.test/v1", r"write http://api.models.test/v1 or https://api.models.test/v1"),
        ("http:/models.test/v1", r"write http://models.test/v1 or"),
        ("http://", r"got 'http://'; write http://localhost:8000/v1"),
        ("/v1", r"write http://localhost:8000/v1"),
        ("ftp://models.test", r"got 'ftp://models.test'; write http://localhost:8000/v1"),
        ("http://models.test:port/v1", r"got 'http://models.test:port/v1'"),
        ("http://[::1/v1", r"got 'http://\[::1/v1'"),
    ],
)
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_base_url_that_is_no_address_is_refused_with_what_to_write(provider, base_url, told):
    with pytest.raises(ConfigError, match=rf"^model 'm-1': base_url must begin with http://.*{told}"):
        make_client({**SETTINGS, "provider": provider, "base_url": base_url})
    with pytest.raises(ConfigError, match=told):
        OpenAIClient(base_url)


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:9/v1", " HTTPS://models.test ", "http://[::1]:9/v1?a=b"])
def test_an_address_is_taken(base_url):
    assert make_client({**SETTINGS, "base_url": base_url}).waits.requests == 0


def test_a_config_takes_what_is_set_and_defaults_for_the_rest():
    assert make_config({"model": "m-1"}) == LLMConfig("m-1", temperature=1.0, max_tokens=1024, seed=None)
    given = {"model": "m-1", "temperature": 0, "max_tokens": "64", "seed": 7, "base_url": "left alone"}
    assert make_config(given) == LLMConfig("m-1", temperature=0.0, max_tokens=64, seed=7)
