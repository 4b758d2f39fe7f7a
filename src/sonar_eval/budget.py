"""A spend cap: what trials have cost so far, what the rest will, and whether one more fits."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from .usage import Spend

log = logging.getLogger(__name__)

_FORECAST_AFTER = 3
# Costs are sums of floating-point numbers: a cap that is met to the cent is not exceeded.
_SLACK = 1 + 1e-9


class Budget:
    """Count what trials cost against `cap_usd` (None: no cap); `trials` are those still to be run.

    Before the first cost is known nothing can be foretold, and as many trials start as may run at a time.
    """

    def __init__(self, cap_usd: float | None, trials: int) -> None:
        self._cap = cap_usd
        self._trials = trials
        self._spent = 0.0
        self._fresh = 0.0
        self._paid = 0
        self._told = False
        self.warnings: list[str] = []

    def carry(self, spent: Mapping[str, Spend]) -> None:
        """Count what a trial of an earlier run cost."""
        self._spent += self._known(spent)

    def pay(self, spent: Mapping[str, Spend]) -> None:
        """Count what a trial cost, or a try at one that was given up."""
        cost = self._known(spent)
        self._spent += cost
        self._fresh += cost
        self._paid += 1
        if self._cap is not None and not self._told and self._paid >= min(_FORECAST_AFTER, self._trials):
            self._told = True
            self._tell_forecast(self._cap)

    def allows(self, under_way: int) -> bool:
        """Tell whether one more trial beside those under way is expected to stay below the cap."""
        if self._cap is None:
            return True
        return self._spent < self._cap and self._spent + (under_way + 1) * self._each <= self._cap * _SLACK

    @property
    def words(self) -> str:
        """Say what was spent, and why that is the end."""
        return f"the spend cap: ${self._spent:.4f} of max_cost_usd ${self._cap or 0:g} spent, ${self._each:.4f} a trial"

    @property
    def _each(self) -> float:
        return self._fresh / self._paid if self._paid else 0.0

    def _known(self, spent: Mapping[str, Spend]) -> float:
        unknown = [role for role, spend in spent.items() if spend.cost_usd is None] if spent else ["any model"]
        if unknown and self._cap is not None and not self.warnings:
            self._warn(f"the spend cap cannot be kept: what {', '.join(map(str, unknown))} costs is not known")
        return sum(spend.known_usd for spend in spent.values())

    def _tell_forecast(self, cap: float) -> None:
        expected = self._spent + (self._trials - self._paid) * self._each
        words = (
            f"after {self._paid} trials at ${self._each:.4f}, all {self._trials} are expected to cost ${expected:.2f}"
        )
        if expected > cap * _SLACK:
            fits = self._paid + int((cap * _SLACK - self._spent) / self._each)
            self._warn(f"forecast: {words}; the cap of ${cap:g} ends it after about {max(fits, self._paid)}")
        elif self._spent:
            log.info("forecast: %s, within the cap of $%g", words, cap)

    def _warn(self, words: str) -> None:
        self.warnings.append(words)
        log.warning("%s", words)
