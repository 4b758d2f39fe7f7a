"""What is known of a judge, for people to read: on a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .comparison import Estimate
from .judge_check import ENOUGH_LABELS, Agreement, ArmRate, JudgeCheck, PeopleCheck, SecondJudge, SelfCheck, Share
from .table import aligned, table

_REASONS = 2
_REASON = 120
TOO_SMALL = "n too small"
_ARMS = ("arm", "judged pass rate", "sensitivity", "specificity", "corrected (SE)", "PPI (SE)", "PPI++ (SE)")


def judge_check_text(check: JudgeCheck) -> str:
    """Render for a terminal."""
    parts = ["\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in _sections(check)]
    if check.people is not None:
        parts.append(aligned([_ARMS, *map(_arm, check.arms)]))
    parts += [f"Warning: {line}" for line in check.warnings]
    return "\n\n".join(parts)


def judge_check_markdown(check: JudgeCheck) -> str:
    """Render as Markdown."""
    parts = [f"## Judge check: {check.judge}"]
    for title, lines in _sections(check):
        parts += [f"### {title}", "\n".join(f"- {line}" for line in lines)]
    if check.people is not None:
        parts.append(table([_ARMS, *map(_arm, check.arms)]))
    parts += [f"**Warning:** {line}" for line in check.warnings]
    return "\n\n".join(parts) + "\n"


def _sections(check: JudgeCheck) -> Iterator[tuple[str, list[str]]]:
    drawn = f"{check.sampled} of {check.judged} judged trials"
    yield f"The judge against itself ({check.judge}, {drawn}, each judged twice)", list(_itself(check.itself))
    if check.second is not None:
        yield f"Against a second judge ({check.second.name})", list(_second(check.second))
    if check.people is not None:
        yield f"Against people ({check.people.labelled} labelled trials)", list(_people(check.people))
    for found in check.people_by_criterion:
        yield f"Against people, criterion {found.about} ({found.labelled} labels)", list(_people(found))


def _itself(found: SelfCheck) -> Iterator[str]:
    yield f"same verdict both times: {_agreement(found.agreement)}"
    yield f"same verdict as recorded: {_agreement(found.with_record)}"
    if found.judge_sd is not None:
        yield f"the score of one conversation varies by ±{found.judge_sd:.3f} (standard deviation)"
        variances = f"variance: judge {found.judge_variance:.4f}, trials {found.trial_variance:.4f}"
        yield f"{variances}, ICC {_number(found.icc)}"
    if found.optimum_repeats is not None:
        at = "at what they cost" if found.cost_ratio is not None else "if a judgement costs as much as a conversation"
        yield f"judgements per trial that pay: {found.optimum_repeats} ({at})"
    if found.unread:
        yield _unread(found.unread, found.unread_reasons)
    yield from _criteria(found.criteria)


def _second(found: SecondJudge) -> Iterator[str]:
    yield f"same verdict: {_agreement(found.agreement)}"
    n = found.agreement.n
    yield f"passed: {found.passed_by_first} of {n} by the judge, {found.passed_by_second} of {n} by {found.name}"
    stricter = {"first": "the judge is stricter", "second": f"{found.name} is stricter"}
    yield stricter.get(found.stricter or "", "neither is clearly the stricter one")
    if found.mean_difference is not None:
        yield f"mean score {found.mean_difference:+.3f} against the judge"
    if found.unread:
        yield _unread(found.unread, found.unread_reasons)
    yield from _criteria(found.criteria)


def _unread(count: int, reasons: Mapping[str, int]) -> str:
    """Say how many answers gave no verdict, and for which reasons most of them did not."""
    told = [f"{_short(reason)} ({times})" for reason, times in list(reasons.items())[:_REASONS]]
    others = count - sum(list(reasons.values())[:_REASONS])
    told += [f"others ({others})"] if told and others else []
    what = "1 answer" if count == 1 else f"{count} answers"
    return f"{what} gave no verdict{': ' if told else ''}{'; '.join(told)}"


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _REASON else f"{line[: _REASON - 1]}…"


def _criteria(found: dict[str, Agreement]) -> Iterator[str]:
    yield from (f"criterion {name}: {_agreement(agreement)}" for name, agreement in found.items())


def _people(found: PeopleCheck) -> Iterator[str]:
    yield (
        f"both pass {found.both_pass}, both fail {found.both_fail}, only the judge passes {found.only_judge_passes}, "
        f"only people pass {found.only_people_pass}"
    )
    if found.untold:
        yield f"{found.untold} more labelled, but the judge could not tell"
    if not found.enough:
        yield f"{TOO_SMALL}: {found.labelled} labelled trials, {ENOUGH_LABELS} are needed for more than these counts"
        return
    yield f"same verdict: {_agreement(found.agreement)}"
    yield f"sensitivity (passed, of what people pass): {_share(found.sensitivity)}"
    yield f"specificity (failed, of what people fail): {_share(found.specificity)}"


def _arm(arm: ArmRate) -> Sequence[str]:
    rates = [
        (arm.corrected, arm.corrected_se),
        (arm.ppi, arm.ppi_se),
        (arm.ppi_plus_plus, arm.ppi_plus_plus_se),
    ]
    told = [TOO_SMALL if rate is None else _with_se(rate, se) for rate, se in rates]
    if arm.corrected is not None and not arm.own_errors:
        told[0] += ", errors of all arms"
    if arm.corrected is not None and not 0 <= arm.corrected <= 1:
        told[0] += ", calibration and verdicts disagree"
    judged = f"{arm.rate:.1%} of {arm.judged}"
    return (arm.arm, judged, _counted(arm.sensitivity), _counted(arm.specificity), *told)


def _with_se(rate: float, se: float | None) -> str:
    return f"{rate:.1%}" if se is None else f"{rate:.1%} ({se * 100:.1f})"


def _counted(share: Share) -> str:
    counts = f"{share.k}/{share.n}"
    return counts if share.value is None else f"{share.value:.1%} ({counts})"


def _share(share: Share) -> str:
    if share.value is None or share.low is None or share.high is None:
        return "none labelled"
    return f"{share.value:.1%} [{share.low * 100:.1f}, {share.high * 100:.1f}] ({share.k} of {share.n})"


def _agreement(found: Agreement) -> str:
    if found.share is None:
        return "nothing to compare"
    return f"{found.alike} of {found.n} ({found.share:.0%}), kappa {_kappa(found.kappa)}"


def _kappa(kappa: Estimate) -> str:
    if kappa.value is None:
        return "undefined (all verdicts alike)"
    if kappa.low is None or kappa.high is None:
        return f"{kappa.value:.2f}"
    return f"{kappa.value:.2f} [{kappa.low:.2f}, {kappa.high:.2f}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
