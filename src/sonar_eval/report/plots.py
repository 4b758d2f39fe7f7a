"""A comparison as PNG files, for slides and documents; told apart by shape and hatching, not by colour."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arm import NO_FAULT, Arm
from .charts import IntervalChart, difference_chart, rate_chart, resilience_chart
from .comparison import Comparison
from .heatmap import HeatCell, HeatMap, heat_map
from .visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = {"ring": "o", "square": "s", "diamond": "D", "triangle": "^"}
_TONES = {"neutral": "#1a1f26", "gain": "#0b5a9e", "loss": "#a8321a"}
_LONGEST_NAME = 40
_DPI = 150


def draw_plots(comparison: Comparison, arms: Sequence[Arm], folder: Path) -> list[Path]:
    """Draw intervals.png, heatmap.png and resilience.png into a folder, as far as there is something to draw."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {
        "intervals.png": _intervals(rate_chart(comparison), difference_chart(comparison), comparison.baseline),
        "heatmap.png": _heat(heat_map(arms)),
        "resilience.png": _resilience(resilience_chart(comparison)),
    }
    paths = []
    for name, figure in drawn.items():
        if figure is not None:
            _save(figure, folder / name)
            paths.append(folder / name)
    return paths


def _save(figure: Figure, path: Path) -> None:
    with warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; the page has it in full.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # The paper fits itself to the names, however long; the charts keep their size.
        figure.savefig(path, dpi=_DPI, bbox_inches="tight", pad_inches=0.15)


def _figure(width: float, height: float, heights: Sequence[int] = (1,)) -> tuple[Figure, list[Axes]]:
    """Make a figure that no window and no global state knows of."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(heights), 1, height_ratios=list(heights), hspace=0.6)
    return figure, [figure.add_subplot(grid[row, 0]) for row in range(len(heights))]


def _intervals(rates: IntervalChart, differences: IntervalChart, baseline: str) -> Figure | None:
    if not rates.marks:
        return None
    charts = [(rates, "Pass rate (95% CI)")]
    if differences.marks:
        charts.append((differences, f"Difference from {_name(baseline)}, in points (95% CI)"))
    sizes = [len(chart.marks) + 1 for chart, _ in charts]
    figure, axes = _figure(8, 0.55 * sum(sizes), sizes)
    for axis, (chart, title) in zip(axes, charts, strict=True):
        _draw(axis, chart, title)
    return figure


def _resilience(chart: IntervalChart) -> Figure | None:
    if not chart.marks:
        return None
    figure, (axis,) = _figure(8, 0.4 * len(chart.marks) + 1)
    _draw(axis, chart, "Points lost under each fault (95% CI)")
    return figure


def _draw(axis: Axes, chart: IntervalChart, title: str) -> None:
    for place, mark in enumerate(chart.marks):
        axis.errorbar(
            [mark.value],
            [place],
            xerr=[[max(0.0, mark.value - mark.low)], [max(0.0, mark.high - mark.value)]],
            fmt=_MARKERS[mark.shape],
            color=_TONES[mark.tone],
            markerfacecolor="white" if mark.shape == "ring" else _TONES[mark.tone],
            markersize=8,
            capsize=4,
            zorder=3,
        )
    axis.set_xlim(chart.scale.low, chart.scale.high)
    axis.set_xticks(chart.scale.ticks, [chart.tick_text(tick) for tick in chart.scale.ticks])
    names = [f"{_name(mark.group)}: {_name(mark.name)}" if mark.group else _name(mark.name) for mark in chart.marks]
    _label(axis.set_yticks(range(len(names)), names), axis.get_yticklabels())
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.grid(axis="x", color="#d9dee4", zorder=0)
    if chart.zero is not None:
        axis.axvline(chart.zero, color="#59626d", linewidth=1)
    axis.tick_params(length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.set_title(title, loc="left", fontsize=10, parse_math=False)


def _heat(heat: HeatMap) -> Figure | None:
    if not heat.rows:
        return None
    columns = [(fault, arm) for fault in heat.faults for arm in heat.arms]
    figure, (axis,) = _figure(1.1 * len(columns), 0.45 * len(heat.rows))
    for down, (_, cells) in enumerate(heat.rows):
        for across, cell in enumerate(cells):
            _fill(axis, across, down, cell)
    names = [f"{_fault(fault)}\n{_name(arm)}" if len(heat.faults) > 1 else _name(arm) for fault, arm in columns]
    _label(axis.set_xticks(range(len(columns)), names, rotation=40, ha="left"), axis.get_xticklabels())
    _label(axis.set_yticks(range(len(heat.rows)), [_name(name) for name, _ in heat.rows]), axis.get_yticklabels())
    axis.set_xlim(-0.5, len(columns) - 0.5)
    axis.set_ylim(len(heat.rows) - 0.5, -0.5)
    axis.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for side in axis.spines.values():
        side.set_visible(False)
    return figure


def _fill(axis: Axes, across: int, down: int, cell: HeatCell | None) -> None:
    from matplotlib.patches import Rectangle

    rate = None if cell is None else cell.rate
    shade = 1.0 if rate is None else 0.3 + 0.7 * rate
    hatch = "///" if rate is None else None
    corner = (across - 0.5, down - 0.5)
    axis.add_patch(Rectangle(corner, 1, 1, facecolor=str(shade), edgecolor="#d9dee4", hatch=hatch))
    if cell is not None and rate is not None:
        missing = "*" if cell.not_measured else ""
        text = f"{rate:.0%}  {cell.passes}/{cell.n}{missing}"
        axis.text(across, down, text, ha="center", va="center", fontsize=8, color="white" if shade < 0.46 else "black")


def _name(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"


def _fault(name: str) -> str:
    return "no fault" if name == NO_FAULT else _name(name)


def _label(_ticks: Any, labels: Sequence[Any]) -> None:
    """Take names as they are: a dollar in one is no formula."""
    for label in labels:
        label.set_parse_math(False)
