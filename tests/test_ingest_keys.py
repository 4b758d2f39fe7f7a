"""Keys: who may write and read what, and that a key is never seen again."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from captures import JSON, PROTOBUF, make_request, make_span
from fakes import run
from serving import ACME, OTHER, Place, ServerProcess, partial, serving, wait_for
from sonar_eval.ingest.app import create_app
from sonar_eval.ingest.db import SpanStore
from sonar_eval.ingest.keys import KeyRing, StoredKeyRing, add_key, list_keys, revoke_key
from sonar_eval.ingest.server import EmbeddedIngest

pytest_plugins = ["databases"]


@pytest.fixture
def store(database_url: str) -> Iterator[SpanStore]:
    store = SpanStore(database_url)
    yield store
    store.close()


def command(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "sonar_eval.ingest", "--db", url, *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def said(url: str, *arguments: str) -> str:
    done = command(url, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_a_key_opens_the_tenant_it_was_made_for():
    keys = KeyRing({"k1": "acme", "k2": "acme", "k3": "other"})
    assert [keys.tenant_of(key) for key in ("k1", "k2", "k3")] == ["acme", "acme", "other"]
    assert [keys.tenant_of(key) for key in (None, "", "k", "K1", "k1 ", "k11")] == [None] * 6
    assert not keys.is_open


def test_a_key_is_compared_byte_by_byte_however_it_was_read():
    keys = KeyRing({"schlüssel": "acme"})
    assert keys.tenant_of("schlüssel".encode()) == "acme"
    assert keys.tenant_of("schlüssel".encode("latin-1")) is None


def test_without_any_key_there_is_one_tenant_for_everybody():
    keys = KeyRing(open_tenant="acme")
    assert keys.is_open
    assert keys.tenant_of(None) == keys.tenant_of("anything") == "acme"


def test_a_ring_shows_nothing_of_its_keys(store):
    rings = [KeyRing({"very-secret": "acme"}), StoredKeyRing(store.engine, {"very-secret": "acme"})]
    assert not any("very-secret" in f"{ring!r} {ring.__dict__}" for ring in rings)
    ingest = EmbeddedIngest("acme")
    assert ingest.api_key not in repr(ingest)


def test_a_stored_key_opens_its_tenant_until_it_is_revoked(store):
    key = add_key(store.engine, "acme", "laptop")
    keys = StoredKeyRing(store.engine)
    assert (keys.tenant_of(key), keys.tenant_of("x")) == ("acme", None)
    (info,) = list_keys(store.engine)
    assert (info.tenant, info.name, info.revoked_at) == ("acme", "laptop", None)
    assert revoke_key(store.engine, info.identity) == 1
    assert revoke_key(store.engine, info.identity) == 0
    keys.reload()
    assert keys.tenant_of(key) is None
    assert list_keys(store.engine)[0].revoked_at is not None


def test_revoking_the_last_key_opens_nothing(store):
    keys = StoredKeyRing(store.engine, open_tenant="acme")
    assert keys.is_open
    add_key(store.engine, "acme", "")
    revoke_key(store.engine, list_keys(store.engine)[0].identity)
    keys.reload()
    assert (keys.is_open, keys.tenant_of(None), keys.tenant_of("x")) == (False, None, None)
    assert StoredKeyRing(store.engine).tenant_of(None) is None


def test_a_key_is_not_revoked_by_too_little_of_its_hash_or_by_a_pattern(store):
    add_key(store.engine, "acme", "")
    identity = list_keys(store.engine)[0].identity
    for part in ("", identity[:11], "%" * 12, "_" * 12, identity[:11] + "%"):
        assert revoke_key(store.engine, part) == 0


def test_a_tenant_that_no_database_could_keep_gets_no_key(store):
    for tenant in ("", "a\x00b", "x" * 257):
        with pytest.raises(ValueError, match="expected a tenant of 1 to 256 bytes"):
            add_key(store.engine, tenant, "")


def test_keys_that_are_known_go_on_while_the_database_is_away(store, caplog):
    key = add_key(store.engine, "acme", "")
    keys = StoredKeyRing(store.engine)
    with store.engine.begin() as connection:
        connection.execute(text("ALTER TABLE api_key RENAME TO api_key_away"))
    keys._read_at = 0.0
    run(keys.refresh())
    assert keys.tenant_of(key) == "acme"
    assert "were not read again" in caplog.text


def test_keys_are_made_listed_and_revoked_on_the_command_line(database_url):
    assert said(database_url, "keys", "list") == ""
    key = said(database_url, "keys", "add", "--tenant", "acme", "--name", "the laptop")
    assert key.startswith("sk-sonar-")
    assert len(key) > 40
    listed = said(database_url, "keys", "list")
    identity, tenant, state, _, _, name = listed.split(maxsplit=5)
    assert (tenant, state, name) == ("acme", "active", "the laptop")
    assert key not in listed
    assert said(database_url, "keys", "revoke", identity) == f"revoked {identity}"
    assert " revoked " in said(database_url, "keys", "list")
    again = command(database_url, "keys", "revoke", identity)
    assert (again.returncode, again.stdout) == (1, "")
    assert f"no active key starts with '{identity}'" in again.stderr


def test_mistakes_on_the_command_line_are_explained_in_a_line(tmp_path):
    good = f"sqlite:///{tmp_path / 'spans.db'}"
    for arguments, expected in (
        ([good, "keys", "add", "--tenant", ""], "expected a tenant of 1 to 256 bytes"),
        ([good, "--tenant", ""], "expected a tenant of 1 to 256 bytes"),
        ([f"sqlite:///{tmp_path / 'no/such/folder/x.db'}"], "unable to open database file"),
        (["postgresql://user:secret@127.0.0.1:1/x", "keys", "list"], "cannot use postgresql://user:***@127.0.0.1"),
        (["no url"], "cannot use the database"),
        ([good, "--key-header", "two words"], "expected the name of a header"),
        ([good, "delete"], "expected --tenant or --older-than-days"),
        ([good, "delete", "--conversation", "x"], "--conversation goes with --tenant"),
    ):
        done = command(*arguments)
        assert done.returncode in (1, 2)
        assert expected in done.stderr
        assert "Traceback" not in done.stderr
        assert "secret" not in done.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_without_a_key_it_listens_on_loopback_only(tmp_path, host):
    url = f"sqlite:///{tmp_path / 'spans.db'}"
    done = command(url, "--host", host, "--port", "0")
    assert done.returncode == 2
    assert f"without a key it listens on loopback only, got --host {host}" in done.stderr
    assert "keys add --tenant local" in done.stderr


def test_a_port_that_is_taken_is_told_in_a_line(tmp_path):
    with ServerProcess(f"sqlite:///{tmp_path / 'spans.db'}", log=tmp_path / "log") as server:
        done = command(f"sqlite:///{tmp_path / 'other.db'}", "--port", str(server.port))
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{server.port}" in done.stderr


def test_with_a_key_it_listens_wherever_it_is_told(tmp_path):
    url = f"sqlite:///{tmp_path / 'spans.db'}"
    key = said(url, "keys", "add", "--tenant", "acme")
    with ServerProcess(url, "--host", "0.0.0.0", log=tmp_path / "log") as server, server.place() as place:
        assert place.post(make_request(make_span()), key=key).status_code == 200
        assert place.post(make_request(make_span()), key=None).status_code == 401
        assert len(place.spans("conv-7f3a", key=key)) == 1


def test_a_page_that_calls_a_loopback_server_by_another_name_is_refused(tmp_path):
    with ServerProcess(f"sqlite:///{tmp_path / 'spans.db'}", log=tmp_path / "log") as server, server.place() as place:
        for host, status in (
            ("evil.example", 400),
            (f"evil.example:{server.port}", 400),
            ("127.0.0.1.evil.example", 400),
            ("", 400),
            (f"LOCALHOST:{server.port}", 200),
            (f"127.0.0.1:{server.port}", 200),
            (f"[::1]:{server.port}", 200),
        ):
            answers = [
                place.client.get("/v1/conversations", params={"tenant": "local"}, headers={"host": host}),
                place.client.post("/v1/traces", content=b"", headers={"host": host, "content-type": PROTOBUF}),
            ]
            assert [answer.status_code for answer in answers] == [status, status], host
            assert not any("access-control-allow-origin" in answer.headers for answer in answers)


def test_a_key_made_or_revoked_while_it_serves_counts_within_seconds(tmp_path):
    database_url = f"sqlite:///{tmp_path / 'spans.db'}"
    first = said(database_url, "keys", "add", "--tenant", "acme")
    with ServerProcess(database_url, log=tmp_path / "log") as server, server.place() as place:
        request = make_request(make_span())
        assert place.post(request, key=first).status_code == 200
        second = said(database_url, "keys", "add", "--tenant", "other")
        began = time.monotonic()
        wait_for(lambda: place.post(request, key=second).status_code == 200, "the new key")
        identity = said(database_url, "keys", "list").splitlines()[0].split()[0]
        assert said(database_url, "keys", "revoke", identity)
        wait_for(lambda: place.post(request, key=first).status_code == 401, "the revocation")
        assert time.monotonic() - began < 15
        assert place.read("conv-7f3a", key=first).status_code == 401
        assert len(place.spans("conv-7f3a", tenant="other", key=second)) == 1


def test_a_key_is_in_no_answer_log_or_file(tmp_path):
    url = f"sqlite:///{tmp_path / 'spans.db'}"
    stored, given, wrong = said(url, "keys", "add", "--tenant", "acme"), "given-key-1f2e3d", "wrong-key-9a8b7c"
    options = ("--tenant", "acme")
    environment = {"SONAR_INGEST_KEY": given}
    with (
        ServerProcess(url, *options, log=tmp_path / "log", environment=environment) as server,
        server.place() as place,
    ):
        told = []
        for key in (stored, given, wrong, None):
            told += [
                place.post(make_request(make_span()), key=key),
                place.post(make_request(make_span()), JSON, key=key),
                place.post(b"broken", JSON, key=key),
                place.post(b"broken", key=key, content_encoding="gzip"),
                place.post(gzip.compress(bytes(30 * 1024 * 1024)), key=key, content_encoding="gzip"),
                place.read("conv-7f3a", key=key, since=60),
                place.read("never", key=key, since=60),
                place.read("never", key=key, tenant="other"),
                place.get("/v1/conversations", key=key, tenant="acme"),
                place.get("/metrics", key=key),
                place.get("/openapi.json", key=key),
            ]
        assert {answer.status_code for answer in told} >= {200, 400, 401, 404, 413}
        # The address may hold one as well, sent by somebody who errs.
        place.client.get("/v1/conversations", params={"tenant": "acme", "key": given})
        assert server.stop() in (0, -15)
    secrets = [key.encode() for key in (stored, given, wrong)]
    for answer in told:
        assert not any(secret in answer.content or secret in str(answer.headers).encode() for secret in secrets)
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert len(files) >= 2
    for path in files:
        assert not any(secret in path.read_bytes() for secret in secrets), path.name
    shown = command(url, "--help")
    assert not any(key in shown.stdout for key in (stored, given))


def test_the_help_shows_options_and_environment_variables_but_no_key(tmp_path):
    line = [sys.executable, "-m", "sonar_eval.ingest", "--help"]
    shown = subprocess.run(line, capture_output=True, text=True, timeout=60, env={"SONAR_INGEST_KEY": "very-secret"})
    for name in ("HOST", "PORT", "DB", "KEY", "KEY_HEADER", "TENANT"):
        assert f"SONAR_INGEST_{name}" in shown.stdout
    assert "very-secret" not in shown.stdout


@pytest.fixture
def two_tenants(store: SpanStore) -> Iterator[Place]:
    with serving(create_app(store, KeyRing({ACME: "acme", OTHER: "other"}))) as place:
        yield place


def test_another_tenants_key_reads_nothing_whichever_way(two_tenants):
    request = make_request(make_span(conversation="theirs"))
    assert two_tenants.post(request, key=OTHER).status_code == 200
    for path in ("/v1/conversations/theirs", "/v1/conversations"):
        for params in ({}, {"view": "digest"}, {"wait": 1}, {"seal": "trial"}, {"min_level": 0, "quiet": 0}):
            answer = two_tenants.get(path, tenant="other", **params)
            assert (answer.status_code, answer.json()) == (404, {"error": "no such conversation"})
    assert two_tenants.get("/v1/digests", tenant="other", id="theirs").status_code == 404
    assert two_tenants.get("/v1/conversations", tenant="acme").json()["conversations"] == []
    assert two_tenants.read("theirs").status_code == 404
    assert two_tenants.read("theirs", view="digest").json() == two_tenants.read("never", view="digest").json() | {
        "conversation_id": "theirs"
    }
    # Nor was it sealed by one who may not.
    assert two_tenants.read("theirs", tenant="other", key=OTHER, quiet=0, seal="mine").status_code == 200


def test_nobody_writes_into_a_conversation_of_another_tenant(two_tenants):
    assert two_tenants.post(make_request(make_span("theirs", conversation="c")), key=OTHER).status_code == 200
    before = two_tenants.read("c", tenant="other", key=OTHER).json()["spans"]
    attempts = [
        make_request(make_span("forged", conversation="c")),
        make_request(make_span("forged", conversation="c", span_id="cc" * 8)),
        make_request(make_span("forged", conversation=None, span_id="dd" * 8)),
    ]
    for attempt in attempts:
        assert partial(two_tenants.post(attempt)) == (0, "")
    claimed = make_request(make_span("forged", {"sonar.tenant.id": "other"}, conversation="c", span_id="ee" * 8))
    assert partial(two_tenants.post(claimed))[0] == 1
    assert two_tenants.read("c", tenant="other", key=OTHER).json()["spans"] == before
    assert before[0]["conflict"] is False


def test_what_another_tenant_is_refused_is_not_told(two_tenants):
    assert two_tenants.post(b"broken", key=OTHER).status_code == 400
    assert two_tenants.read("x", since=60).json()["error"] == "no such conversation"
    assert "1 requests were refused" in two_tenants.read("x", tenant="other", key=OTHER, since=60).json()["error"]


def test_requests_without_a_valid_key_are_told_to_whoever_finds_nothing(two_tenants):
    assert two_tenants.post(make_request(make_span()), key="wrong").status_code == 401
    said = two_tenants.read("conv-7f3a", since=60).json()["error"]
    assert said == "no such conversation; 1 requests without a valid key were refused meanwhile"
    assert two_tenants.read("conv-7f3a", since=0).json()["error"] == "no such conversation"


def test_deleting_on_the_command_line_says_how_much(database_url):
    store = SpanStore(database_url)
    with serving(create_app(store, KeyRing({ACME: "acme"}))) as place:
        for number in range(1, 4):
            request = make_request(make_span(conversation=f"c{number}", trace_id=f"{number:032x}"))
            assert place.post(request).status_code == 200
        assert said(database_url, "delete", "--tenant", "acme", "--conversation", "c1") == "1 spans deleted"
        assert said(database_url, "delete", "--older-than-days", "1") == "0 spans deleted"
        assert [place.read(f"c{number}").status_code for number in range(1, 4)] == [404, 200, 200]
        assert said(database_url, "delete", "--tenant", "acme") == "2 spans deleted"
        assert place.get("/v1/conversations", tenant="acme").json()["conversations"] == []
    store.close()
