"""Numbers only: estimates, intervals, comparisons, planning.

`__all__` lists what the product computes with. Beside these stand methods to check it against, or to compare with other
tools; they are importable from here too, and loaded when asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .comparison import ERROR_LIMIT, compare, gate, verdict, verdict_of
from .counts import Counts, mean, variance
from .effects import geometric_mean_ratio_ci
from .estimates import pass_at_k, pass_hat_k, quantile
from .intervals import (
    Interval,
    clopper_pearson_ci,
    max_failure_rate_after_clean_run,
    normal_quantile,
    wilson,
    wilson_ci,
)
from .judging import (
    cohen_kappa,
    kappa_bootstrap_ci,
    optimum_repeats,
    ppi_mean,
    ppi_plus_plus_mean,
    ppi_plus_plus_se,
    repeat_judge_variance,
    rogan_gladen,
    rogan_gladen_se,
)
from .planning import (
    detectable_difference,
    scenarios_needed,
    trial_variance,
    trials_per_scenario_needed,
    typical_variance,
)
from .ranking import RankInterval, rank_intervals
from .scores import population_mean_diff_ci, suite_mean_diff_ci
from .sequential import LOOK_LEVEL, LOOKS, Look, next_look
from .significance import (
    benjamini_hochberg,
    fisher_exact,
    holm,
    mcnemar_exact,
    stratified_exact_test,
    trial_pair_sign_flip,
)
from .suite import intra_scenario_correlation, population_wilson_ci, suite_effective_n, suite_wilson_ci

__all__ = [
    "ERROR_LIMIT",
    "LOOKS",
    "LOOK_LEVEL",
    "Counts",
    "Interval",
    "Look",
    "RankInterval",
    "benjamini_hochberg",
    "clopper_pearson_ci",
    "cohen_kappa",
    "compare",
    "detectable_difference",
    "fisher_exact",
    "gate",
    "geometric_mean_ratio_ci",
    "holm",
    "intra_scenario_correlation",
    "kappa_bootstrap_ci",
    "max_failure_rate_after_clean_run",
    "mcnemar_exact",
    "mean",
    "next_look",
    "normal_quantile",
    "optimum_repeats",
    "pass_at_k",
    "pass_hat_k",
    "population_mean_diff_ci",
    "population_wilson_ci",
    "ppi_mean",
    "ppi_plus_plus_mean",
    "ppi_plus_plus_se",
    "quantile",
    "rank_intervals",
    "repeat_judge_variance",
    "rogan_gladen",
    "rogan_gladen_se",
    "scenarios_needed",
    "stratified_exact_test",
    "suite_effective_n",
    "suite_mean_diff_ci",
    "suite_wilson_ci",
    "trial_pair_sign_flip",
    "trial_variance",
    "trials_per_scenario_needed",
    "typical_variance",
    "variance",
    "verdict",
    "verdict_of",
    "wilson",
    "wilson_ci",
]

_MODULES = (
    "estimates",
    "intervals",
    "suite",
    "significance",
    "differences",
    "effects",
    "scores",
    "planning",
    "sequential",
    "judging",
    "ranking",
)


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        for module in _MODULES:
            found = vars(import_module(f".{module}", __name__)).get(name)
            if callable(found):
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
