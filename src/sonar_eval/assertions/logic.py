"""Three-valued logic over findings: what is not known may still be decided by what is.

How it looks and what is proven are each combined by Kleene's rules, so that a doubt reaches the whole exactly
when the whole depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .contract import Finding


def conjunction(findings: Sequence[Finding]) -> Finding:
    """Combine by "and": one that is known not to hold decides."""
    held = _all(finding.held for finding in findings)
    against = [finding.why for finding in findings if finding.held is False and finding.why]
    return _combined(held, _all(finding.proven for finding in findings), findings, "; ".join(against))


def disjunction(findings: Sequence[Finding]) -> Finding:
    """Combine by "or": one that is known to hold decides."""
    held = _any(finding.held for finding in findings)
    against = [finding.why for finding in findings if finding.why]
    return _combined(held, _any(finding.proven for finding in findings), findings, " and ".join(against))


def negation(finding: Finding, why: str) -> Finding:
    """Turn a finding around; `why` is what is to be said when it held."""
    if finding.held is None:
        return finding
    return Finding(not finding.held, finding.doubt, why if finding.held else "")


def _combined(held: bool | None, proven: bool | None, findings: Sequence[Finding], why: str) -> Finding:
    doubts = dict.fromkeys(finding.doubt for finding in findings if finding.doubt) if proven is None else ()
    return Finding(held, "; ".join(doubts), why if held is False else "")


def _all(values: Iterable[bool | None]) -> bool | None:
    found = list(values)
    if False in found:
        return False
    return None if None in found else True


def _any(values: Iterable[bool | None]) -> bool | None:
    found = list(values)
    if True in found:
        return True
    return None if None in found else False
