"""What people say, read from files and from a real MLflow store."""

from __future__ import annotations

import pytest

from sonar_eval import ConfigError
from sonar_eval.judging.labels import Said, of_feedback, read_csv, read_value, to_labels
from sonar_eval.report import Label
from sonar_eval.tracking.feedback import human_feedback

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")


def written(tmp_path, text):
    path = tmp_path / "labels.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_rows_are_read_and_those_without_a_label_wait(tmp_path):
    path = written(
        tmp_path, "\ufeffConversation_ID,label,criterion\nc1,PASS,\nc2,0.8,\nc3,,\n\n c1 , no , polite \nc4,1,\n"
    )
    assert read_csv(path) == [Said("c1", True), Said("c2", 0.8), Said("c1", False, "polite"), Said("c4", True)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: expected conversation_id,label or"),
        ("id,label\nc1,pass\n", "line 1: expected conversation_id,label"),
        ("conversation_id,label,who\nc1,pass,me\n", "line 1: expected conversation_id,label"),
        ("conversation_id,label\nc1,pass\nc2,maybe\n", "line 3: label must be pass or fail, or a score from 0 to 1"),
        ("conversation_id,label\nc1,7\n", "line 2: label must be pass or fail"),
        ("conversation_id,label\nc1,nan\n", "line 2: label must be pass or fail"),
        ("conversation_id,label\nc1\n", r"line 2: expected 2 values \(conversation_id,label\), got 1"),
        ("conversation_id,label\n,pass\n", "line 2: conversation_id is empty"),
        ("conversation_id,label\nc1,pass\nc1,fail\n", "line 3: c1 is labelled otherwise on line 2"),
        ("conversation_id,label\nc1,\n", "has no labelled row"),
        (b"conversation_id,label\nc\xff,pass\n", "is not UTF-8"),
    ],
)
def test_a_bad_row_is_told_in_one_line(tmp_path, text, said):
    with pytest.raises(ConfigError, match=said) as told:
        read_csv(written(tmp_path, text))
    assert "\n" not in str(told.value)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(ConfigError, match="--labels: cannot read"):
        read_csv(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("value", "meant"),
    [(True, True), ("Yes", True), (0, False), (1.0, True), ("0.4", 0.4), ("good", True), ("soso", None), (5, None)],
)
def test_a_label_is_a_word_a_truth_value_or_a_score(value, meant):
    found = read_value(value)
    assert found == meant
    assert isinstance(found, bool) == isinstance(meant, bool)


def test_a_score_passes_by_the_threshold_of_its_cell_and_the_unknown_is_left_out():
    said = [Said("c1", 0.75), Said("c2", 0.75), Said("c3", False), Said("elsewhere", True)]
    found = list(to_labels(said, {"c1": 0.7, "c2": 0.8, "c3": 0.0}))
    assert found == [Label("c1", True), Label("c2", False), Label("c3", False)]


def test_feedback_counts_by_majority_and_what_is_not_understood_is_said():
    rows = [
        ("c1", "judge", True),
        ("c1", "verdict", "no"),
        ("c1", "judge", "pass"),
        ("c2", "judge", True),
        ("c2", "judge", False),
        ("c3", "judge/Po-lite", "fail"),
        ("c4", "mood", True),
        ("c5", "judge", "hm"),
    ]
    said, notes = of_feedback(rows, ["po lite"])
    assert said == [Said("c1", True), Said("c3", False, "po lite")]
    assert sorted(notes) == [
        "feedback 'hm' is neither pass nor fail nor a score from 0 to 1: 1 left out",
        "feedback named 'mood' is about neither the whole nor a criterion: 1 left out",
        "people disagree evenly: 1 left out",
    ]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A real store with a trace for each of the conversations c0 to c4."""
    import mlflow
    from mlflow.entities import TraceInfo, TraceLocation, TraceState
    from mlflow.tracing.client import TracingClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    client = TracingClient(uri)
    experiment = mlflow.create_experiment("e", artifact_location=(tmp_path / "artifacts").as_uri())
    for place in range(5):
        # The last one is known by its tag alone.
        tags = {"conversation_id": f"c{place}"} if place == 4 else {}
        client.start_trace(
            TraceInfo(
                f"tr-{place:032x}",
                TraceLocation.from_experiment_id(experiment),
                1_000,
                TraceState.OK,
                client_request_id=None if tags else f"c{place}",
                tags=tags,
            )
        )
    yield uri
    mlflow.set_tracking_uri(before)


def give(place, value, *, kind="HUMAN", by="ana", name="judge"):
    import mlflow
    from mlflow.entities import AssessmentSource

    source = AssessmentSource(source_type=kind, source_id=by)
    return mlflow.log_feedback(trace_id=f"tr-{place:032x}", name=name, value=value, source=source)


def test_only_what_people_said_of_these_conversations_is_read(store):
    give(0, True)
    give(0, 0.9, kind="LLM_JUDGE", by="model")
    give(1, "fail", by="ben")
    give(2, True, kind="CODE", by="sonar-eval")
    give(3, True)
    give(4, False, name="polite")
    found = human_feedback(store, {"c0", "c1", "c2", "c4"})
    assert sorted((row.conversation_id, row.name, row.value, row.by) for row in found) == [
        ("c0", "judge", True, "ana"),
        ("c1", "judge", "fail", "ben"),
        ("c4", "polite", False, "ana"),
    ]


def test_of_one_person_the_last_word_counts(store):
    import mlflow
    from mlflow.entities import AssessmentSource, Feedback

    first = give(0, True)
    later = Feedback(name="judge", value=False, source=AssessmentSource(source_type="HUMAN", source_id="ana"))
    mlflow.update_assessment(trace_id=first.trace_id, assessment_id=first.assessment_id, assessment=later)
    (row,) = human_feedback(store, {"c0"})
    assert row.value is False


def test_what_was_replaced_or_is_no_feedback_does_not_count(store):
    import mlflow
    from mlflow.entities import AssessmentSource, Feedback

    first = give(0, True, by="ana")
    source = AssessmentSource(source_type="HUMAN", source_id="ben")
    mlflow.override_feedback(trace_id=first.trace_id, assessment_id=first.assessment_id, value=False, source=source)
    mlflow.log_expectation(trace_id=f"tr-{1:032x}", name="judge", value=True, source=source)
    found = human_feedback(store, {"c0", "c1"})
    assert [(row.by, row.value) for row in found] == [("ben", False)]
    assert isinstance(first, Feedback)


def test_a_store_that_is_not_there_or_none_is_told(tmp_path):
    with pytest.raises(ConfigError, match="there is no store"):
        human_feedback(f"sqlite:///{tmp_path}/none.db", {"c0"})
    (tmp_path / "bad.db").write_bytes(b"no database " * 100)
    with pytest.raises(ConfigError, match="MLflow at sqlite"):
        human_feedback(f"sqlite:///{tmp_path}/bad.db", {"c0"})
