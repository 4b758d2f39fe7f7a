"""What a trial took, split by role: known before it is checked, kept in its record, and never made up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fakes import (
    FixedIngest,
    RecordingBot,
    errored_trial,
    evaluate,
    judged_trial,
    make_scenario,
    tool_span,
    verdict,
)
from sonar_eval import (
    Assertion,
    Grader,
    LLMConfig,
    ScriptedClient,
    Severity,
    Transcript,
    Variant,
    max_cost,
    max_total_tokens,
)
from sonar_eval.errors import IngestError, LLMAnswerError
from sonar_eval.llm import ChatReply, Usage
from sonar_eval.metrics import roll_up
from sonar_eval.records import read_trial, scenario_record, trial_record
from sonar_eval.report import render_transcript
from sonar_eval.results import GraderResult
from sonar_eval.scorecard import scorecard
from sonar_eval.trial import metered_grader
from sonar_eval.usage import Price, Spend

PRICE = Price(1.0, 10.0)
USER = LLMConfig("user", price=PRICE)
JUDGE = LLMConfig("judge", price=Price(2.0, 0.0))
BOT = Variant("m", model_params={"price": {"input": 5, "output": 50}})


def said(text, prompt=100, completion=10):
    return ChatReply(text, usage=Usage(prompt, completion))


class CountedIngest(FixedIngest):
    """Answer with a trace whose runs have the given token counts."""

    def __init__(self, *tokens, **more):
        super().__init__([tool_span("menu_lookup")], **more)
        self.tokens = tokens

    async def pull(self, conversation_id):
        transcript = await super().pull(conversation_id)
        runs = [
            {"trace_id": f"t{place}", "input_tokens": prompt, "output_tokens": completion}
            for place, (prompt, completion) in enumerate(self.tokens)
        ]
        spans = [{"kind": "llm", "span_id": str(place), "trace_id": f"t{place}"} for place in range(len(self.tokens))]
        return Transcript(conversation_id, runs, [*transcript.spans, *spans])


def trial_of(*, replies=("hello", "[[END]]"), tokens=((1000, 100),), check=None, ingest=None, bot=None, **task):
    scenario = make_scenario(
        scripted_messages=None,
        grader_rubric="be kind",
        user_llm=USER,
        grader_llm=JUDGE,
        assertions=[Assertion("seen", Severity.CAPABILITY, check or (lambda transcript, log: True))],
    )
    report = evaluate(
        scenario,
        bot=bot,
        model=ScriptedClient([said(reply) if isinstance(reply, str) else reply for reply in replies]),
        judge=ScriptedClient([said(verdict(1.0), 500, 50)]),
        ingest=ingest or CountedIngest(*tokens),
        **{"variant": BOT, **task},
    )
    return report.trials[0], report


def test_every_role_is_accounted_for_by_what_it_told_and_without_a_price_costs_an_unknown_sum():
    trial, _ = trial_of()
    assert trial.log.spent == {
        "simulator": Spend(2, 200, 20, pytest.approx(400 / 1e6)),
        "bot": Spend(1, 1000, 100, pytest.approx(10_000 / 1e6)),
        "judge": Spend(1, 500, 50, None),
    }


def test_checks_see_what_bot_and_simulator_took():
    seen = []

    def look(transcript, log):
        seen.append({role: spend.cost_usd for role, spend in log.spent.items()})
        return True

    trial_of(check=look)
    assert seen == [{"simulator": pytest.approx(0.0004), "bot": pytest.approx(0.01)}]


class CachedIngest(CountedIngest):
    """Tell of each run how much of its input was cached."""

    def __init__(self, *cached, tokens):
        super().__init__(*tokens)
        self.cached = cached

    async def pull(self, conversation_id):
        transcript = await super().pull(conversation_id)
        for run, tokens in zip(transcript.runs, self.cached, strict=True):
            run |= {} if tokens is None else {"cached_tokens": tokens}
        return transcript


CACHING = Variant("m", model_params={"price": {"input": 1, "output": 2, "cached_input": 0.1}})


@pytest.mark.parametrize(
    ("cached", "cost", "kept"),
    [((800,), 480, 800), ((None,), 1200, 0), ((5000,), 300, 1000), ((800, 0), 480 + 1200, 800)],
)
def test_what_a_bot_took_from_a_cache_is_priced_as_that(cached, cost, kept):
    calls = len(cached)
    trial, _ = trial_of(ingest=CachedIngest(*cached, tokens=[(1000, 100)] * calls), variant=CACHING)
    assert trial.log.spent["bot"] == Spend(calls, 1000 * calls, 100 * calls, pytest.approx(cost / 1e6), kept)


def test_the_part_of_a_cost_that_is_known_has_the_discount_of_what_was_cached():
    trial, _ = trial_of(ingest=CachedIngest(800, None, tokens=[(1000, 100), (None, None)]), variant=CACHING)
    spent = trial.log.spent["bot"]
    assert (spent.cost_usd, spent.known_usd) == (None, pytest.approx(480 / 1e6))


@pytest.mark.parametrize("tokens", [((None, None),), ((1000, 100), (None, None))])
def test_a_trace_without_counts_leaves_the_bot_and_the_total_unknown(tokens):
    trial, report = trial_of(tokens=tokens)
    assert trial.log.spent["bot"] == Spend(len(tokens), None, None, None)
    assert scenario_record(report)["cost_usd"] is None
    names = {score.name for score in scorecard(report)}
    assert [name for name in names if name.startswith("cost_usd")] == ["cost_usd_by/simulator"]
    assert {"tokens/judge_input", "tokens/judge_output"} <= names


@pytest.mark.parametrize(
    ("tokens", "spent", "least"),
    [
        (((1000, 100), (None, None)), Spend(2, None, None, None), 0.01),
        (((1000, None), (1000, None)), Spend(2, 2000, None, None), 0.01),
        (((None, 100),), Spend(1, None, 100, None), 0.005),
    ],
)
def test_a_call_whose_usage_was_not_told_is_never_counted_as_nothing(tokens, spent, least):
    checks = {
        "tokens": max_total_tokens(5000),
        "cost": max_cost(1.0),
        "few tokens": max_total_tokens(99),
        "little cost": max_cost(0.004),
    }
    assertions = [Assertion(name, Severity.SAFETY_CRITICAL, check) for name, check in checks.items()]
    report = evaluate(make_scenario(assertions=assertions), ingest=CountedIngest(*tokens), variant=BOT)
    (trial,) = report.trials
    assert trial.log.spent["bot"] == spent
    assert trial.log.spent["bot"].cost_at_least_usd == pytest.approx(least)
    results = {result.name: (result.passed, result.unknown) for result in trial.assertions}
    unknown, failed = (False, True), (False, False)
    assert results == {"tokens": unknown, "cost": unknown, "few tokens": failed, "little cost": failed}
    assert all("at least" in result.detail for result in trial.assertions[2:])
    names = {score.name for score in scorecard(report)}
    assert not names & {"tokens_mean", "cost_usd", "cost_usd_by/bot"}
    assert ("tokens/bot_input" in names, "tokens/bot_output" in names) == (
        spent.input_tokens is not None,
        spent.output_tokens is not None,
    )
    assert trial_record("s", trial)["tokens"] is None


def test_a_turn_that_asked_no_model_took_nothing():
    class Quiet(CountedIngest):
        """Tell of a second turn in which only a tool ran."""

        async def pull(self, conversation_id):
            transcript = await super().pull(conversation_id)
            return replace(transcript, spans=[span for span in transcript.spans if span.get("trace_id") != "t1"])

    trial, _ = trial_of(ingest=Quiet((1000, 100), (None, None)))
    assert trial.log.spent["bot"] == Spend(1, 1000, 100, pytest.approx(0.01))


def test_a_sum_over_trials_is_no_number_when_one_of_them_is_not_known():
    def counted(index, *tokens):
        run = dict(zip(("input_tokens", "output_tokens"), tokens, strict=True))
        return judged_trial(index, True, transcript=Transcript("c", [{"trace_id": "t", **run}]))

    found = scores(counted(0, 100, 10), counted(1, 300, None))
    assert (found["tokens/bot_input"], found["tokens_mean"]) == (400, 110)
    assert "tokens/bot_output" not in found


def test_what_is_known_of_a_cost_stays_in_the_record():
    trial = costly(bot=None)
    trial.log.spent["bot"] = Spend(2, None, None, None, cost_at_least_usd=0.5)
    record = json.loads(json.dumps(trial_record("s", trial)))
    assert read_trial(record).log.spent["bot"].known_usd == 0.5
    assert record["cost_usd"] is None
    assert "cost_at_least_usd" not in record["spent"]["simulator"]


def test_a_variant_whose_price_is_none_costs_nobody_a_trial():
    trial, _ = trial_of(variant=Variant("m", model_params={"price": "cheap"}))
    assert trial.outcome == "judged"
    assert trial.log.spent["bot"] == Spend(1, 1000, 100, None)


def test_a_scripted_user_is_no_role_that_took_anything():
    report = evaluate(make_scenario(), ingest=CountedIngest((10, 1)), variant=BOT)
    assert set(report.trials[0].log.spent) == {"bot"}


def test_a_try_that_was_given_up_was_paid_for_too():
    ingest = CountedIngest((1000, 100), failures=[IngestError("gone")])
    trial, report = trial_of(ingest=ingest, retries=1, replies=("hello", "[[END]]", "hello", "[[END]]"))
    assert len(trial.earlier_failures) == 1
    assert trial.log.spent["simulator"].calls == trial.earlier_spent["simulator"].calls == 2
    assert trial.spent["simulator"] == Spend(4, 400, 40, pytest.approx(800 / 1e6))
    # Nobody knows what the bot took in the try whose trace was lost.
    assert trial.spent["bot"].cost_usd is None
    assert report.spent == trial.spent


def test_a_user_model_that_fails_after_it_was_paid_is_accounted_for():
    refused = LLMAnswerError("refused")
    refused.usage = Usage(100, 10)
    trial, _ = trial_of(replies=("hello", refused))
    assert (trial.outcome, trial.failure.owner) == ("errored", "simulator")
    assert trial.log.spent["simulator"].input_tokens == 200
    assert trial.log.spent["bot"] == Spend()


def test_a_bot_that_failed_is_accounted_for_as_far_as_it_came():
    def explode(message):
        raise RuntimeError("no")

    trial, _ = trial_of(bot=RecordingBot(explode))
    assert trial.outcome == "bot_failure"
    assert set(trial.log.spent) == {"simulator", "bot"}


def test_a_judge_of_another_kind_is_used_as_it_is_and_its_cost_is_unknown():
    class Oracle:
        async def grade(self, transcript, log):
            return GraderResult(1.0, "I know", True)

    log = judged_trial().log
    with metered_grader(Oracle(), log) as grader:
        assert isinstance(grader, Oracle)
    assert log.spent == {"judge": Spend()}


def test_a_judge_with_another_client_is_the_same_judge():
    judge = Grader(ScriptedClient(["a"]), JUDGE, "be kind", pass_threshold=0.3)
    other = ScriptedClient(["b"])
    twin = judge.with_client(other)
    assert (twin.client, twin._threshold) == (other, 0.3)
    assert judge.client is not other


def costly(index=0, *, bot=0.25, earlier=None, **changes):
    trial = judged_trial(index, True, **changes)
    trial.log.spent = {"bot": Spend(1, 10, 1, bot), "simulator": Spend(2, 20, 2, 0.125)}
    trial.earlier_spent = earlier or {}
    return trial


def scores(*trials):
    report = roll_up("s", list(trials), k=len(trials))
    return {score.name: score.value for score in scorecard(report)}


def test_the_scorecard_splits_cost_and_tokens_by_role():
    errored = errored_trial(2)
    errored.log.spent = {"simulator": Spend(1, 5, 1, 0.5)}
    found = scores(costly(0), costly(1, earlier={"bot": Spend(1, 10, 1, 1.0)}), errored)
    assert found["cost_usd"] == 2.25
    assert (found["cost_usd_by/bot"], found["cost_usd_by/simulator"]) == (1.5, 0.75)
    assert (found["tokens/simulator_input"], found["tokens/simulator_output"]) == (45, 5)
    assert "tokens/judge_input" not in found


@pytest.mark.parametrize("cost", [0.0, None])
def test_money_that_nobody_spent_or_knows_of_is_not_shown(cost):
    trial = costly(bot=cost)
    trial.log.spent["simulator"] = Spend(1, 1, 1, cost)
    assert not [name for name in scores(trial) if name.startswith("cost_usd")]
    assert "cost" not in render_transcript(trial_record("s", trial))


def test_a_record_keeps_what_was_spent_and_gives_it_back():
    trial = costly(earlier={"bot": Spend(1, 10, 1, 1.0)})
    record = json.loads(json.dumps(trial_record("s", trial)))
    assert record["spent"]["bot"]["cost_usd"] == 0.25
    assert record["cost_usd"] == 1.375
    read = read_trial(record)
    assert (read.log.spent, read.earlier_spent) == (trial.log.spent, trial.earlier_spent)


def test_a_record_from_before_still_reads():
    record = trial_record("s", costly())
    for name in ("spent", "earlier_spent", "cost_usd"):
        del record[name]
    assert read_trial(record).spent == {}
    assert "cost" not in render_transcript(record)


@pytest.mark.parametrize(
    ("trial", "line"),
    [
        (costly(), "- cost: $0.3750 (bot $0.2500, simulator $0.1250)"),
        (costly(bot=None), "- cost: not all known (simulator $0.1250)"),
        (
            costly(earlier={"judge": Spend(1, 1, 1, 1.0)}),
            "- cost: $1.3750 with the tries that were given up (bot $0.2500, simulator $0.1250)",
        ),
    ],
)
def test_a_transcript_says_what_is_known_of_the_cost(trial, line):
    assert line in render_transcript(trial_record("s", trial)).splitlines()


def test_spans_that_come_after_grading_are_accounted_for_too():
    class LateIngest(CountedIngest):
        """Tell of a second turn only after the trial was graded."""

        async def pull(self, conversation_id):
            return replace(await super().pull(conversation_id), completeness={"complete": True, "digest": "1"})

        async def digests(self, conversation_ids):
            return dict.fromkeys(conversation_ids, "2")

        async def fetch(self, conversation_id):
            self.tokens = ((1000, 100), (500, 50))
            return await super().pull(conversation_id)

    trial, _ = trial_of(ingest=LateIngest((1000, 100)))
    assert trial.changed_after_grading
    assert trial.log.spent["bot"] == Spend(2, 1500, 150, pytest.approx(15_000 / 1e6))
