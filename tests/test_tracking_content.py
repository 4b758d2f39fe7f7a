"""What text reaches a store, and what does not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fakes import judged_trial
from sonar_eval import (
    AssertionResult,
    ConfigError,
    ConversationLog,
    EndReason,
    FormSubmission,
    GraderResult,
    Severity,
    Transcript,
    Turn,
)
from sonar_eval.records import trial_record
from sonar_eval.scorecard import Score
from sonar_eval.tracking import CellRecord, Content
from sonar_eval.tracking.content import MASK, WITHHELD
from sonar_eval.tracking.mlflow import MLflowTracker
from stores import empty_store

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

SECRET = "hunter-4711-geheim"
NUMBER = 99887766554
PATTERNS = (r"hunter-\d+-geheim", r"99887766554")


def record():
    """Make a record that holds the secret wherever a record can hold text."""
    span = {
        "span_id": "a" * 16, "trace_id": "1" * 32, "parent_span_id": None, "kind": "tool", "name": f"call {SECRET}",
        "tool_name": "pay", "tool_success": False, "error_type": "Down", "error_message": SECRET, "started_at": None,
        "duration_ms": 1.0,
    }  # fmt: skip
    value = {"card": NUMBER, "note": f"x {SECRET} y", SECRET: [SECRET]}
    content = {"span_id": "a" * 16, "trace_id": "1" * 32, "role": "tool", "type": "tool_arguments", "value": value}
    turn = Turn(f"my word is {SECRET}", (f"so it is {SECRET}",), FormSubmission("f", {"word": SECRET}))
    trial = replace(
        judged_trial(),
        assertions=[AssertionResult("told", Severity.CAPABILITY, False, f"said {SECRET}")],
        grader=GraderResult(0.5, f"because {SECRET}", False),
        judge_asked=True,
        log=ConversationLog("c0", [turn], True, EndReason.USER),
        transcript=Transcript("c0", [{"trace_id": "1" * 32}], [span], [content]),
        warnings=[f"mind {SECRET}"],
    )
    return trial_record("s", trial)


@pytest.fixture
def cell(tmp_path):
    """Make a cell whose texts, and whose files, all hold the secret."""
    folder = tmp_path / "cell"
    (folder / "transcripts").mkdir(parents=True)
    (folder / "trials.jsonl").write_text(json.dumps(record()) + "\n" + '{"cut off": "' + SECRET)
    (folder / "result.json").write_text(json.dumps({"error": SECRET, "report": {"reasons": [SECRET]}}))
    (folder / "transcripts" / "trial-001.md").write_text(f"# {SECRET}")
    (folder / "sweep.log").write_text(SECRET)
    config = {
        "model": {"name": "m", "extra_body": {"user": SECRET}},
        "prompt": {"name": "p", "text": f"The word is {SECRET}. " * 50},
        "scenario": {"name": "s", "user_instructions": SECRET, "seed": {"account": NUMBER, SECRET: 1}},
    }
    report = {
        "passed": False, "unchecked": False, "reasons": [SECRET], "warnings": [SECRET],
        "assertions": [{"name": "told", "severity": "capability", "passes": 0, "evaluated": 1}],
    }  # fmt: skip
    choices = {"model": "m", "prompt": "p", "scenario": "s", "fault": "f", "prompt.text": SECRET}
    return CellRecord(
        f"m p s f prompt.text={SECRET}", "key", choices, config, folder,
        [Score("pass_rate", 0.0), Score(f"assertion_pass_rate/{SECRET}", 0.0)],
        report, f"broke on {SECRET}", records=[record()],
    )  # fmt: skip


def stored(tmp_path, cell, content, **how):
    """Publish the cell and return every byte of the store."""
    tracker = MLflowTracker(empty_store(tmp_path / "store"), "e", content=content, **how)
    parent = tracker.start_sweep("sweep", f"sonar-eval sweep prompt.text={SECRET}")
    tracker.publish(cell, parent)
    tracker.end_sweep(parent, "FINISHED")
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert len(files) > 3
    return b"".join(path.read_bytes() for path in files)


def test_with_full_content_everything_is_there(tmp_path, cell):
    found = stored(tmp_path, cell, Content())
    assert found.count(SECRET.encode()) > 20
    assert str(NUMBER).encode() in found


@pytest.mark.parametrize(
    ("mode", "patterns"), [("full", PATTERNS), ("redacted", PATTERNS), ("none", ()), ("none", PATTERNS)]
)
@pytest.mark.parametrize("traces", ["trial", "turn"])
def test_a_secret_stands_nowhere_in_the_store(tmp_path, cell, mode, patterns, traces):
    if not patterns:
        # What things are called is told.
        plain = record()
        plain["transcript"]["spans"][0]["name"] = "call"
        cell = replace(cell, scores=cell.scores[:1], records=[plain])
    found = stored(tmp_path, cell, Content.of(mode, patterns), traces=traces)
    assert SECRET.encode() not in found
    assert str(NUMBER).encode() not in found
    assert b"pass_rate" in found
    assert b"told" in found


def test_with_redaction_the_rest_of_the_text_stays(tmp_path, cell):
    found = stored(tmp_path, cell, Content.of("full", PATTERNS))
    for kept in (f"my word is {MASK}", f"because {MASK}", f"said {MASK}", f"broke on {MASK}", f"x {MASK} y"):
        assert kept.encode() in found


def test_without_content_numbers_names_and_verdicts_stay(tmp_path, cell):
    found = stored(tmp_path, cell, Content.of("none"))
    for kept in (b"Down", b"pay", b"c0", b"capability", WITHHELD.encode()):
        assert kept in found
    assert b"trial-001.md" not in found
    assert b"The word" not in found


def test_a_number_pattern_does_not_tear_ids_and_times_apart():
    row = {"span_id": "123456", "trace_id": "99", "started_at": "2026-01-01", "random_seed": 4711, "turns": 3}
    assert Content.of("full", [r"\d\d+"]).value({**row, "user": "call 0123"}) == {**row, "user": f"call {MASK}"}


@pytest.mark.parametrize(
    "secret",
    [
        "sk-abcdefghijklmnop",
        "ghp_abcdefghij0123456789",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOi.eyJzdWIi.sflKxw",
        "jane.doe+x@example.org",
        "4111 1111 1111 1111",
        "+41 79 123 45 67",
        "CH93 0076 2011 6238 5295 7",
    ],
)
def test_common_secrets_are_masked_when_that_is_asked_for(secret):
    text = f"take {secret}, please"
    assert Content.of("redacted").text(text) == f"take {MASK}, please"
    assert Content.of("full").text(text) == text


@pytest.mark.parametrize(
    "harmless", ["order A-101 for 5.30 EUR", "2026-11-30 19:29:34", "trial 12 of 100", "v1.2.3-rc4"]
)
def test_ordinary_text_is_not_masked(harmless):
    assert Content.of("redacted").text(harmless) == harmless


def test_a_rule_that_cannot_work_is_told():
    with pytest.raises(ConfigError, match=r"tracking\.content: expected full, redacted, none; got 'some'"):
        Content.of("some")
    with pytest.raises(ConfigError, match=r"tracking\.redact: '\(' is no regular expression"):
        Content.of("full", ["("])
