"""Asking the ingest for a trace, waiting until it is whole, and failing in words."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpx
import pytest

from fakes import run, tool_span
from sonar_eval import EmptyTranscriptError, IngestClient, Transcript, no_tool_errors
from sonar_eval.conversation import ConversationLog
from sonar_eval.errors import IngestError

KEY = "sk-very-secret-key"
URL = "http://ingest.test"
RUN = {"trace_id": "t1", "input_tokens": 3, "output_tokens": 1}
T0 = tool_span("look_up", span_id="t0")
T1 = tool_span("refund", success=False, span_id="t1")


class Source(IngestClient):
    """An ingest whose successive answers are given; the last one repeats."""

    def __init__(self, answers: Iterable[Transcript | Exception], **settings: Any) -> None:
        super().__init__(URL, "acme", **settings)
        self.answers = list(answers)
        self.asked: list[str] = []

    async def fetch(self, conversation_id: str) -> Transcript:
        self.asked.append(conversation_id)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def nothing() -> Transcript:
    return Transcript("conv-1")


def seen(*spans: dict[str, Any]) -> Transcript:
    return Transcript("conv-1", runs=[dict(RUN)], spans=[dict(span) for span in spans])


def answering(handle: Callable[[httpx.Request], httpx.Response], **settings: Any) -> IngestClient:
    return IngestClient(URL, "acme", transport=httpx.MockTransport(handle), **settings)


def always(*answer: Any, **response: Any) -> IngestClient:
    return answering(lambda request: httpx.Response(*answer, **response), api_key=KEY)


def test_digests_are_asked_for_in_portions_and_an_older_server_has_none():
    asked: list[list[str]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params.get_list("id"))
        return httpx.Response(200, json={"digests": {each: f"d{each}" for each in asked[-1]}})

    found = run(answering(handle).digests([str(number) for number in range(150)]))
    assert [len(portion) for portion in asked] == [100, 50]
    assert found["149"] == "d149"
    assert run(always(404).digests(["a"])) == {}


def test_one_question_names_conversation_tenant_and_key():
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={"runs": [RUN], "spans": [T0], "content": []})

    client = answering(answer, api_key=KEY, api_key_header="X-Team-Key")
    transcript = run(client.fetch("conv/1 é?#"))
    (request,) = requests
    assert request.method == "GET"
    assert request.url.raw_path.startswith(b"/v1/conversations/conv%2F1%20%C3%A9%3F%23?")
    assert request.url.params.get_list("tenant") == ["acme"]
    assert request.headers["x-team-key"] == KEY
    assert (transcript.conversation_id, transcript.runs, transcript.spans) == ("conv/1 é?#", [RUN], [T0])


def test_without_a_key_no_header_is_sent():
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(404)

    run(answering(answer).fetch("conv-1"))
    assert "x-sonar-api-key" not in requests[0].headers


@pytest.mark.parametrize("answer", [{}, {"runs": [], "spans": []}, {"runs": [], "spans": [], "content": [], "more": 1}])
def test_an_answer_with_keys_missing_or_unknown_is_read(answer):
    assert run(always(200, json=answer).fetch("conv-1")).is_empty


def test_an_unknown_conversation_is_an_empty_transcript():
    assert run(always(404, text="no such conversation").fetch("conv-1")) == nothing()


def test_what_the_ingest_says_of_completeness_is_kept():
    told = {"level": 0, "complete": False, "reasons": ["lost"]}
    transcript = run(always(200, json={"runs": [RUN], "completeness": told}).fetch("conv-1"))
    assert transcript.completeness == told
    assert transcript.incomplete


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(401, text="no valid key"), "401.*no valid key"),
        (httpx.Response(403, text="no"), "403"),
        (httpx.Response(500, text="it broke"), "500.*it broke"),
        (httpx.Response(302, headers={"location": "/login"}), "302"),
        (httpx.Response(200, text="<html>welcome</html>"), "cannot be read"),
        (httpx.Response(200, content=b"\xff\xfe"), "cannot be read"),
        (httpx.Response(200, json=[]), "runs"),
        (httpx.Response(200, json="hi"), "runs"),
        (httpx.Response(200, json={"runs": 5}), "runs"),
        (httpx.Response(200, json={"runs": [], "spans": [1]}), "spans"),
        (httpx.Response(200, json={"runs": [], "spans": [], "content": {}}), "content"),
        (httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no")), "Decoding"),
    ],
)
def test_an_ingest_that_refuses_or_talks_nonsense_is_an_error_in_words(answer, said):
    client = answering(lambda request: answer, api_key=KEY)
    with pytest.raises(IngestError, match=said) as caught:
        run(client.fetch("conv-1"))
    assert not isinstance(caught.value, EmptyTranscriptError)
    assert KEY not in str(caught.value)


def test_an_ingest_that_is_not_there_is_named():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(IngestError, match=rf"{url}.*ConnectError"):
        run(IngestClient(url, "acme").fetch("conv-1"))


def test_an_ingest_that_hangs_is_an_error_with_words():
    def slow(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    with pytest.raises(IngestError, match="ReadTimeout"):
        run(answering(slow).fetch("conv-1"))


def test_a_slow_answer_has_more_than_a_few_seconds():
    waits: list[float | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        waits.append(request.extensions["timeout"]["read"])
        return httpx.Response(404)

    run(answering(answer).fetch("conv-1"))
    assert waits[0] is not None
    assert waits[0] >= 30


def test_the_key_is_in_no_description_and_no_error():
    client = always(500, text=f"the key {KEY} is known")
    assert KEY not in repr(client)
    assert URL in repr(client)
    with pytest.raises(IngestError) as caught:
        run(client.pull("conv-1", retries=2, delay=0))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("kept", [4, 10, len(KEY)])
def test_not_even_a_part_of_the_key_is_left_where_a_long_answer_is_cut(kept):
    with pytest.raises(IngestError) as caught:
        run(always(500, text="x" * (500 - kept) + KEY).fetch("conv-1"))
    assert KEY[:4] not in str(caught.value)


def test_a_key_that_no_header_takes_is_not_told():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(IngestError, match="header") as caught:
            run(IngestClient(url, "acme", api_key=f"sk-1\n{KEY}").fetch("conv-1"))
    assert KEY not in str(caught.value)


def test_a_key_with_a_line_break_after_it_works():
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(404)

    run(answering(answer, api_key=KEY + "\n").fetch("conv-1"))
    assert requests[0].headers["x-sonar-api-key"] == KEY


@pytest.mark.parametrize("retries", [1, 2, 7])
def test_with_nothing_there_it_asks_exactly_as_often_as_told(retries):
    source = Source([nothing()])
    with pytest.raises(EmptyTranscriptError, match=r"conv-1.*'acme'") as caught:
        run(source.pull("conv-1", retries=retries, delay=0))
    assert source.asked == ["conv-1"] * retries
    assert isinstance(caught.value, RuntimeError)


def test_by_default_it_asks_ten_times():
    source = Source([nothing()])
    with pytest.raises(EmptyTranscriptError):
        run(source.pull("conv-1", delay=0))
    assert len(source.asked) == 10


def test_it_waits_between_tries():
    source = Source([nothing()])
    started = time.monotonic()
    with pytest.raises(EmptyTranscriptError):
        run(source.pull("conv-1", retries=3, delay=0.05))
    assert 0.1 <= time.monotonic() - started < 5


def test_without_a_delay_the_first_answer_that_is_not_empty_is_handed_on_itself():
    first = seen(T0)
    source = Source([nothing(), first, seen(T0, T1)])
    assert run(source.pull("conv-1", delay=0)) is first
    assert len(source.asked) == 2


def test_a_trace_that_still_grows_is_waited_for():
    source = Source([nothing(), seen(), seen(T0), seen(T0, T1), seen(T0, T1)])
    transcript = run(source.pull("conv-1", delay=0.01))
    assert [call.name for call in transcript.tool_calls] == ["look_up", "refund"]
    assert not no_tool_errors()(transcript, ConversationLog("conv-1"))
    assert not transcript.incomplete


def test_a_trace_that_is_whole_at_once_costs_one_more_question():
    source = Source([seen(T0)])
    assert run(source.pull("conv-1", delay=0.01)) == seen(T0)
    assert len(source.asked) == 2


def test_a_trace_whose_rows_change_without_growing_is_waited_for_too():
    changed = {**T0, "tool_success": False}
    source = Source([seen(T0), seen(changed), seen(changed)])
    (call,) = run(source.pull("conv-1", delay=0.01)).tool_calls
    assert call.success is False


def test_a_trace_that_never_stops_growing_is_marked_incomplete():
    class Growing(Source):
        async def fetch(self, conversation_id: str) -> Transcript:
            await super().fetch(conversation_id)
            return seen(*(tool_span("t", span_id=str(n)) for n in range(len(self.asked))))

    source = Growing([nothing()], settle_timeout_s=0.1)
    started = time.monotonic()
    transcript = run(source.pull("conv-1", delay=0.02))
    assert time.monotonic() - started < 10
    assert transcript.incomplete
    assert transcript.completeness is not None
    assert "still arriving" in transcript.completeness["reasons"][0]
    assert len(transcript.tool_calls) == len(source.asked)


def test_the_quiet_time_can_be_set():
    source = Source([seen(T0)], quiet_s=0.1)
    started = time.monotonic()
    run(source.pull("conv-1", delay=0.001))
    assert time.monotonic() - started >= 0.1


def test_an_ingest_that_fails_at_first_is_asked_again():
    source = Source([IngestError("busy"), nothing(), seen(T0)])
    assert len(run(source.pull("conv-1", delay=0)).spans) == 1


def test_an_ingest_that_fails_to_the_end_is_no_empty_transcript():
    source = Source([IngestError("busy")])
    with pytest.raises(IngestError, match="busy") as caught:
        run(source.pull("conv-1", retries=3, delay=0))
    assert not isinstance(caught.value, EmptyTranscriptError)
    assert len(source.asked) == 3


def test_an_ingest_that_recovers_and_holds_nothing_is_an_empty_transcript():
    with pytest.raises(EmptyTranscriptError):
        run(Source([IngestError("busy"), nothing()]).pull("conv-1", retries=3, delay=0))


def test_one_client_pulls_several_conversations_at_once():
    class ByName(IngestClient):
        async def fetch(self, conversation_id: str) -> Transcript:
            await asyncio.sleep(0)
            return Transcript(conversation_id, runs=[{"trace_id": conversation_id}])

    async def story() -> list[Transcript]:
        client = ByName(URL, "acme")
        return await asyncio.gather(*(client.pull(name, delay=0.01) for name in "abc"))

    assert [transcript.conversation_id for transcript in run(story())] == ["a", "b", "c"]
