"""Where the marks of the charts stand: numbers to places on a scale, for whatever draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .comparison import Comparison, Contrast, Estimate, ParetoPoint
from .wording import points_in_brackets, rate_in_brackets

NEUTRAL, GAIN, LOSS = "neutral", "gain", "loss"
_TONES = {"better": GAIN, "better_on_this_suite": GAIN, "worse": LOSS, "worse_on_this_suite": LOSS}
_STEPS = (1, 2, 2.5, 5, 10)
SHAPES = ("ring", "square", "diamond", "triangle")


def tone_of(contrast: Contrast) -> str:
    """Name the colour of a difference: none unless it is declared."""
    return _TONES.get(contrast.verdict, NEUTRAL)


def shape_of(place: int) -> str:
    """Name the marker of the arm at a place: a ring for the baseline, something filled for candidates."""
    return SHAPES[0] if place == 0 else SHAPES[1 + (place - 1) % (len(SHAPES) - 1)]


@dataclass(frozen=True)
class Scale:
    """A straight axis."""

    low: float
    high: float
    step: float

    def at(self, value: float) -> float:
        """Return the place of a value in percent of the axis, with a little room left at both ends."""
        share = (value - self.low) / (self.high - self.low)
        return round(2 + 96 * min(1.0, max(0.0, share)), 2)

    @property
    def ticks(self) -> list[float]:
        """List the round values on the axis."""
        count = round((self.high - self.low) / self.step)
        return [round(self.low + place * self.step, 10) for place in range(count + 1)]


def scale_over(values: Sequence[float], *, about: int = 5) -> Scale:
    """Make an axis that holds the values and ends on round numbers."""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    size = 10.0 ** math.floor(math.log10(span / about))
    step = next(size * factor for factor in _STEPS if size * factor * about >= span * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Scale(first * step, max(last, first + 1) * step, step)


@dataclass(frozen=True)
class Mark:
    """One line of an interval chart."""

    name: str
    value: float
    low: float
    high: float
    text: str
    """The numbers, in words."""
    tone: str = NEUTRAL
    shape: str = "square"
    group: str = ""
    detail: str = ""


@dataclass(frozen=True)
class IntervalChart:
    """Intervals under one another, on one axis."""

    marks: list[Mark]
    scale: Scale
    zero: float | None
    """Where no difference would be."""

    def tick_text(self, value: float) -> str:
        """Write a value of the axis."""
        if self.zero is None:
            return f"{value:.0%}"
        return f"{value * 100:+.4g}" if value else "0"


def rate_chart(comparison: Comparison) -> IntervalChart:
    """Draw the pass rate of each arm."""
    marks = [
        Mark(arm.name, *ends, rate_in_brackets(arm.pass_rate), shape=shape_of(place))
        for place, arm in enumerate(comparison.arms)
        if (ends := _ends(arm.pass_rate))
    ]
    return IntervalChart(marks, Scale(0.0, 1.0, 0.25), None)


def difference_chart(comparison: Comparison) -> IntervalChart:
    """Draw the difference of each candidate from the baseline."""
    marks = [
        Mark(one.candidate, *ends, points_in_brackets(one.suite), tone_of(one), shape_of(place))
        for place, one in enumerate(comparison.contrasts, 1)
        if (ends := _ends(one.suite))
    ]
    return _around_zero(marks)


def resilience_chart(comparison: Comparison) -> IntervalChart:
    """Draw what each fault costs each arm, fault by fault."""
    places = {arm.name: place for place, arm in enumerate(comparison.arms)}
    faults = list(dict.fromkeys(delta.fault for delta in comparison.resilience))
    marks = [
        Mark(
            delta.arm,
            *ends,
            points_in_brackets(delta.loss),
            shape=shape_of(places.get(delta.arm, 0)),
            group=delta.fault,
            detail=f"{delta.rate_without:.0%} → {delta.rate_with:.0%}",
        )
        for fault in faults
        for delta in comparison.resilience
        if delta.fault == fault and (ends := _ends(delta.loss))
    ]
    return _around_zero(marks)


def _around_zero(marks: list[Mark]) -> IntervalChart:
    ends = [end for mark in marks for end in (mark.low, mark.high)]
    return IntervalChart(marks, scale_over([0.0, *ends] if ends else [0.0, 0.1]), 0.0)


def _ends(estimate: Estimate) -> tuple[float, float, float] | None:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    return estimate.value, estimate.low, estimate.high


@dataclass(frozen=True)
class Spot:
    """An arm in a trade-off chart; places are in percent from the left and from the top."""

    name: str
    x: float
    y: float
    text: str
    shape: str
    on_front: bool


@dataclass(frozen=True)
class TradeOff:
    """Pass rate against what it costs, in money or in time."""

    title: str
    spots: list[Spot]
    x: Scale
    y: Scale


def trade_offs(comparison: Comparison) -> list[TradeOff]:
    """Draw pass rate against cost and against latency, each where at least two arms know it."""
    found = [
        ("Cost of all trials, US dollars", [point.cost_usd for point in comparison.pareto]),
        ("Median latency of a turn, seconds", [point.latency_s for point in comparison.pareto]),
    ]
    return [
        _trade_off(title, comparison.pareto, values)
        for title, values in found
        if sum(value is not None for value in values) > 1
    ]


def _trade_off(title: str, arms: Sequence[ParetoPoint], values: Sequence[float | None]) -> TradeOff:
    known = [
        (place, arm, arm.pass_rate, value)
        for place, (arm, value) in enumerate(zip(arms, values, strict=True))
        if value is not None and arm.pass_rate is not None
    ]
    x = scale_over([0.0, *(value for *_, value in known)], about=4)
    rates = [rate for _, _, rate, _ in known] or [0.0, 1.0]
    y = scale_over([max(0.0, min(rates) - 0.05), min(1.0, max(rates) + 0.05)], about=4)
    spots = [
        Spot(
            arm.arm,
            x.at(value),
            round(100 - y.at(rate), 2),
            f"{arm.arm}: {rate:.1%} at {value:.3g}",
            shape_of(place),
            arm.on_front,
        )
        for place, arm, rate, value in known
    ]
    return TradeOff(title, spots, x, y)
