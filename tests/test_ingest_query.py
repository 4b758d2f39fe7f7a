"""Asking: strict JSON, waiting, sealing, lists, limits, and what OpenAPI says of it."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from captures import make_request, make_span, make_tool
from serving import ACME, Place, ServerProcess, serving, slow
from sonar_eval.ingest.app import create_app
from sonar_eval.ingest.db import SpanStore
from sonar_eval.ingest.keys import KeyRing
from sonar_eval.ingest.span import Span
from sonar_eval.ingest.strict import strict_json
from sonar_eval.transcript import wire

pytest_plugins = ["databases"]


@pytest.fixture
def store(database_url: str) -> Iterator[SpanStore]:
    """Open a database of this test's own."""
    store = SpanStore(database_url)
    yield store
    store.close()


@pytest.fixture
def fresh(store: SpanStore) -> Iterator[Place]:
    """Serve a database of this test's own."""
    with serving(create_app(store, KeyRing({ACME: "acme"}))) as place:
        yield place


@pytest.fixture(scope="module")
def ingest(module_database_url: str) -> Iterator[Place]:
    """Serve a database that the tests share, so that each needs a conversation of its own."""
    store = SpanStore(module_database_url)
    with serving(create_app(store, KeyRing({ACME: "acme"}))) as place:
        yield place
    store.close()


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Serve a SQLite file that the tests share, for what does not depend on the database."""
    store = SpanStore(f"sqlite:///{tmp_path_factory.mktemp('query') / 'spans.db'}")
    with serving(create_app(store, KeyRing({ACME: "acme"}))) as place:
        yield place
    store.close()


@pytest.fixture
def talk() -> str:
    """Return the id of a conversation that nobody else has."""
    return f"talk-{os.urandom(6).hex()}"


def send(place: Place, talk: str, *names: str) -> None:
    """Store spans of these names, in a trace of their own."""
    trace = os.urandom(16).hex()
    spans = [make_span(name, conversation=talk, trace_id=trace, span_id=os.urandom(8).hex()) for name in names]
    assert place.post(make_request(*spans)).status_code == 200


def marker(talk: str, ids: list[str]) -> Any:
    """Make the end marker that a bot's process sends."""
    summed = 0
    for span_id in ids:
        summed ^= int(span_id, 16)
    attributes = {
        wire.MARKER_STARTED: len(ids),
        wire.MARKER_ENDED: len(ids),
        wire.MARKER_XOR: f"{summed:016x}",
        wire.MARKER_PROCESS: "p1",
    }
    return make_span(wire.MARKER_NAME, attributes, conversation=talk, trace_id="ee" * 16, span_id="ee" * 8)


# Strict JSON


@pytest.mark.parametrize(
    "value",
    [
        '{"score": NaN, "worst": -Infinity}',
        '{"n": 123456789012345678901234567890}',
        r'{"half": "\ud800"}',
        r'{"\ud800": 1}',
        "[" * 400 + "]" * 400,
        '{"a": ' * 150 + "1" + "}" * 150,
        '{"n": ' + "9" * 5000 + "}",
        "{'python': [1, (2,), {3}, b'4', 5j, ...]}",
        "\x00",
    ],
    ids=["nan", "large", "half", "half key", "deep list", "deep map", "too large", "python", "nul"],
)
@pytest.mark.parametrize("attribute", ["gen_ai.tool.call.result", "gen_ai.tool.call.arguments", "input.value"])
def test_whatever_a_bot_writes_is_answered_in_strict_json(on_sqlite, talk, value, attribute):
    tool = make_tool("lookup", attributes={attribute: value}, conversation=talk, trace_id=os.urandom(16).hex())
    assert on_sqlite.post(make_request(tool)).status_code == 200
    answer = on_sqlite.read(talk)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    strict = json.loads(answer.content.decode("utf-8"), parse_constant=lambda name: pytest.fail(name))
    assert [span["tool_name"] for span in strict["spans"]] == ["lookup"]


