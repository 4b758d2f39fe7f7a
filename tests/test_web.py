"""One way out: proxies for what is elsewhere, none for this machine, and no request that hangs for ever."""

import base64
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from fakes import run
from sonar_eval.web import Line, is_loopback


@contextmanager
def serving(*, pause_s=0.0, cut=False):
    """Serve on this machine; yields the address and the requests that came, as (target, headers)."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            time.sleep(pause_s)
            self.send_response(200)
            self.send_header("content-length", "2")
            self.send_header("set-cookie", "who=you")
            self.end_headers()
            self.wfile.write(b"o" if cut else b"ok")
            self.close_connection = cut

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


def get(url, path="/x", *, times=1, timeout_s=5.0, headers=None):
    async def ask():
        async with Line(url) as line:
            for _ in range(times):
                answer = await line.get(url + path, headers=headers or {}, timeout_s=timeout_s)
            return answer.status_code, answer.text

    return run(ask())


@pytest.fixture
def through_a_proxy(monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as (proxy, seen):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{proxy}")
        yield seen


def test_a_server_elsewhere_is_asked_through_the_proxy_of_the_environment(through_a_proxy):
    assert get("http://ingest.test") == (200, "ok")
    assert [target for target, _ in through_a_proxy] == ["http://ingest.test/x"]


def test_no_proxy_is_asked_for_this_machine(through_a_proxy):
    with serving() as (place, seen):
        assert get(f"http://{place}", headers={"x-key": "k"}) == (200, "ok")
    assert through_a_proxy == []
    ((target, headers),) = seen
    assert (target, headers["host"], headers["x-key"]) == ("/x", place, "k")


def test_a_connection_is_used_again_and_no_cookie_is_kept():
    with serving() as (place, seen):
        assert get(f"http://{place}", times=3) == (200, "ok")
    assert len(seen) == 3
    assert not any("cookie" in headers for _, headers in seen)


def test_a_user_in_the_address_is_sent_as_credentials():
    with serving() as (place, seen):
        assert get(f"http://me:secret@{place}") == (200, "ok")
    ((_, headers),) = seen
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"me:secret"


@pytest.mark.parametrize("user", ["", "me:secret@"])
def test_a_server_that_hangs_is_given_up_on(user):
    with serving(pause_s=1.0) as (place, _), pytest.raises(httpx.ReadTimeout):
        get(f"http://{user}{place}", timeout_s=0.1)


@pytest.mark.parametrize("user", ["", "me:secret@"])
def test_an_answer_that_breaks_off_is_an_error(user):
    with serving(cut=True) as (place, _), pytest.raises(httpx.RequestError):
        get(f"http://{user}{place}")


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.9", True),
        ("http://[::1]:4319", True),
        ("http://10.0.0.1", False),
        ("https://localhost.example", False),
        ("nonsense", False),
    ],
)
def test_this_machine_is_told_from_others(url, here):
    assert is_loopback(url) is here
