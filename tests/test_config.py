import threading

import pytest

from fakes import make_scenario, make_task
from sonar_eval import (
    Action,
    Assertion,
    ConfigError,
    FaultRule,
    FaultSpec,
    Fidelity,
    LLMConfig,
    ScenarioConfig,
    Severity,
)


def hold(transcript, log):
    return True


async def hold_later(transcript, log):
    return False


class HoldsLater:
    async def __call__(self, transcript, log):
        return False


def gate(check=hold):
    return Assertion("gate", Severity.SAFETY_CRITICAL, check)


def test_a_scenario_takes_from_the_task_what_it_leaves_open():
    task = make_task(default_k=3)
    resolved = task.resolve(make_scenario(k=None))
    assert resolved.k == 3
    assert resolved.user_llm == LLMConfig("user")
    assert resolved.grader_llm == LLMConfig("judge")


def test_a_scenario_keeps_what_it_says_itself():
    own = LLMConfig("own")
    resolved = make_task(default_k=3).resolve(make_scenario(k=1, user_llm=own, grader_llm=own))
    assert (resolved.k, resolved.user_llm, resolved.grader_llm) == (1, own, own)


def test_resolving_leaves_the_scenario_as_it_is():
    scenario = make_scenario(k=None)
    make_task().resolve(scenario)
    assert (scenario.k, scenario.user_llm) == (None, None)


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", True])
def test_an_odd_number_of_trials_is_refused_by_the_scenarios_name(k):
    with pytest.raises(ValueError, match=r"'refund'.*k must be a whole number") as caught:
        make_task().resolve(make_scenario("refund", k=k))
    assert repr(k) in str(caught.value)


def test_a_whole_number_of_another_type_becomes_one_that_records_can_hold():
    class Three:
        def __index__(self):
            return 3

    resolved = make_task().resolve(make_scenario(k=Three(), max_turns=Three()))
    assert (type(resolved.k), resolved.k, resolved.max_turns) == (int, 3, 3)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("user_instructions", None, "must be a text"),
        ("termination_signal", None, "must be a text"),
        ("termination_signal", " ", "must not be blank"),
        ("scripted_messages", "hello", "must be a list of texts"),
        ("opening_messages", ["a", None], "must be a list of texts"),
        ("assertions", [hold], r"must be Assertion\(name, severity, check\)"),
        ("assertions", [gate(check=True)], "must be callable"),
        ("faults", [FaultRule("pay", Action.ERROR)], "must be a FaultSpec"),
        ("faults", FaultSpec(FaultRule("pay", Action.ERROR)), "must be a FaultSpec"),
        ("faults", FaultSpec(("pay",)), "must be a FaultSpec"),
        ("persona", "Bob", r"must be Persona\(…\)"),
        ("user_llm", "gpt-4", r"must be LLMConfig\(…\)"),
        ("grader_llm", {"model": "x"}, r"must be LLMConfig\(…\)"),
        ("scripted_messages", [], "holds no words"),
        ("scripted_messages", [" ", ""], "holds no words"),
        ("fidelity", "mock", "must be real or mocked"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_told_by_the_scenarios_name(setting, value, said):
    settings = {"user_instructions": "say hello", "scripted_messages": None, setting: value}
    with pytest.raises(ConfigError, match=f"'refund': .*{said}"):
        make_task().resolve(ScenarioConfig("refund", **settings))


def test_a_model_of_the_task_of_the_wrong_kind_is_told_too():
    task = make_task()
    task.user_llm = "gpt-4"
    with pytest.raises(ConfigError, match=r"'refund': user_llm must be LLMConfig\(…\), got 'gpt-4'"):
        task.resolve(make_scenario("refund"))


def test_a_fidelity_may_be_given_as_text():
    assert make_task().resolve(make_scenario(fidelity="real")).fidelity is Fidelity.REAL


def test_a_severity_may_be_given_as_text_and_an_unknown_one_is_refused_at_once():
    assert Assertion("gate", "capability", hold).severity is Severity.CAPABILITY
    with pytest.raises(ConfigError, match="'gate': severity must be safety_critical or capability, got 'critical'"):
        Assertion("gate", "critical", hold)


@pytest.mark.parametrize("place", ["seed", "params"])
def test_what_cannot_be_copied_for_each_trial_is_told_before_the_first(place):
    with pytest.raises(ConfigError, match=f"'refund': {place} must hold values that can be copied"):
        make_task().resolve(make_scenario("refund", **{place: {"lock": threading.Lock()}}))


@pytest.mark.parametrize("k", [0, -1, True])
def test_an_odd_default_is_refused_where_it_is_used(k):
    task = make_task(default_k=k)
    with pytest.raises(ValueError, match="'refund'"):
        task.resolve(make_scenario("refund", k=None))
    assert task.resolve(make_scenario(k=2)).k == 2


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None])
def test_an_odd_turn_limit_is_refused(limit):
    with pytest.raises(ConfigError, match="max_turns"):
        make_task().resolve(make_scenario(max_turns=limit))


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True])
def test_an_odd_concurrency_is_refused(concurrency):
    with pytest.raises(ConfigError, match="concurrency"):
        make_task(concurrency=concurrency).resolve(make_scenario())


@pytest.mark.parametrize("threshold", [float("nan"), -0.1, 1.1, "0.7", True])
def test_a_grader_threshold_outside_zero_and_one_is_refused(threshold):
    with pytest.raises(ConfigError, match="grader_threshold"):
        make_task(grader_threshold=threshold).resolve(make_scenario())


@pytest.mark.parametrize("signal", ["", "  "])
def test_a_blank_end_signal_is_refused(signal):
    with pytest.raises(ConfigError, match="termination_signal"):
        make_task().resolve(make_scenario(termination_signal=signal))


def test_two_assertions_of_one_name_are_refused():
    with pytest.raises(ValueError, match="'gate'"):
        make_task().resolve(make_scenario(assertions=[gate(), gate()]))


@pytest.mark.parametrize("check", [hold_later, HoldsLater()])
def test_an_async_check_is_refused_since_it_would_always_hold(check):
    with pytest.raises(ConfigError, match=r"'gate'.*async"):
        make_task().resolve(make_scenario(assertions=[gate(check)]))


def test_a_predicate_is_refused_where_faults_are_posted_to_the_bot():
    faults = FaultSpec((FaultRule("pay", Action.ERROR, when=lambda call: True),))
    with pytest.raises(ConfigError, match="predicate"):
        make_task().resolve(make_scenario(faults=faults, fidelity=Fidelity.REAL))
    assert make_task().resolve(make_scenario(faults=faults)).faults is faults


def test_the_key_does_not_show_when_a_task_is_printed():
    assert "very-secret" not in repr(make_task(api_key="very-secret"))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("retries", -1),
        ("retries", 1.5),
        ("turn_timeout_s", 0),
        ("setup_timeout_s", -2),
        ("teardown_timeout_s", 0),
        ("turn_timeout_s", "5"),
    ],
)
def test_a_limit_that_makes_no_sense_is_told_before_the_first_trial(setting, value):
    with pytest.raises(ConfigError, match=f"task: {setting} must be"):
        make_task(**{setting: value}).resolve(make_scenario())


@pytest.mark.parametrize("index", [-1, "0", True, 1.0])
def test_a_call_index_that_could_never_match_is_refused(index):
    with pytest.raises(ValueError, match="when_call_index must be a whole number"):
        FaultRule("pay", Action.ERROR, when_call_index=index)