def test_strict_json_has_a_word_for_everything():
    odd: dict[Any, Any] = {1: {2}, "f": [math.nan, math.inf, 1.5], "big": 2**70, "half": "\ud800", "n": None, "b": b"x"}
    assert json.loads(strict_json(odd)) == {
        "1": "{2}",
        "f": [None, None, 1.5],
        "big": 2**70,
        "half": "?",
        "n": None,
        "b": "b'x'",
    }
    deep: Any = "end"
    for _ in range(500):
        deep = [deep]
    assert b"nested too deep" in strict_json(deep)


# Waiting


def test_an_unknown_conversation_is_answered_at_once(ingest):
    began = time.monotonic()
    assert ingest.read("never", wait=20).status_code == 404
    assert time.monotonic() - began < 5


def test_who_waits_for_the_first_span_is_answered_when_it_comes(ingest, talk):
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ingest.read, talk, wait=20, first=20, quiet=0, min_level=0)
        time.sleep(0.3)
        assert not asked.done()
        send(ingest, talk, "first")
        answer = asked.result(10)
    assert [span["name"] for span in answer.json()["spans"]] == ["first"]


def test_who_waits_for_a_first_span_that_does_not_come_is_told_so(ingest):
    began = time.monotonic()
    assert ingest.read("never", wait=0.3, first=20).status_code == 404
    assert 0.2 < time.monotonic() - began < 5


def test_waiting_ends_when_the_count_of_the_bot_is_reached(ingest, talk):
    ids = [os.urandom(8).hex() for _ in range(5)]
    spans = [make_span(conversation=talk, span_id=span_id) for span_id in ids]
    assert ingest.post(make_request(*spans[:2])).status_code == 200
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ingest.read, talk, wait=20, min_level=3)
        for batch in ([spans[2]], [marker(talk, ids)], spans[3:]):
            time.sleep(0.1)
            assert not asked.done()
            assert ingest.post(make_request(*batch)).status_code == 200
        answer = asked.result(10)
    completeness = answer.json()["completeness"]
    assert (completeness["level"], completeness["complete"], completeness["expected"]) == (3, True, 5)


def test_waiting_ends_when_it_has_been_quiet_for_long_enough(ingest, talk):
    send(ingest, talk, "only")
    began = time.monotonic()
    answer = ingest.read(talk, wait=20, quiet=0.5, min_level=3)
    waited = time.monotonic() - began
    assert answer.json()["completeness"]["final"] is True
    assert 0.2 < waited < 5


def test_waiting_ends_after_the_time_that_was_given(ingest, talk):
    send(ingest, talk, "only")
    began = time.monotonic()
    answer = ingest.read(talk, wait=0.5)
    assert 0.4 < time.monotonic() - began < 5
    completeness = answer.json()["completeness"]
    assert (completeness["complete"], completeness["final"]) == (False, False)
    assert "quiet for" in completeness["reasons"][0]


def test_no_span_that_comes_while_somebody_looks_is_missed(on_sqlite):
    """Spans keep coming between a look and the wait after it; the last one always ends the waiting."""
    for round_ in range(15):
        talk = f"grown-{round_}"
        ids = [os.urandom(8).hex() for _ in range(8)]
        traced = [make_span(conversation=talk, span_id=span_id, trace_id=f"{round_ + 1:032x}") for span_id in ids]
        ending = marker(talk, ids)
        ending.trace_id = os.urandom(16)
        assert on_sqlite.post(make_request(traced[0])).status_code == 200
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(on_sqlite.read, talk, wait=15, min_level=3, quiet=14)
            for span in (*traced[1:], ending):
                assert on_sqlite.post(make_request(span)).status_code == 200
            done = time.monotonic()
            assert asked.result(20).json()["completeness"]["level"] == 3
            assert time.monotonic() - done < 5


def test_a_refusal_stays_in_sight_however_long_one_waits(ingest, talk):
    assert ingest.post(b"broken").status_code == 400
    time.sleep(0.3)
    send(ingest, talk, "only")
    # The conversation began before the refusal; waiting must not move that moment.
    answer = ingest.read(talk, wait=10, quiet=1.0, since=0.6)
    completeness = answer.json()["completeness"]
    assert completeness["refused"] == 1
    assert completeness["complete"] is False
    assert "refused" in completeness["reasons"][0]


