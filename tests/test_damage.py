"""What a corrupt or a truncated tool output looks like."""

import copy
import json
from collections import namedtuple

import pytest

from sonar_eval.damage import Corruption, Truncation

MENU = {"items": [{"name": "latte", "price": 4.5, "units": 3}], "open": True, "note": None}


def shape(value):
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else "leaf"


def differences(one, other):
    if isinstance(one, dict):
        return sum(differences(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return sum(map(differences, one, other))
    return int(one != other)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("values", [1, 3, 99])
def test_corrupt_json_keeps_its_shape_and_has_as_many_wrong_values_as_asked_for(seed, values):
    before = copy.deepcopy(MENU)
    damaged = Corruption(seed, values)(MENU)
    assert MENU == before
    assert shape(damaged) == shape(MENU)
    assert differences(MENU, damaged) == min(values, 5)
    assert json.loads(Corruption(seed, values)(json.dumps(MENU))) == damaged


def test_the_seed_decides_what_is_wrong():
    found = [Corruption(seed)(MENU) for seed in range(20)]
    assert found == [Corruption(seed)(MENU) for seed in range(20)]
    assert len({json.dumps(value) for value in found}) > 5


TEXTS = ["3 units left", "{ no JSON", "", "\ufffd", b"raw", b"", b"\xff", "[]", "{}"]
VALUES = [5, -1, 0, 0.0, -2.5, float("inf"), True, None, [], {}, (), [[]], (1, 2), MENU]


@pytest.mark.parametrize("output", [*TEXTS, *VALUES])
@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_is_something_else_afterwards(output, seed):
    assert Corruption(seed)(output) != output
    if output is not None:
        assert Truncation(seed / 5)(output) != output


def test_text_that_is_no_json_loses_a_fifth_of_its_characters():
    damaged = Corruption(1)("the oven is warm")
    assert damaged.count("\ufffd") == 3
    assert len(damaged) == len("the oven is warm")


class Order:
    def __str__(self):
        return "one latte, 4.50"


def test_what_is_neither_json_nor_text_is_made_text_first():
    assert "\ufffd" in Corruption(1)(Order())
    assert Truncation(0.5)(Order()) == "one lat"


@pytest.mark.parametrize(
    ("output", "left"),
    [
        ([1, 2, 3, 4], [1, 2]),
        ((1, 2, 3), (1,)),
        ({"a": 1, "b": 2}, {"a": 1}),
        ('{"a": 1, "b": 2}', '{"a": 1,'),
        (b"abcd", b"ab"),
        ("x", ""),
        ("ab\n\n", "a"),
        (" \n", " "),
        (7, None),
        ("", None),
        ({}, None),
    ],
)
def test_a_truncated_output_has_lost_its_end(output, left):
    assert Truncation(0.5)(output) == left


@pytest.mark.parametrize("text", [json.dumps(MENU), '{"ok": true}\n', "[1]\r\n \t ", " []\n", b'{"ok": true}\n\n'])
def test_truncated_json_text_can_no_longer_be_read(text):
    for keep in (0, 0.1, 0.5, 0.95, 0.99, 0.999):
        with pytest.raises(ValueError, match=":"):
            json.loads(Truncation(keep)(text))


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize("point", [Point(1, 2), Point("x", Point(2, 3))])
def test_a_named_tuple_stays_one(point):
    (damaged,) = Corruption(1)([point])
    assert type(damaged) is Point
    assert damaged != point
    assert Corruption(1)({"rows": (point,)})["rows"] != (point,)
