"""The comparison as an HTML page and as PNG files."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from simulated import arm, trial, trials
from sonar_eval.report import Arm, CellKey, compare_arms, draw_plots, render_html
from sonar_eval.report.arm import independent
from sonar_eval.report.charts import Scale, scale_over
from sonar_eval.report.dialogue import dialogue
from sonar_eval.report.divergence import first_divergence
from sonar_eval.report.heatmap import heat_map

HOSTILE = "</script><img src=x onerror=alert(1)>\"'<svg onload=alert(2)>"
VOID = {"meta", "link", "img", "br", "input"}


class Page(HTMLParser):
    """The elements of a page and its text, and that every element is closed where it ought to be."""

    def __init__(self, markup):
        super().__init__()
        self.elements, self.text, self.open = [], [], []
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    def words(self):
        return " ".join(" ".join(self.text).split())

    def classes(self):
        return {name for _, attrs in self.elements for name in (attrs.get("class") or "").split()}


def page(*arms, **settings):
    return Page(render_html(compare_arms(arms[0], arms[1:]), arms, **settings))


def one_cell(name, *records):
    return Arm.of(name, {("s", "none"): records})


def talk(*turns, **changes):
    """Make a trial of these (user, bot) turns."""
    said = [
        {"user": user, "delivered": [bot], "submission": None, "forms": [], "latency_s": 0.5} for user, bot in turns
    ]
    return {"conversation": said, **changes}


def test_the_verdict_is_the_first_thing_said():
    words = page(arm("A", [5] * 10), arm("B", [1] * 10)).words()
    assert words.index("REGRESSION: B −80.0 pts (95% CI") < 80
    assert "Holds across scenarios. Most of it: s9, s8, s7." in words


def test_each_candidate_has_its_verdict():
    words = page(arm("A", [3] * 10), arm("B", [5] * 10), arm("C", [0] * 10), arm("D", [3] * 10)).words()
    for said in ("▲ B better: +40.0 pts", "▼ REGRESSION: C −60.0 pts", "No detectable difference: +0.0 pts"):
        assert said in words


def test_arms_that_cannot_be_compared_say_why():
    words = page(arm("A", [5] * 4), arm("B", [5] * 4, errors=3)).words()
    assert "Not comparable: 12 of 32 trials of B errored or were not measured" in words


def test_equal_arms_have_no_colour():
    classes = page(arm("A", [4, 3, 5, 2]), arm("B", [3, 4, 5, 2])).classes()
    assert "neutral" in classes
    assert not {"gain", "loss"} & classes


@pytest.mark.parametrize(("passes", "tone", "other"), [([5] * 10, "gain", "loss"), ([0] * 10, "loss", "gain")])
def test_a_declared_difference_has_its_colour_and_a_sign_besides(passes, tone, other):
    found = page(arm("A", [2] * 10), arm("B", passes))
    assert tone in found.classes()
    assert other not in found.classes()
    assert {"gain": "▲", "loss": "▼"}[tone] in found.words()


def test_nothing_is_called_significant_and_no_p_is_shown_unless_asked_for():
    arms = arm("A", [5] * 10), arm("B", [1] * 10)
    plain, stats = page(*arms).words(), page(*arms, stats=True).words()
    assert "ignificant" not in plain + stats
    assert "p (Holm)" not in plain
    assert "p (Holm)" in stats


def test_the_page_runs_and_fetches_nothing():
    found = page(arm("A", [5] * 4), arm("B", [1] * 4))
    assert not {"script", "iframe", "object", "form"} & {tag for tag, _ in found.elements}
    addresses = [attrs.get(key) for _, attrs in found.elements for key in ("href", "src") if attrs.get(key)]
    assert [address for address in addresses if not address.startswith(("#", "data:,"))] == []
    (policy,) = [attrs["content"] for _, attrs in found.elements if attrs.get("http-equiv")]
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize(
    "place",
    ["arm", "scenario", "fault", "user", "bot", "tool", "detail", "conversation", "error", "assertion", "reasoning"],
)
def test_markup_in_what_others_wrote_stays_text(place):
    name = {place: HOSTILE}
    record = trial(0, False, calls=(name.get("tool", "pay"),), scenario="s")
    record |= talk((name.get("user", "hi"), name.get("bot", "hello")))
    record["conversation_id"] = name.get("conversation", "id")
    record["assertions"][0]["detail"] = name.get("detail", "")
    record["assertions"][0]["name"] = name.get("assertion", "task-done")
    record["grader"] = {"score": None, "passed": False, "reasoning": name.get("reasoning", "")}
    failed = trial(1, False, outcome="bot_failure", failure={"owner": "bot", "step": "send", "message": HOSTILE})
    key = (name.get("scenario", "s"), name.get("fault", "none"))
    a = Arm.of("A", {key: [trial(0), trial(1)]})
    b = Arm.of(name.get("arm", "B"), {key: [record, failed]})
    found = page(a, b)
    assert HOSTILE in "".join(found.text)
    assert not {"img", "script"} & {tag for tag, _ in found.elements}
    assert not [attrs for _, attrs in found.elements if {"onerror", "onload"} & set(attrs)]


def test_what_turns_the_direction_of_text_or_cannot_be_stored_is_spelled_out():
    odd = trial(0, False) | talk(("see \u202egnp.exe\u202c", "half \ud83d and \x00 nul, \u05e9\u05dc\u05d5\u05dd"))
    markup = render_html(compare_arms(one_cell("A", trial(0)), [one_cell("B", odd)]), ())
    assert markup.encode("utf-8")
    arms = one_cell("A", trial(0), trial(1)), one_cell("B", odd, trial(1))
    markup = render_html(compare_arms(arms[0], arms[1:]), arms)
    assert markup.encode("utf-8")
    assert "see ⟨U+202E⟩gnp.exe⟨U+202C⟩" in markup
    assert "half ⟨U+D83D⟩ and ⟨U+0000⟩ nul, \u05e9\u05dc\u05d5\u05dd" in markup
    assert '<p dir="auto">see' in markup


def test_a_huge_message_is_cut_and_says_how_much_is_missing():
    huge = trial(0, False) | talk(("hi", "y" * 2_000_000))
    found = page(one_cell("A", trial(0), trial(1)), one_cell("B", huge, trial(1)))
    assert "yyy… (1,996,000 of 2,000,000 characters left out)" in found.words()
    assert len(found.words()) < 20_000


def test_more_conversations_than_a_page_holds_are_named_instead():
    def many(name, passed):
        def said(index):
            return talk(*[("hi", f"{name} {index} " + "z" * 3_900)] * 9)

        cells = {
            (f"s{place}", "none"): [trial(index, passed, scenario=f"s{place}") | said(index) for index in range(5)]
            for place in range(20)
        }
        return Arm.of(name, cells)

    arms = many("A", True), many("B", False)
    markup = render_html(compare_arms(arms[0], arms[1:]), arms)
    assert len(markup.encode()) < 3_000_000
    hidden = re.findall(r"to keep this page small: trials? ([^.]+)\. They are in the records", markup)
    told = sum(len(line.split(",")) for line in hidden)
    assert told + markup.count('class="trial"') == 100
    assert told > 0


def pair_of(one, other):
    found = compare_arms(one_cell("A", one, trial(1)), [one_cell("B", other, trial(1))])
    (flip,) = found.contrasts[0].flips
    return dialogue(flip.trials[0], one, other)


def test_the_first_turn_that_differs_is_marked_and_what_is_alike_stands_once():
    one = trial(0) | talk(("hi", "hello"), ("pay", "done"), ("bye", "bye"))
    other = trial(0, False) | talk(("hi", "hello"), ("pay", "failed"), ("oh", "sorry"), ("bye", "bye"))
    turns = pair_of(one, other).turns
    assert [(turn.number, turn.same, turn.parts) for turn in turns[:4]] == [
        (1, True, False),
        (2, False, True),
        (3, False, False),
        (4, False, False),
    ]
    assert turns[3].a == []
    found = page(one_cell("A", one, trial(1)), one_cell("B", other, trial(1)))
    assert found.words().count("first turn that differs") == 1
    assert found.words().count("hello") == 1
    assert "(no such turn)" in found.words()


def test_the_first_call_that_differs_is_marked_on_both_sides_in_its_turn():
    def of_turn(record, names):
        record["transcript"] = {
            "runs": [{"trace_id": "t0"}, {"trace_id": "t1"}],
            "spans": [
                {"kind": "tool", "span_id": str(i), "trace_id": trace, "tool_name": name, "tool_success": True}
                for i, (trace, name) in enumerate(names)
            ],
            "content": [{"type": "tool_result", "span_id": "0", "trace_id": "t0", "value": {"price": 3.8}}],
            "completeness": None,
        }
        return record

    said = talk(("hi", "hello"), ("pay", "done"))
    one = of_turn(trial(0) | said, [("t0", "menu"), ("t1", "charge")])
    other = of_turn(trial(0, False) | said, [("t0", "menu"), ("t1", "refund")])
    first, second = pair_of(one, other).turns
    assert first.same
    assert [(line.who, line.text, line.outcome) for line in first.a][1] == ("call", "menu()", '{"price": 3.8}')
    assert [[line.text for line in side if line.parts] for side in (second.a, second.b)] == [["charge()"], ["refund()"]]


def test_why_a_trial_did_not_pass_stands_above_it():
    bad = trial(0, False, grader={"score": 0.2, "passed": False, "reasoning": "rude"}, judge_asked=True)
    words = page(one_cell("A", trial(0), trial(1)), one_cell("B", bad, trial(1))).words()
    assert "task-done not held" in words
    assert "judge 0.20: rude" in words


def test_a_filled_in_form_is_part_of_the_conversation():
    one = trial(0, False) | talk(("see form", "thanks"))
    one["conversation"][0]["submission"] = {"form": "address", "values": {"city": "Bern"}}
    one["conversation"][0]["forms"] = [{"name": "payment", "title": "", "fields": [{"name": "iban"}]}]
    words = page(one_cell("A", trial(0), trial(1)), one_cell("B", one, trial(1))).words()
    assert 'User fills in address: {"city": "Bern"}' in words
    assert "Bot sends form payment: iban" in words


def test_media_are_part_of_the_conversation():
    one = trial(0, False) | talk(("The menu?", "Here."))
    one["conversation"][0] |= {"delivered": [], "media": ["menu.png"]}
    words = page(one_cell("A", trial(0), trial(1)), one_cell("B", one, trial(1))).words()
    assert "Bot sends a file or picture menu.png" in words
    assert "(nothing)" not in words


def test_conversations_that_differ_in_their_media_alone_are_no_copies():
    shown = [trial(index) | talk(("The menu?", "Here.")) for index in range(3)]
    assert len(independent(shown)) == 1
    shown[2]["conversation"][0]["media"] = ["menu.png"]
    assert len(independent(shown)) > 1
    assert first_divergence(shown[0], shown[2]).turn == 0


def test_the_heat_map_has_a_number_in_every_cell_and_a_dash_for_none():
    a = Arm.of("A", {("s", "none"): trials(3, 4), ("s", "outage"): trials(0, 5), ("t", "none"): trials(5, 5)})
    b = Arm.of("B", {("s", "none"): trials(4, 4, errors=1)})
    heat = heat_map([a, b])
    assert (heat.faults, heat.arms, heat.incomplete) == (["none", "outage"], ["A", "B"], True)
    (_, s), (_, t) = heat.rows
    assert [cell and (cell.passes, cell.n, cell.shade) for cell in s] == [(3, 4, 2), (4, 4, 0), (0, 5, 5), None]
    assert [cell is None for cell in t] == [False, True, True, True]
    words = page(a, b).words()
    assert "75% 3/4 100% 4/4* 0% 0/5 –" in words


def test_what_was_left_out_and_what_errored_is_told():
    a, b = arm("A", [5] * 11), arm("B", [5] * 10, errors=0)
    cells = {**b.cells, **arm("B", [4], 4, errors=1).cells}
    words = page(a, Arm("B", cells)).words()
    assert "s10 none : B : not in this arm" in words
    assert "B: 1 of 50 trials errored or were not measured; counted as failures: 98.0%" in words
    assert "1 left out, 1 warning" in words
    assert "Every cell has its counterpart" in page(a, a).words()


def test_copies_are_warned_of():
    copies = Arm.of("B", {("s0", "none"): [trial(i, said="same") for i in range(5)], ("s1", "none"): trials(5, 5)})
    assert "B: s0 none: 5 identical transcripts: counted as 1" in page(arm("A", [5, 5]), copies).words()


def faulted(name, plain, outage, **changes):
    cells = {
        (f"s{place}", fault): trials(passes, 5, scenario=f"s{place}", **changes)
        for fault, rates in (("none", plain), ("outage", outage))
        for place, passes in enumerate(rates)
    }
    return Arm.of(name, cells)


def spent(cost):
    return {"bot": {"calls": 1, "input_tokens": 1, "output_tokens": 1, "cost_usd": cost}}


def test_resilience_and_trade_offs_are_drawn_when_there_is_something_to_draw():
    a, b = faulted("A", [5, 5], [2, 2], spent=spent(0.01)), faulted("B", [5, 5], [5, 4], spent=spent(0.02))
    labels = [attrs["aria-label"] for tag, attrs in page(a, b).elements if tag == "svg" and "aria-label" in attrs]
    assert any(label.startswith("Loss of A under outage: +60.0 pts [") for label in labels)
    assert any(
        label.startswith("Pass rate against cost of all trials, us dollars. A: 70.0% at 0.2;") for label in labels
    )
    words = page(arm("A", [5, 5]), arm("B", [5, 5])).words()
    assert "Resilience" not in words
    assert "Cost of all trials" not in words


def test_every_chart_says_in_words_what_it_shows():
    found = page(faulted("A", [5, 5], [2, 2]), faulted("B", [5, 5], [5, 4]))
    drawn = [attrs for tag, attrs in found.elements if tag == "svg" and attrs.get("role") == "img"]
    assert len(drawn) == 2 + 1 + 2 + 1
    assert all(attrs["aria-label"] for attrs in drawn)


def test_where_it_moved_lists_the_largest_first():
    words = page(arm("A", [10] * 6, 10), arm("B", [10] * 4 + [6, 1], 10)).words()
    assert "Worth a look: s5 (scenario, −90.0)" in words
    assert words.index("s5 100% 10%") < words.index("s4 100% 60%") < words.index("s0 100% 100%")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, -0.503, -0.332], Scale(-0.6, 0.0, 0.2)),
        ([0.0, 0.0], Scale(0.0, 0.2, 0.2)),
        ([0.0, 0.0071], Scale(0.0, 0.008, 0.002)),
        ([0.0, -0.12, 0.13], Scale(-0.15, 0.15, 0.05)),
    ],
)
def test_an_axis_ends_on_round_numbers(values, expected):
    scale = scale_over(values)
    assert (scale.low, scale.high, scale.step) == pytest.approx((expected.low, expected.high, expected.step))
    assert scale.ticks[0] == pytest.approx(expected.low)
    assert scale.ticks[-1] == pytest.approx(expected.high)
    assert 2 <= scale.at(values[-1]) <= 98


def test_the_plots_are_pictures_and_names_are_taken_as_they_are(tmp_path):
    a, b = faulted("cost $1_x$ \u4f60", [5, 5], [2, 2]), faulted("B" * 200, [5, 5], [5, 4])
    paths = draw_plots(compare_arms(a, [b]), [a, b], tmp_path / "plots")
    assert [path.name for path in paths] == ["intervals.png", "heatmap.png", "resilience.png"]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size < 300_000
    assert [path.name for path in draw_plots(compare_arms(arm("A", [5]), [arm("B", [4])]), [], tmp_path)] == [
        "intervals.png"
    ]


def test_every_record_that_reads_as_json_can_be_rendered():
    bare = {
        "schema_version": 1,
        "scenario": "s",
        "conversation_id": "c",
        "index": 0,
        "random_seed": 0,
        "outcome": "bot_failure",
        "passed": False,
        "failure": {"owner": "bot", "step": "send", "message": "no answer"},
        "assertions": [],
        "conversation": [],
        "transcript": None,
    }
    b = one_cell("B", json.loads(json.dumps(bare)), trial(1))
    assert CellKey("s") in b.cells
    assert "bot failed at send: no answer" in page(one_cell("A", trial(0), trial(1)), b).words()


def test_three_arms_are_ranked_and_two_are_not():
    arms = [arm("best", [5, 5, 4, 5]), arm("middle", [4, 3, 5, 4]), arm("worst", [0, 1, 0, 1])]
    ranked = page(*arms)
    assert "ranking" in ranked.classes()
    assert "Chance to be best best baseline 1–2 95.0%" in ranked.words()
    assert "worst 3 10.0%" in ranked.words()
    assert "ranking" not in page(*arms[:2]).classes()


def test_every_warning_is_listed_and_counted_at_the_top():
    same = {(name, "none"): trials(5, 5, scenario=name, said="the same") for name in ("s0", "s1")}
    scored = [
        Arm.of(name, {(s, "none"): [{**t, "grader": {"score": score + t["index"] / 100}} for t in rows]})
        for name, score in (("A", 0.50), ("B", 0.51))
        for s, rows in (("s2", trials(4, 5, scenario="s2")),)
    ]
    arms = [Arm(one.name, {**one.cells, **Arm.of("", same).cells}) for one in scored]
    comparison = compare_arms(arms[0], arms[1:], judge_variance=0.04)
    assert [word for word in ("identical transcripts", "judge") if word in " ".join(comparison.warnings)] == [
        "identical transcripts",
        "judge",
    ]
    shown = Page(render_html(comparison, arms)).words()
    assert all(" ".join(line.split()) in shown for line in comparison.warnings)
    assert f"{len(comparison.warnings)} warnings" in shown