def test_a_refusal_is_remembered_by_the_server_that_comes_after(store):
    for expected in (200, 404):
        with serving(create_app(store, KeyRing({ACME: "acme"}))) as place:
            if expected == 200:
                assert place.post(b"broken").status_code == 400
            assert "1 requests were refused meanwhile, last: 400" in place.read("talk", since=60).json()["error"]


def test_how_soon_the_last_span_is_noticed_is_measured(on_sqlite, record_property):
    """No time is asserted but an absurd one: the benchmark is the place for numbers."""
    delays = []
    for number in range(20):
        talk, span_id = f"timed-{number}", os.urandom(8).hex()
        ending = marker(talk, [span_id])
        ending.trace_id = os.urandom(16)
        assert on_sqlite.post(make_request(ending)).status_code == 200
        noticed: list[float] = []

        def ask(talk: str = talk, noticed: list[float] = noticed) -> None:
            assert on_sqlite.read(talk, wait=10, min_level=3).json()["completeness"]["level"] == 3
            noticed.append(time.perf_counter())

        asker = threading.Thread(target=ask)
        asker.start()
        time.sleep(0.05)
        last = make_span(conversation=talk, span_id=span_id, trace_id=os.urandom(16).hex())
        assert on_sqlite.post(make_request(last)).status_code == 200
        stored = time.perf_counter()
        asker.join()
        delays.append((noticed[0] - stored) * 1000)
    record_property("median_ms", round(statistics.median(delays), 1))
    record_property("worst_ms", round(max(delays), 1))
    assert statistics.median(delays) < 1000


def test_many_wait_at_once_and_none_holds_up_another(on_sqlite):
    count = 40
    with ThreadPoolExecutor(count) as pool:
        asked = [pool.submit(on_sqlite.read, f"many-{n}", wait=20, first=20, quiet=0) for n in range(count)]
        time.sleep(0.5)
        began = time.monotonic()
        for number in range(count):
            send(on_sqlite, f"many-{number}", "x")
        assert {answer.result(20).status_code for answer in asked} == {200}
        assert time.monotonic() - began < 10


# Sealing


def test_what_is_graded_is_sealed_and_what_comes_later_shows(ingest, talk):
    send(ingest, talk, "one", "two")
    graded = ingest.read(talk, quiet=0, seal="trial-1").json()
    digest = graded["completeness"]["digest"]
    assert ingest.read(talk, view="digest").json() == {"conversation_id": talk, "digest": digest}
    send(ingest, talk, "three")
    assert ingest.read(talk, view="digest").json()["digest"] != digest
    again = ingest.read(talk, quiet=0, seal="trial-1").json()
    assert {span["name"]: span["late"] for span in again["spans"]} == {"one": False, "two": False, "three": True}
    assert again["completeness"]["late"] == 1
    assert again["completeness"]["digest"] != digest


def test_many_conversations_are_looked_at_again_in_one_question(ingest, talk):
    send(ingest, talk, "one")
    answer = ingest.get("/v1/digests", tenant="acme", id=[talk, "never", "a\x00b"]).json()
    assert answer["digests"] == {each: ingest.read(each, view="digest").json()["digest"] for each in (talk, "never")}
    assert answer["digests"][talk] != answer["digests"]["never"]


@pytest.mark.parametrize("ids", [[], ["c"] * 101])
def test_too_many_digests_at_once_or_none_are_refused(on_sqlite, ids):
    answer = on_sqlite.get("/v1/digests", tenant="acme", id=ids)
    assert answer.status_code == 400
    assert answer.json()["error"] == f"id: expected 1 to 100 conversations, got {len(ids)}"


def test_a_conversation_is_graded_as_one_trial_only(ingest, talk):
    send(ingest, talk, "one")
    assert ingest.read(talk, quiet=0, seal="trial-1").status_code == 200
    began = time.monotonic()
    answer = ingest.read(talk, wait=20, seal="trial-2")
    assert answer.status_code == 409
    assert answer.json()["error"] == f"conversation {talk} was graded before, as trial trial-1"
    assert time.monotonic() - began < 5
    assert ingest.read(talk).status_code == 200


