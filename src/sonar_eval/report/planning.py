"""How many trials and scenarios an evaluation needs, said before money is spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..stats import (
    detectable_difference,
    intra_scenario_correlation,
    mean,
    scenarios_needed,
    trials_per_scenario_needed,
    typical_variance,
)
from .arm import Arm
from .wording import MANY_TRIALS

TYPICAL_RATE = 0.8
TYPICAL_RHO = 0.5
EFFECT_SD = 0.10
"""How much the true effect of a change spreads over scenarios, where no data tell."""


@dataclass(frozen=True)
class Noise:
    """How noisy trials are: measured where it was, otherwise what is typical of such a rate."""

    rate: float = TYPICAL_RATE
    var_a: float | None = None
    var_b: float | None = None
    rho: float = TYPICAL_RHO

    def _before(self) -> float:
        return typical_variance(self.rate, self.rho) if self.var_a is None else self.var_a

    def _after(self, drop: float) -> float:
        # An arm that never failed has no noise of its own to plan with; one that is worse by so much would have.
        return max(self.var_b or 0.0, typical_variance(max(self.rate - drop, 0.0), self.rho))

    def detectable(self, trials: int) -> float | None:
        """Return the drop that so many trials per arm reveal with 80% power; None without trials."""
        drop = detectable_difference(self._before(), self._after(0.0), trials)
        for _ in range(50):
            if drop is None:
                return None
            drop = detectable_difference(self._before(), self._after(drop), trials)
        return drop

    def trials_needed(self, scenarios: int, drop: float) -> int | None:
        """Return the trials per scenario that reveal a drop with 80% power."""
        needed = trials_per_scenario_needed(self._before(), self._after(drop), scenarios, drop)
        return int(needed[0]) if needed else None


def planning_line(scenarios: int, k: int, noise: Noise | None = None, *, unit: str = "scenario") -> str:
    """Say in one line what so many scenarios, or other units of so many trials each, can reveal."""
    drop = (noise or Noise()).detectable(scenarios * k)
    plural = "" if scenarios == 1 else "s"
    if drop is None:
        return "no trial, no verdict"
    return f"{scenarios} {unit}{plural} x {k} trials reveal a difference of about {drop * 100:.0f} pts (80% power)"


@dataclass(frozen=True)
class Plan:
    """What it takes to reveal a difference."""

    scenarios: int
    detect: float
    trials: int | None
    """Per scenario and arm."""
    scenarios_at_least: int | None
    """Fewer scenarios cannot show that the difference carries over to others, however many trials."""
    detectable: dict[int, float]
    """The difference that k trials per scenario reveal, by k."""
    rate: float
    rho: float
    cost_per_trial: float | None = None
    trials_priced: int = 0

    def lines(self) -> Iterator[str]:
        """Say it."""
        aim = f"{self.detect * 100:g} pts"
        yield f"Assumed: pass rate {self.rate:.0%}, correlation of trials within a scenario {self.rho:.2f}, 80% power."
        if self.trials is not None:
            yield f"To reveal {aim} on {self.scenarios} scenarios: {self.trials} trials per scenario and arm."
        if self.trials is not None and self.trials > MANY_TRIALS:
            more = -(-self.trials * self.scenarios // MANY_TRIALS)
            yield f"More trials will not do it: add scenarios (about {more} with {MANY_TRIALS} trials each)."
        if self.scenarios_at_least is not None:
            few = self.scenarios < self.scenarios_at_least
            yield (
                f"To say that {aim} carry over to other scenarios: at least {self.scenarios_at_least} scenarios"
                f"{' (too few now: more trials do not help)' if few else ''}."
            )
        for k, drop in self.detectable.items():
            yield f"  {self.scenarios} x {k} trials reveal about {drop * 100:.0f} pts{self._price(k)}"
        if self.cost_per_trial is None:
            yield "Cost: not known; name an earlier sweep with --from that recorded what it spent."
        else:
            yield f"Cost: {self.cost_per_trial:.4f} USD per trial, the mean of {self.trials_priced} earlier trials."

    def _price(self, k: int) -> str:
        if self.cost_per_trial is None:
            return ""
        return f", about {2 * self.scenarios * k * self.cost_per_trial:.2f} USD for two arms"


def make_plan(
    scenarios: int,
    detect: float,
    *,
    rate: float | None = None,
    rho: float | None = None,
    earlier: Arm | None = None,
    looks: tuple[int, ...] = (5, 10, 20),
) -> Plan:
    """Plan for a difference of `detect`, a fraction; rates, correlation and prices are those of `earlier` if given."""
    cells = [cell for cell in earlier.cells.values() if cell.n] if earlier else []
    seen_rate = mean([cell.passes / cell.n for cell in cells]) if cells else None
    seen_rho = intra_scenario_correlation([cell.passes for cell in cells], [cell.n for cell in cells])
    noise = Noise(
        _first(rate, seen_rate, TYPICAL_RATE),
        rho=min(0.99, max(0.0, _first(rho, seen_rho, TYPICAL_RHO))),
    )
    costs = [cost for record in (earlier.records() if earlier else ()) if (cost := trial_cost(record)) is not None]
    trials = noise.trials_needed(scenarios, detect)
    sizes = sorted({*looks, *([trials] if trials else [])})
    return Plan(
        scenarios,
        detect,
        trials,
        scenarios_needed(EFFECT_SD, detect),
        {k: drop for k in sizes if (drop := noise.detectable(scenarios * k)) is not None},
        noise.rate,
        noise.rho,
        mean(costs) if costs else None,
        len(costs),
    )


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def trial_cost(record: Any) -> float | None:
    """Return what a trial cost over all roles, in US dollars; None when a role's cost is not known."""
    spent = record.get("spent")
    if not spent:
        return None
    costs = [row.get("cost_usd") for row in spent.values()]
    return None if any(cost is None for cost in costs) else sum(costs)
