"""Counting spans in the bot's process."""

import subprocess
import sys
import threading
import time

import pytest
from opentelemetry.sdk.trace import TracerProvider

from fakes import RecordingBot, run
from sonar_eval import Delivered, FormSubmission, Session
from sonar_eval.appside import CountedAdapter, CountingSpanProcessor, count_spans, end_trial
from sonar_eval.transcript import wire

IN_C = {"sonar.conversation.id": "c"}


@pytest.fixture
def counter():
    return CountingSpanProcessor()


@pytest.fixture
def tracer(counter):
    provider = TracerProvider()
    provider.add_span_processor(counter)
    yield provider.get_tracer("test")
    provider.shutdown()


def test_spans_of_a_conversation_are_counted_and_others_are_not(counter, tracer):
    ids = []
    for _ in range(3):
        with tracer.start_as_current_span("a", attributes=IN_C) as span:
            ids.append(span.get_span_context().span_id)
    tracer.start_span("stray").end()
    count = counter.take("c")
    assert (count.started, count.ended) == (3, 3)
    assert count.xor == ids[0] ^ ids[1] ^ ids[2]
    assert counter.take("c") is None


def test_the_end_marker_does_not_count_itself(counter, tracer):
    tracer.start_span(wire.MARKER_NAME, attributes=IN_C).end()
    assert counter.take("c") is None


def test_a_span_that_is_open_is_waited_for(counter, tracer):
    span = tracer.start_span("slow", attributes=IN_C)
    assert counter.has_open("c")
    assert not counter.wait_until_ended("c", 0.01)
    threading.Timer(0.05, span.end).start()
    assert counter.wait_until_ended("c", 5)
    assert not counter.has_open("c")


def test_a_span_that_never_ends_is_told_apart(counter, tracer):
    hanging = tracer.start_span("hangs", attributes=IN_C)
    tracer.start_span("done", attributes=IN_C).end()
    count = counter.take("c")
    assert (count.started, count.ended) == (2, 1)
    hanging.end()


def test_conversations_at_the_same_time_are_counted_apart(counter, tracer):
    def work(name):
        for _ in range(200):
            tracer.start_span("a", attributes={"sonar.conversation.id": name}).end()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [counter.take(name).started for name in "abcd"] == [200] * 4


def test_a_forked_child_starts_at_nothing():
    script = """
import os
from opentelemetry.sdk.trace import TracerProvider
from sonar_eval.appside import CountingSpanProcessor
counter, provider = CountingSpanProcessor(), TracerProvider()
provider.add_span_processor(counter)
provider.get_tracer("t").start_span("a", attributes={"sonar.conversation.id": "c"}).end()
before = counter.process_id
child = os.fork()
if child == 0:
    os._exit(0 if counter.take("c") is None and counter.process_id != before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert counter.take("c").started == 1
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_without_tracing_there_is_nothing_to_install_and_no_marker():
    assert count_spans() is None
    assert run(end_trial("c")) is False


def test_a_counted_adapter_hands_everything_on_and_tears_down_even_when_that_fails():
    class Failing(RecordingBot):
        async def teardown_trial(self, session):
            await super().teardown_trial(session)
            raise RuntimeError("no")

    inner = Failing(Delivered(("hi",)))
    bot = CountedAdapter(inner)
    session = Session("c")
    assert run(bot.send(session, "hello")).messages == ("hi",)
    run(bot.send(session, "form", submission=FormSubmission("f", {})))
    assert inner.extras == [{}, {"submission": FormSubmission("f", {})}]
    with pytest.raises(RuntimeError, match="no"):
        run(bot.teardown_trial(session))
    assert inner.torn_down == [session]
    assert bot.name == inner.name


def test_an_adapter_without_a_name_is_counted_under_that_of_its_class():
    class Nameless:
        async def setup_trial(self, ctx):
            return Session(ctx.conversation_id)

        async def send(self, session, user_msg, media=None):
            return Delivered(("hi",))

        async def teardown_trial(self, session):
            pass

    bot = CountedAdapter(Nameless())
    assert bot.name == "Nameless"
    assert run(bot.send(Session("c"), "hello")).messages == ("hi",)


def test_a_counted_adapter_enters_and_leaves_the_one_it_holds():
    class Held(RecordingBot):
        steps: list[str]

        async def __aenter__(self):
            self.steps = ["in"]
            return self

        async def __aexit__(self, *_):
            self.steps.append("out")

    inner = Held()

    async def use():
        async with CountedAdapter(inner):
            assert inner.steps == ["in"]

    run(use())
    assert inner.steps == ["in", "out"]


def test_one_who_waits_in_vain_gives_up_in_time(counter, tracer):
    span = tracer.start_span("hangs", attributes=IN_C)
    began = time.monotonic()
    assert not counter.wait_until_ended("c", 0.2)
    assert time.monotonic() - began < 5
    span.end()