def test_what_is_not_complete_is_not_sealed(ingest, talk):
    send(ingest, talk, "one")
    assert "digest" not in ingest.read(talk, seal="trial-1").json()["completeness"]
    assert ingest.read(talk, quiet=0, seal="trial-2").status_code == 200


# What cannot be asked


@pytest.mark.parametrize(
    "params",
    [
        {"wait": "soon"},
        {"wait": "-1"},
        {"wait": "nan"},
        {"wait": "inf"},
        {"wait": "1e999"},
        {"wait": "1_0"},
        {"wait": " 1"},
        {"wait": "\u0661"},
        {"wait": ""},
        {"first": "x"},
        {"quiet": "-0.1"},
        {"since": "9" * 5000},
        {"min_level": "4"},
        {"min_level": "-1"},
        {"min_level": "2.5"},
        {"turns": "two"},
        {"turns": "1e3"},
        {"turns": "9" * 5000},
        {"view": "everything"},
        {"seal": "a\x00b"},
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_by_name(on_sqlite, params, talk):
    send(on_sqlite, talk, "one")
    answer = on_sqlite.read(talk, **params)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(f"{next(iter(params))}: expected")


@pytest.mark.parametrize("params", [{"limit": "0"}, {"limit": "1001"}, {"limit": "x"}, {"before": "-1"}])
def test_a_page_that_makes_no_sense_is_refused_by_name(on_sqlite, params):
    answer = on_sqlite.get("/v1/conversations", tenant="acme", **params)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(f"{next(iter(params))}: expected")


def test_parameters_that_nobody_knows_are_left_alone(on_sqlite, talk):
    send(on_sqlite, talk, "one")
    assert on_sqlite.read(talk, future="x", wait="0", turns="1", traces="a,,B", since="1e2").status_code == 200


@pytest.mark.parametrize("conversation", ["a\x00b", "\x00", "x" * 5000, "\ud83d"])
def test_an_id_that_cannot_be_stored_is_not_found(ingest, conversation):
    path = "/v1/conversations/" + "".join(f"%{byte:02X}" for byte in conversation.encode("utf-8", "surrogatepass"))
    for params in ({}, {"view": "digest"}, {"seal": "x"}):
        answer = ingest.get(path, tenant="acme", **params)
        assert answer.status_code in (200, 404)
        assert answer.headers["content-type"] == "application/json"


# The other pages


def test_conversations_are_listed_newest_first_and_by_pages(fresh):
    for number in range(5):
        send(fresh, f"talk-{number}", "x")
    first = fresh.get("/v1/conversations", tenant="acme", limit=3).json()
    assert [row["conversation_id"] for row in first["conversations"]] == ["talk-4", "talk-3", "talk-2"]
    second = fresh.get("/v1/conversations", tenant="acme", limit=3, before=first["next_before"]).json()
    assert [row["conversation_id"] for row in second["conversations"]] == ["talk-1", "talk-0"]
    assert second["next_before"] is None
    assert second["conversations"][0]["spans"] == 1


def test_health_and_readiness_ask_for_no_key(ingest):
    assert ingest.client.get("/healthz").json() == {"status": "ok"}
    assert ingest.client.get("/readyz").json() == {"status": "ready"}


def test_without_its_database_it_lives_but_is_not_ready(tmp_path):
    from sqlalchemy import text

    store = SpanStore(f"sqlite:///{tmp_path / 'spans.db'}")
    with serving(create_app(store, KeyRing({ACME: "acme"}))) as place:
        with store.engine.begin() as connection:
            connection.execute(text("ALTER TABLE span RENAME TO span_away"))
        for answer in (place.read("talk"), place.get("/v1/conversations", tenant="acme")):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json() == {"error": "the database does not answer; come back in a second"}
        assert place.post(make_request(make_span())).status_code == 503
        assert place.get("/healthz").status_code == 200
    store.close()


def test_counters_count(fresh, talk):
    span = make_span(conversation=talk)
    for body in (make_request(span), make_request(span), make_request(make_span("other", conversation=talk))):
        assert fresh.post(body).status_code == 200
    assert fresh.post(b"broken").status_code == 400
    assert fresh.post(b"", key="wrong").status_code == 401
    assert fresh.read(talk).status_code == 200
    shown = fresh.get("/metrics")
    assert shown.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = shown.text.splitlines()
    for expected in (
        'sonar_ingest_requests_total{status="200"} 3',
        'sonar_ingest_requests_total{status="400"} 1',
        'sonar_ingest_requests_total{status="401"} 1',
        'sonar_ingest_spans_total{result="stored"} 1',
        'sonar_ingest_spans_total{result="repeated"} 1',
        'sonar_ingest_spans_total{result="conflicting"} 1',
        'sonar_ingest_queries_total{status="200"} 1',
        "# TYPE sonar_ingest_spans_total counter",
    ):
        assert expected in lines
    assert all(line.startswith("#") or line.rsplit(" ", 1)[1].isdigit() for line in lines)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/v1/conversations", 405),
        ("DELETE", "/v1/conversations/talk", 405),
        ("PUT", "/healthz", 405),
    ],
)
def test_what_is_not_there_is_said_in_json(on_sqlite, method, path, status):
    answer = on_sqlite.client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    if status == 405:
        assert "GET" in answer.headers["allow"]


