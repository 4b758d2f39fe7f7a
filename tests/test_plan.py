"""How many trials, how many scenarios, and what they cost."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from simulated import arm, trials, write_sweep
from sonar_eval.cli import main
from sonar_eval.report import Noise, make_plan, planning_line


@pytest.mark.parametrize(("scenarios", "drop", "k"), [(20, 0.05, 30), (20, 0.10, 9), (10, 0.10, 17), (50, 0.05, 12)])
def test_trials_needed_are_those_of_the_simulated_plans(scenarios, drop, k):
    assert make_plan(scenarios, drop).trials == k


@pytest.mark.parametrize(("rate", "scenarios", "drop", "k"), [(0.95, 20, 0.05, 13), (0.95, 50, 0.05, 6)])
def test_a_better_bot_needs_fewer(rate, scenarios, drop, k):
    assert abs(make_plan(scenarios, drop, rate=rate).trials - k) <= 1


@pytest.mark.parametrize(
    ("scenarios", "k", "points"),
    [(10, 1, 48.4), (10, 5, 19.7), (20, 5, 13.2), (20, 20, 6.1), (30, 10, 7.2), (50, 5, 7.9), (100, 50, 1.6)],
)
def test_the_detectable_drop_is_that_of_the_published_table(scenarios, k, points):
    assert 100 * Noise().detectable(scenarios * k) == pytest.approx(points, abs=0.06)


def test_one_line_before_a_sweep():
    assert planning_line(20, 5) == "20 scenarios x 5 trials reveal a difference of about 13 pts (80% power)"
    assert planning_line(0, 5) == "no trial, no verdict"


def test_few_scenarios_cannot_carry_over_and_many_trials_do_not_help():
    lines = list(make_plan(3, 0.05).lines())
    assert any("More trials will not do it: add scenarios" in line for line in lines)
    assert any("too few now" in line for line in lines)


def test_an_arm_that_never_failed_has_noise_all_the_same():
    plan = make_plan(20, 0.05, earlier=arm("A", [5] * 20))
    assert plan.rate == 1.0
    assert plan.trials > 3


def run(*arguments):
    return CliRunner().invoke(main, ["plan", *arguments])


def test_the_command_forecasts_cost_from_what_an_earlier_sweep_spent(tmp_path):
    spent = {role: {"calls": 1, "cost_usd": 0.01} for role in ("bot", "judge")}
    folder = write_sweep(tmp_path / "sweep", {("m", "v", "s", "none"): trials(4, 5, spent=spent)})
    told = run("--scenarios", "20", "--detect", "10", "--from", str(folder))
    assert told.exit_code == 0, told.output
    assert "0.0200 USD per trial, the mean of 5 earlier trials" in told.output
    assert "about 4.00 USD for two arms" in told.output


def test_a_price_that_one_role_keeps_to_itself_is_no_price(tmp_path):
    spent = {"bot": {"calls": 1, "cost_usd": 0.01}, "judge": {"calls": 1, "cost_usd": None}}
    folder = write_sweep(tmp_path / "sweep", {("m", "v", "s", "none"): trials(4, 5, spent=spent)})
    assert "Cost: not known" in run("--scenarios", "20", "--detect", "10", "--from", str(folder)).output


def test_the_command_plans_without_any_records():
    told = run("--scenarios", "20", "--detect", "10")
    assert told.exit_code == 0
    assert "To reveal 10 pts on 20 scenarios: 9 trials per scenario and arm." in told.output
    assert run("--scenarios", "20", "--detect", "0").exit_code == 2
