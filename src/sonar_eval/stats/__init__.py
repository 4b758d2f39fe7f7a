"""Numbers only: estimates and intervals."""

from .estimates import pass_at_k, pass_hat_k, quantile
from .intervals import Interval, wilson

__all__ = ["Interval", "pass_at_k", "pass_hat_k", "quantile", "wilson"]