KNOWN = """
[parameters]
"query.tenant" = "acme"
"query.wait" = 0
"path.conversation_id" = "TALK"
"""


@pytest.mark.parametrize("known", ["", KNOWN], ids=["anything", "the conversation that is there"])
def test_the_description_is_kept_to_whatever_is_asked(on_sqlite, talk, tmp_path, known):
    pytest.importorskip("schemathesis")
    send(on_sqlite, talk, "one", "two")
    answered = on_sqlite.metric("sonar_ingest_queries_total", 'status="200"')
    (tmp_path / "schemathesis.toml").write_text(known.replace("TALK", talk))
    command = [sys.executable, "-m", "schemathesis.cli", "run", on_sqlite.url + "/openapi.json", "--seed", "7"]
    command += ["--header", f"x-sonar-api-key: {ACME}", "--max-examples", "25", "--suppress-health-check", "all"]
    tried = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert tried.returncode == 0, tried.stdout[-4000:] + tried.stderr[-1000:]
    assert "5 selected / 5 total" in tried.stdout
    if known:
        assert on_sqlite.metric("sonar_ingest_queries_total", 'status="200"') > answered + 50


# Size


def long_talk(count: int) -> list[Span]:
    attributes = {"sonar.conversation.id": "talk", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"}
    attributes |= {"gen_ai.tool.call.arguments": '{"order_id": "42"}', "gen_ai.tool.call.result": "x" * 200}
    return [
        Span(
            f"{number // 50 + 1:032x}",
            f"{number + 1:016x}",
            None,
            f"n{number}",
            1,
            number,
            number + 1,
            attributes=attributes,
        )
        for number in range(count)
    ]


@slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_conversation_of_a_hundred_thousand_spans_is_shown_and_one_more_is_too_large(request, tmp_path, kind):
    from databases import new_url

    url = new_url(request, kind, tmp_path)
    store = SpanStore(url)
    spans = long_talk(100_001)
    for start in range(0, 100_000, 5_000):
        store.add("local", spans[start : start + 5_000])
    with ServerProcess(url, log=tmp_path / "log") as server, server.place() as place:
        place.client.timeout = 300
        answer = place.read("talk", tenant="local", key=None)
        assert answer.status_code == 200
        assert len(answer.json()["spans"]) == 100_000
        del answer
        assert server.resident_mb(peak=True) < 1500
        store.add("local", spans[100_000:100_001])
        # Many at once must not need many times as much.
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: place.read("talk", tenant="local", key=None), range(4)))
        assert {answer.status_code for answer in answers} == {413}
        assert "100000 spans" in answers[0].json()["error"]
        assert server.resident_mb(peak=True) < 1500
        assert place.post(make_request(make_span(conversation="c")), key=None).status_code == 200
    store.close()
