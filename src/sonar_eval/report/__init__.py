"""What people read: tables, transcripts, comparisons."""

from .arm import Arm, CellKey, CellTrials, cell_of
from .changes import side_by_side, verdict_changes
from .compare import compare_arms
from .comparison import Comparison, Contrast
from .comparison_text import render_markdown, render_text
from .judge_check import ENOUGH_LABELS, JudgeCheck, Judged, Label, Trial
from .judge_check_text import judge_check_markdown, judge_check_text
from .judging import check_judge
from .page import render_html
from .planning import Noise, Plan, make_plan, planning_line
from .plots import draw_plots
from .render import ResultRow, result_table
from .transcript import render_transcript
from .visible import in_markdown, in_one_line
from .wording import could_reveal, left_out_in_short, verdict_sentence, verdict_word

__all__ = [
    "ENOUGH_LABELS",
    "Arm",
    "CellKey",
    "CellTrials",
    "Comparison",
    "Contrast",
    "JudgeCheck",
    "Judged",
    "Label",
    "Noise",
    "Plan",
    "ResultRow",
    "Trial",
    "cell_of",
    "check_judge",
    "compare_arms",
    "could_reveal",
    "draw_plots",
    "in_markdown",
    "in_one_line",
    "judge_check_markdown",
    "judge_check_text",
    "left_out_in_short",
    "make_plan",
    "planning_line",
    "render_html",
    "render_markdown",
    "render_text",
    "render_transcript",
    "result_table",
    "side_by_side",
    "verdict_changes",
    "verdict_sentence",
    "verdict_word",
]
