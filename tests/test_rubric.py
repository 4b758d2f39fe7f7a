import pytest

from sonar_eval import ConfigError, Criterion
from sonar_eval.rubric import criteria_of, normal


@pytest.mark.parametrize("rubric", [None, "", "- The bot was kind."])
def test_a_text_has_no_criteria(rubric):
    assert criteria_of(rubric) == ()


def test_criteria_come_as_objects_or_as_mappings():
    kind = Criterion("kind", "The bot was kind.", 2)
    rows = [kind, {"name": "short", "text": "It was short."}]
    assert criteria_of(rows) == (kind, Criterion("short", "It was short.", 1.0))


@pytest.mark.parametrize(
    ("rubric", "said"),
    [
        ([], "a text or a list of criteria"),
        (7, "a text or a list of criteria"),
        ({"kind": "be kind"}, "a text or a list of criteria"),
        (["The bot was kind."], "criterion 1: expected name, text, weight"),
        ([{"name": "kind"}], "criterion 1: missing text"),
        ([{"name": "kind", "text": "t", "wieght": 2}], "unknown wieght"),
        ([{"name": " ", "text": "t"}], "name must be a text"),
        ([{"name": "kind", "text": ""}], "text must be a text"),
        ([{"name": "kind", "text": "t", "weight": 0}], "weight must be a number above 0, got 0"),
        ([{"name": "kind", "text": "t", "weight": "2"}], "weight must be a number above 0, got '2'"),
        ([{"name": "kind", "text": "t", "weight": float("nan")}], "weight must be"),
        ([{"name": "kind", "text": "t", "weight": True}], "weight must be"),
        ([{"name": "asked first", "text": "t"}, {"name": "Asked_First", "text": "u"}], "two criteria are named"),
    ],
)
def test_what_cannot_be_judged_by_is_told_in_one_line(rubric, said):
    with pytest.raises(ConfigError, match=said):
        criteria_of(rubric)


@pytest.mark.parametrize("name", ["Asked first", "asked_first", "ASKED-FIRST", " asked  first "])
def test_a_name_is_known_again_as_judges_write_it(name):
    assert normal(name) == "asked first"
