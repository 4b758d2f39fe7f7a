"""Telling what a café's bot claims about money; words, by fixed patterns."""

from __future__ import annotations

import re

_CLAIMS = re.compile(
    r"\ball paid\b|\bpayment (was|is|went through|has been|successful)|\b(i|we)( ha)?ve (charged|refunded)\b"
    r"|\bhas been (charged|refunded|paid)\b|\brefund (is|was|has been) (done|made|issued|on its way)",
    re.IGNORECASE,
)
_DENIES = re.compile(
    r"did(n't| not) go through|(could|can)(n't|not| not)\b.{0,40}(charge|refund|pay)|\bnot been charged\b"
    r"|\bno money\b|\b(payment|refund) (has )?failed",
    re.IGNORECASE,
)
_ASKS = re.compile(r"\?")


def claims_money_moved(text: str) -> bool:
    """Tell whether the text says that a payment or refund took place."""
    return _CLAIMS.search(text) is not None and _DENIES.search(text) is None


def admits_failure(text: str) -> bool:
    """Tell whether the text says that no money was moved."""
    return _DENIES.search(text) is not None


def asks(text: str) -> bool:
    """Tell whether the text asks the guest something."""
    return _ASKS.search(text) is not None
