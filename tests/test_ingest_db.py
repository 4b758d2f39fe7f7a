"""What the store of spans promises, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import SQLAlchemyError

from captures import PROTOBUF, make_request, make_span, make_tool
from fakes import run
from serving import ACME, reason, serving, slow
from sonar_eval.ingest import otlp
from sonar_eval.ingest.app import create_app
from sonar_eval.ingest.db import (
    Added,
    Batch,
    SpanStore,
    SpanWriter,
    TooLargeError,
    WriterClosedError,
)
from sonar_eval.ingest.keys import KeyRing
from sonar_eval.ingest.server import EmbeddedIngest
from sonar_eval.ingest.span import Span, SpanEvent

if TYPE_CHECKING:
    from databases import PostgreSQL

pytest_plugins = ["databases"]

OLD_FILE = Path(__file__).parent / "data" / "otlp" / "ingest-0.6.0.db"
"""Written by version 0.6.0 itself, out of what `old_spans` makes, and a span of another tenant."""
TALK = "talk"
TRACE = "ab" * 16


@pytest.fixture
def store(database_url: str) -> Iterator[SpanStore]:
    store = SpanStore(database_url)
    yield store
    store.close()


def span(number: int = 1, name: str = "work", *, talk: str | None = TALK, trace: str = TRACE, **more: Any) -> Span:
    named = {} if talk is None else {"sonar.conversation.id": talk}
    attributes = {**named, **more.pop("attributes", {})}
    return Span(trace, f"{number:016x}", None, name, attributes=attributes, **more)


def names(store: SpanStore, tenant: str = "acme", talk: str = TALK) -> list[str]:
    return [entry.span.name for entry in store.conversation(tenant, talk).spans]


def count(store: SpanStore, table: str) -> int:
    with store.engine.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())


def test_a_span_comes_back_as_it_went_in(store):
    whole = Span(
        TRACE,
        "01" * 8,
        "02" * 8,
        "näme\x00 \U0001f642 \u202e '; DROP TABLE span; -- \\N \t\r\n",
        3,
        5,
        2**64 - 1,
        "ERROR",
        "why\x00",
        {
            "sonar.conversation.id": TALK,
            "key \x00 \\.": [1, -(2**63), 2**63 - 1, 1.5, True, None, "x\x00"],
            "map": {"a": {"b": []}},
        },
        (SpanEvent("e\x00", 2**64 - 1, {"k": "\\.\n"}),),
        0x301,
        "scope",
        {"service.name": "bot"},
    )
    assert store.add("acme", [whole]) == Added(1)
    (back,) = store.conversation("acme", TALK).spans
    assert back.span == whole
    assert (back.conflict, back.late) == (False, False)


def test_times_beyond_the_signed_range_are_kept(store):
    store.add("acme", [span(1, start_ns=2**64 - 1, end_ns=2**64 - 1), span(2, start_ns=2**63)])
    assert {entry.span.start_ns for entry in store.conversation("acme", TALK).spans} == {2**64 - 1, 2**63}


def test_the_first_write_wins_and_a_contradiction_is_flagged(store):
    assert store.add("acme", [span(1, status="ERROR"), span(2)]) == Added(2)
    assert store.add("acme", [span(1, status="OK"), span(2), span(3)]) == Added(1, 1, 1)
    found = {entry.span.span_id[-1]: entry for entry in store.conversation("acme", TALK).spans}
    assert {key: (entry.span.status, entry.conflict) for key, entry in found.items()} == {
        "1": ("ERROR", True),
        "2": ("UNSET", False),
        "3": ("UNSET", False),
    }


def test_a_contradiction_inside_one_request_is_flagged_too(store):
    assert store.add("acme", [span(1, "first"), span(1, "second"), span(1, "first")]) == Added(1, 1, 1)
    (kept,) = store.conversation("acme", TALK).spans
    assert (kept.span.name, kept.conflict) == ("first", True)


def test_a_contradiction_between_requests_of_one_transaction_is_the_later_ones(store):
    batches = [
        Batch("acme", [span(1, "first")]),
        Batch("acme", [span(1, "second"), span(2)]),
        Batch("other", [span(1)]),
    ]
    assert store.add_all(batches) == [Added(1), Added(1, 0, 1), Added(1)]
    assert [(entry.span.name, entry.conflict) for entry in store.conversation("acme", TALK).spans] == [
        ("first", True),
        ("work", False),
    ]
    assert [entry.conflict for entry in store.conversation("other", TALK).spans] == [False]


def test_who_repeats_what_was_there_is_told_apart_from_who_contradicts_it(store):
    store.add("acme", [span(1, "first")])
    batches = [Batch("acme", [span(1, "second")]), Batch("acme", [span(1, "first")])]
    assert store.add_all(batches) == [Added(0, 0, 1), Added(0, 1, 0)]


def test_duplicates_in_one_request_are_stored_once(store):
    assert store.add("acme", [span(1)] * 3 + [span(2)]) == Added(2, 2)
    assert count(store, "span") == 2
    assert count(store, "span_conflict") == 0


def test_nothing_is_added_as_nothing(store):
    assert store.add("acme", []) == Added(0)
    assert store.add_all([]) == []


@pytest.mark.parametrize("size", [1, 39, 40, 41, 600])
def test_many_spans_go_in_whichever_way_is_fastest(store, size):
    assert store.add("acme", [span(number) for number in range(1, size + 1)]) == Added(size)
    more = [span(number) for number in range(1, size + 51)]
    assert store.add("acme", more) == Added(50, size)
    changed = [span(number, "other") for number in range(1, size + 51)]
    assert store.add("acme", changed) == Added(0, 0, size + 50)
    assert count(store, "span") == size + 50
    assert all(entry.conflict for entry in store.conversation("acme", TALK).spans)


def test_a_request_of_ten_thousand_spans_is_one_transaction(store):
    assert store.add("acme", [span(number, f"n{number}\x00\t\\") for number in range(1, 10_001)]) == Added(10_000)
    assert len(set(names(store))) == 10_000


def test_tenants_share_nothing(store):
    store.add("acme", [span(1, "ours")])
    assert store.add("other", [span(1, "theirs")]) == Added(1)
    assert (names(store), names(store, "other"), names(store, "third")) == (["ours"], ["theirs"], [])
    assert store.digest("acme", TALK) != store.digest("other", TALK)
    assert [row.spans for row in store.list_conversations("acme", limit=10)] == [1]


def test_a_stray_span_belongs_to_the_only_conversation_of_its_trace(store):
    store.add("acme", [span(1, "stray", talk=None), span(2, "named")])
    store.add("other", [span(3, "theirs", talk="another")])
    assert sorted(names(store)) == ["named", "stray"]
    alone = store.digest("acme", TALK)
    store.add("acme", [span(4, "elsewhere", talk="another")])
    assert names(store) == ["named"]
    assert names(store, talk="another") == ["elsewhere"]
    assert store.digest("acme", TALK) != alone
    assert store.digest("acme", TALK) == store.conversation("acme", TALK).digest


def test_digests_asked_together_are_those_asked_one_by_one(store):
    talks = [f"talk-{number}" for number in range(45)]
    for number, talk in enumerate(talks):
        store.add("acme", [span(2 * number, talk=talk, trace=f"{number:032x}")])
    # A stray in a trace of one conversation, and a trace that two of them share.
    store.add("acme", [span(201, talk=None, trace=f"{3:032x}"), span(202, talk="talk-4", trace=f"{5:032x}")])
    store.add("acme", [span(203, talk=None, trace=f"{5:032x}")])
    asked = [*talks, "never"]
    together = store.digests("acme", asked)
    assert list(together) == asked
    assert together == {talk: store.conversation("acme", talk).digest for talk in asked}
    assert len(set(together.values())) == len(asked)


def test_spans_come_oldest_first_and_in_order_of_arrival_when_they_are_as_old(store):
    store.add("acme", [span(3, "c", start_ns=2), span(1, "b", start_ns=1)])
    store.add("acme", [span(2, "d", start_ns=2), span(4, "a", start_ns=0)])
    assert names(store) == ["a", "b", "c", "d"]


def test_conversations_are_told_apart_byte_by_byte(store):
    for number, talk in enumerate(("a", "A", "a ", "á", "a\u0301", "a%", "a_")):
        store.add("acme", [span(number, talk, talk=talk, trace=f"{number:032x}")])
    for talk in ("a", "A", "a ", "á", "a\u0301", "a%", "a_"):
        assert names(store, talk=talk) == [talk]


def test_what_comes_after_the_seal_is_late(store):
    store.add("acme", [span(1), span(2)])
    seen = store.conversation("acme", TALK)
    assert seen.sealed_as is None
    sealed = store.seal("acme", TALK, "trial-1", seen)
    assert (sealed.trial_id, sealed.digest) == ("trial-1", store.digest("acme", TALK))
    store.add("acme", [span(3)])
    after = store.conversation("acme", TALK)
    assert [entry.late for entry in after.spans] == [False, False, True]
    assert after.sealed_as == "trial-1"
    assert after.digest == store.digest("acme", TALK) != sealed.digest


def test_what_comes_between_the_look_and_its_seal_is_late(store):
    store.add("acme", [span(1)])
    seen = store.conversation("acme", TALK)
    store.add("acme", [span(2, "unseen")])
    assert store.seal("acme", TALK, "trial-1", seen).digest == seen.digest
    assert [(entry.span.name, entry.late) for entry in store.conversation("acme", TALK).spans] == [
        ("work", False),
        ("unseen", True),
    ]


def test_the_first_seal_stays(store):
    store.add("acme", [span(1)])
    first = store.seal("acme", TALK, "trial-1", store.conversation("acme", TALK))
    store.add("acme", [span(2)])
    assert store.seal("acme", TALK, "trial-2", store.conversation("acme", TALK)) == first
    assert store.seal("acme", TALK, "trial-1", store.conversation("acme", TALK)) == first
    assert store.seal("other", TALK, "trial-2", store.conversation("other", TALK)).trial_id == "trial-2"


def test_many_who_seal_at_once_agree_on_one(store):
    store.add("acme", [span(1)])
    seen = store.conversation("acme", TALK)
    with ThreadPoolExecutor(8) as pool:
        sealed = list(pool.map(lambda number: store.seal("acme", TALK, f"trial-{number}", seen), range(8)))
    assert len(set(sealed)) == 1


def test_a_digest_tells_contents_and_ids_and_nothing_else(store):
    store.add("acme", [span(1), span(2)])
    digest = store.digest("acme", TALK)
    store.add("acme", [span(1), span(2, "contradicts")])
    assert store.digest("acme", TALK) == digest
    store.add("other", [span(2), span(1)])
    assert store.digest("other", TALK) == digest
    store.add("third", [span(1), span(2, "else")])
    assert store.digest("third", TALK) != digest


def test_conversations_are_listed_by_pages_the_one_that_grew_last_first(store):
    for number in range(7):
        store.add("acme", [span(number, talk=f"talk-{number}", trace=f"{number:032x}")])
    store.add("acme", [span(99, talk="talk-0", trace="0" * 31 + "1"), span(98, talk=None, trace="ff" * 16)])
    store.add("other", [span(1, talk="theirs")])
    listed: list[str] = []
    before = None
    while page := store.list_conversations("acme", limit=3, before=before):
        assert len(page) <= 3
        listed += [row.conversation_id for row in page]
        before = page[-1].last_seq
    assert listed == ["talk-0", "talk-6", "talk-5", "talk-4", "talk-3", "talk-2", "talk-1"]
    newest = store.list_conversations("acme", limit=1)[0]
    assert newest.spans == 2
    assert abs(newest.last_received_at - time.time()) < 60


def test_more_spans_or_bytes_than_asked_for_are_refused(store):
    store.add("acme", [span(number, "x" * 1000) for number in range(1, 11)])
    assert len(store.conversation("acme", TALK, most_spans=10, most_bytes=100_000).spans) == 10
    with pytest.raises(TooLargeError, match="9 spans"):
        store.conversation("acme", TALK, most_spans=9)
    with pytest.raises(TooLargeError, match="beyond what is shown"):
        store.conversation("acme", TALK, most_bytes=5_000)


def test_a_conversation_that_is_read_in_portions_is_the_same(store):
    received = [span(number, f"{number}" * 900_000) for number in range(1, 8)]
    store.add("acme", received)
    seen = store.conversation("acme", TALK)
    store.seal("acme", TALK, "trial-1", seen)
    again = store.conversation("acme", TALK)
    assert [entry.span for entry in seen.spans] == received
    assert again.sealed_as == "trial-1"
    assert again.digest == seen.digest == store.digest("acme", TALK)


def test_many_strays_in_a_trace_count_as_well(store):
    store.add("acme", [span(1)] + [span(number, talk=None) for number in range(2, 13)])
    with pytest.raises(TooLargeError):
        store.conversation("acme", TALK, most_spans=10)


def test_refusals_are_kept_for_a_restart_and_only_so_many(store):
    store.refuse("acme", 413, "too \x00 large".replace("\x00", ""), 3)
    store.refuse("other", 400, "x" * 10_000)
    first, second = store.refusals(time.time() - 60)
    assert (first.tenant, first.status, first.reason) == ("acme", 413, "too  large")
    assert len(second.reason) == 500
    assert store.refusals(time.time() + 60) == []


def test_a_conversation_is_deleted_with_all_that_was_derived(store):
    store.add("acme", [span(1), span(2, talk=None), span(3, talk="kept", trace="cd" * 16)])
    store.add("other", [span(1)])
    store.add("acme", [span(1, "contradicts")])
    store.seal("acme", TALK, "trial-1", store.conversation("acme", TALK))
    assert store.delete(tenant="acme", conversation_id=TALK) == 2
    assert (names(store), names(store, talk="kept"), names(store, "other")) == ([], ["work"], ["work"])
    assert (count(store, "span_conflict"), count(store, "seal")) == (0, 0)
    store.add("acme", [span(1, "again")])
    assert store.conversation("acme", TALK).sealed_as is None


def test_a_tenant_is_deleted_with_its_refusals(store):
    for tenant in ("acme", "other"):
        store.add(tenant, [span(number, trace=f"{number:032x}") for number in range(5_000)])
        store.add(tenant, [span(1, "contradicts", trace=f"{1:032x}")])
        store.seal(tenant, TALK, "trial", store.conversation(tenant, TALK))
        store.refuse(tenant, 400, "why")
    assert store.delete(tenant="acme") == 5_000
    assert [count(store, table) for table in ("span", "span_conflict", "seal", "refusal")] == [5_000, 1, 1, 1]
    assert len(names(store, "other")) == 5_000


def test_what_is_old_is_deleted(store):
    store.add("acme", [span(1, "old")])
    store.refuse("acme", 400, "old")
    time.sleep(0.02)
    moment = time.time()
    store.add("acme", [span(2, "new")])
    store.add("other", [span(3, "theirs")])
    assert store.delete(tenant="other", older_than=moment) == 0
    assert store.delete(older_than=moment) == 1
    assert (names(store), names(store, "other"), count(store, "refusal")) == (["new"], ["theirs"], 0)


def test_deleting_nothing_in_particular_is_a_mistake(store):
    with pytest.raises(ValueError, match="a tenant or an age"):
        store.delete()


def test_others_write_while_much_is_deleted(store):
    store.add("acme", [span(number, trace=f"{number:032x}") for number in range(20_000)])
    done = threading.Event()
    waited: list[float] = []

    def write() -> None:
        number = 0
        while not done.is_set():
            began = time.monotonic()
            store.add("other", [span(number, trace=f"{number:032x}")])
            waited.append(time.monotonic() - began)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    assert store.delete(tenant="acme") == 20_000
    done.set()
    writer.join()
    assert len(waited) > 3
    assert len(names(store, "other")) == len(waited)


def test_writers_side_by_side_lose_and_double_nothing(store):
    def write(writer: int) -> None:
        for number in range(20):
            store.add("acme", [span(number, trace=f"{writer:032x}"), span(0, trace="ee" * 16)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(1, 9)))
    assert len(names(store)) == 161


def test_nothing_looks_through_the_whole_table(tmp_path):
    store = SpanStore(f"sqlite:///{tmp_path / 'spans.db'}")
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if not many and statement.startswith(("SELECT", "WITH", "DELETE", "INSERT", "UPDATE")):
            asked.append((statement, parameters))

    event.listen(store.engine, "before_cursor_execute", note)
    store.add("acme", [span(number) for number in range(1, 400)])
    store.add("acme", [span(number, "other") for number in range(1, 400)])
    store.seal("acme", TALK, "trial", store.conversation("acme", TALK))
    store.digest("acme", TALK)
    store.list_conversations("acme", limit=10)
    store.list_conversations("acme", limit=10, before=5)
    store.refuse("acme", 400, "why")
    store.delete(older_than=0.0)
    store.delete(tenant="acme", conversation_id=TALK)
    store.delete(tenant="acme")
    event.remove(store.engine, "before_cursor_execute", note)
    assert len(asked) > 15
    with store.engine.connect() as connection:
        for statement, parameters in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            assert not [row for row in plan if row[3].startswith("SCAN span ") or row[3] == "SCAN span"], statement
    store.close()


# Opening


def test_a_database_is_opened_again_as_it_was(database_url):
    for expected in (0, 1):
        store = SpanStore(database_url)
        assert len(names(store)) == expected
        store.add("acme", [span(1)])
        store.close()


def test_a_database_of_a_newer_version_is_refused_and_left_alone(database_url):
    store = SpanStore(database_url)
    store.add("acme", [span(1)])
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE schema_version SET version = 99"))
    store.close()
    with pytest.raises(RuntimeError, match="is of version 99, this program knows up to 2"):
        SpanStore(database_url)


OPEN = """
import sys
from sonar_eval.ingest.db import SpanStore
sys.stdin.readline()
store = SpanStore(sys.argv[1])
print(store.check() or "opened")
store.close()
"""


def open_at_once(url: str, processes: int = 4) -> None:
    command = [sys.executable, "-c", OPEN, url]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(processes)
    ]
    time.sleep(1)
    said = [process.communicate("go\n", timeout=60)[0] for process in running]
    assert said == ["opened\n"] * processes


def test_processes_that_open_a_new_database_at_once_agree(database_url):
    open_at_once(database_url)
    store = SpanStore(database_url)
    assert (count(store, "schema_version"), count(store, "span")) == (1, 0)
    store.close()


@pytest.fixture
def old_url(tmp_path: Path) -> str:
    shutil.copy(OLD_FILE, tmp_path / "old.db")
    return f"sqlite:///{tmp_path / 'old.db'}"


def old_spans() -> list[Span]:
    """Make what the old file was made of, as it arrives today."""
    call = {"gen_ai.operation.name": "invoke_agent", "n": 7, "f": 1.5, "b": b"\x00\xff", "l": [1, "zwei", None]}
    call |= {"m": {"k": True}, "nan": float("nan")}
    failed = ("exception", {"exception.type": "KeyError", "exception.message": "né \x00 🙂"})
    tool = {"parent": "01" * 8, "start_s": 0.1, "status": 2, "message": "no such order", "events": [failed]}
    clockless = make_span("no clock", span_id="04" * 8, conversation="order-7", start_s=0.3)
    clockless.end_time_unix_nano = 2**64 - 1
    request = make_request(
        make_span("turn", call, span_id="01" * 8, conversation="order-7"),
        make_tool("lookup_order", span_id="02" * 8, conversation="order-7", **tool),
        make_span("stray", span_id="03" * 8, parent="01" * 8, conversation=None, start_s=0.2),
        clockless,
        resource={"service.name": "bot", "sonar.framework": "strands"},
        scope="strands",
    )
    return otlp.Encoding(otlp.PROTOBUF).decode(request.SerializeToString()).spans


def test_a_file_of_version_0_6_0_is_brought_up_to_date(old_url):
    store = SpanStore(old_url)
    found = store.conversation("acme", "order-7").spans
    assert [entry.span for entry in found] == old_spans()
    assert [entry.span.name for entry in store.conversation("other", "order-7").spans] == ["theirs"]
    assert [row.spans for row in store.list_conversations("acme", limit=5)] == [3]
    store.close()


def test_spans_of_version_0_6_0_that_come_again_contradict_nothing(old_url):
    store = SpanStore(old_url)
    assert store.add("acme", old_spans()) == Added(0, 4)
    store.close()


def test_processes_that_open_an_old_file_at_once_bring_it_up_to_date_once(old_url):
    open_at_once(old_url)
    store = SpanStore(old_url)
    assert len(store.conversation("acme", "order-7").spans) == 4
    store.close()


def test_a_migration_that_fails_leaves_the_old_file_as_it_was(old_url, tmp_path):
    with sqlite3.connect(tmp_path / "old.db") as connection:
        connection.execute("UPDATE span SET body = 'no json' WHERE seq = 5")
    connection.close()
    with pytest.raises(ValueError, match="line 1 column"):
        SpanStore(old_url)
    connection = sqlite3.connect(tmp_path / "old.db")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert tables == {"span"}


@pytest.mark.parametrize("url", ["mysql://u:secret@h/x", "sqlite://", "sqlite:///:memory:", "duckdb:///x"])
def test_another_kind_of_database_is_refused_without_its_password(url):
    with pytest.raises(ValueError, match="expected sqlite:///FILE or postgresql") as refusal:
        SpanStore(url)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_every_spelling_of_a_postgresql_url_is_understood(postgresql: PostgreSQL, scheme):
    url = postgresql.new_database().replace("postgresql+psycopg", scheme) + "?application_name=mine&connect_timeout=3"
    store = SpanStore(url)
    with store.engine.connect() as connection:
        assert connection.execute(text("SHOW application_name")).scalar_one() == "mine"
    store.close()


def test_a_file_is_nobody_elses_to_read(tmp_path):
    store = SpanStore(f"sqlite:///{tmp_path / 'spans.db'}")
    store.add("acme", [span(1)])
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    store.close()
    assert modes == {0o600}


def test_what_is_deleted_is_not_left_in_the_file(tmp_path):
    store = SpanStore(f"sqlite:///{tmp_path / 'spans.db'}")
    store.add("acme", [span(number, "my-secret-words" * 50) for number in range(500)])
    assert any(b"my-secret-words" in path.read_bytes() for path in tmp_path.iterdir())
    store.delete(tenant="acme", conversation_id=TALK)
    assert not any(b"my-secret-words" in path.read_bytes() for path in tmp_path.iterdir())
    store.close()


# Trouble


@slow
def test_a_database_that_is_locked_is_answered_come_back_and_nothing_is_noted_as_lost(tmp_path):
    store = SpanStore(f"sqlite:///{tmp_path / 'spans.db'}")
    with serving(create_app(store, KeyRing({ACME: "acme"}))) as place:
        other = sqlite3.connect(tmp_path / "spans.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        answer = place.post(make_request(make_span(conversation=TALK)))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "could not be stored" in reason(answer)
        assert place.read(TALK, since=60).json()["error"] == "no such conversation"
        other.execute("ROLLBACK")
        other.close()
        assert place.post(make_request(make_span(conversation=TALK))).status_code == 200
        assert place.names(TALK) == ["work"]
    store.close()


def test_one_request_that_cannot_be_written_does_not_cost_its_neighbours(tmp_path):
    store = SpanStore(f"sqlite:///{tmp_path / 'spans.db'}")
    with store.engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TRIGGER poison BEFORE INSERT ON span WHEN NEW.body LIKE '%poison%' "
                "BEGIN SELECT RAISE(ABORT, 'poisoned'); END"
            )
        )
    writer = SpanWriter(store)
    gate = sqlite3.connect(tmp_path / "spans.db", isolation_level=None)

    async def write_together() -> list[Any]:
        # While the first one waits for the database, the others gather behind it.
        gate.execute("BEGIN IMMEDIATE")
        names = ["first", "good", "poison", "fine"]
        waiting = [asyncio.create_task(writer.add("acme", [span(n, name)])) for n, name in enumerate(names, 1)]
        await asyncio.sleep(0.2)
        gate.execute("ROLLBACK")
        return await asyncio.gather(*waiting, return_exceptions=True)

    first, good, poison, fine = run(write_together())
    gate.close()
    assert (first, good, fine) == (Added(1), Added(1), Added(1))
    assert isinstance(poison, SQLAlchemyError)
    assert "poison" not in str(poison).replace("poisoned", "")
    assert names(store) == ["first", "good", "fine"]
    writer.close()
    store.close()


def test_who_stops_waiting_does_not_stop_the_writer(store):
    writer = SpanWriter(store)

    async def give_up_and_go_on() -> Added:
        impatient = [asyncio.create_task(writer.add("acme", [span(number)])) for number in range(1, 50)]
        await asyncio.sleep(0)
        for task in impatient:
            task.cancel()
        await asyncio.gather(*impatient, return_exceptions=True)
        return await writer.add("acme", [span(99)])

    assert run(give_up_and_go_on()) == Added(1)
    writer.close()
    assert len(names(store)) == 50


def test_a_loop_that_ends_while_it_waits_does_not_stop_the_writer(store):
    writer = SpanWriter(store)

    async def leave() -> None:
        task = asyncio.create_task(writer.add("acme", [span(number) for number in range(1, 500)]))
        await asyncio.sleep(0)
        task.cancel()

    run(leave())
    assert run(writer.add("acme", [span(999)])) == Added(1)
    writer.close()
    assert len(names(store)) == 500


def test_what_waits_when_the_writer_is_closed_is_written_and_nothing_comes_after(store):
    writer = SpanWriter(store)

    async def write_and_close() -> list[Added]:
        waiting = [asyncio.create_task(writer.add("acme", [span(number)])) for number in range(1, 201)]
        await asyncio.sleep(0)
        await asyncio.to_thread(writer.close)
        return list(await asyncio.gather(*waiting))

    assert run(write_and_close()) == [Added(1)] * 200
    assert len(names(store)) == 200
    writer.close()
    assert not writer.is_alive
    with pytest.raises(WriterClosedError, match="closed"):
        run(writer.add("acme", [span(999)]))


def test_keeping_spans_makes_no_spans(tmp_path):
    """In a process that is traced, instrumentations must leave the server alone, or it would feed itself."""
    from opentelemetry import context
    from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

    seen: dict[str, set[bool]] = {}

    def look(*_: Any) -> None:
        suppressed = bool(context.get_value(_SUPPRESS_INSTRUMENTATION_KEY))
        seen.setdefault(threading.current_thread().name.split("_")[0], set()).add(suppressed)

    with EmbeddedIngest("acme", path=tmp_path / "spans.db") as ingest:
        event.listen(Engine, "before_cursor_execute", look)
        try:
            headers = {"x-sonar-api-key": ingest.api_key, "content-type": PROTOBUF}
            with httpx.Client(base_url=ingest.base_url, headers=headers, trust_env=False) as client:
                body = make_request(make_span(conversation=TALK)).SerializeToString()
                assert client.post("/v1/traces", content=body).status_code == 200
                assert client.post("/v1/traces", content=b"broken").status_code == 400
                assert client.get(f"/v1/conversations/{TALK}?tenant=acme").status_code == 200
        finally:
            event.remove(Engine, "before_cursor_execute", look)
    assert seen == {"span-writer": {True}, "refusals": {True}, "conversation-reader": {True}}


def test_the_ingest_outlives_a_restart_of_its_database(postgresql: PostgreSQL):
    store = SpanStore(postgresql.new_database())
    with serving(create_app(store, KeyRing({ACME: "acme"}))) as place:
        assert place.post(make_request(make_span("before", conversation=TALK))).status_code == 200
        postgresql.restart()
        late = make_request(make_span("after", span_id="cc" * 8, conversation=TALK))
        assert place.post(late).status_code in (200, 503)
        assert place.post(late).status_code == 200
        assert sorted(place.names(TALK)) == ["after", "before"]
        assert place.get("/readyz").status_code == 200
    store.close()
