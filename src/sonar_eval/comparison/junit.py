"""The gate's decision for a CI system: JUnit XML, and Markdown for a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from ..report import Arm, CellTrials, in_markdown, render_markdown
from .gate import Decision, Status
from .safety import SafetyFailure, Unmeasured

# XML 1.0 has no way to write these: control characters, halves of characters, and two that are none.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def junit_xml(decision: Decision, candidate: Arm) -> str:
    """Write one test case for the gate, and one for each assertion in each cell of the candidate.

    A test case fails only for what stops the candidate: CI systems take any failure for one of the whole. A
    safety-critical assertion that no trial measured is an error.
    """
    cases = [_gate_case(decision), *_cases(decision, candidate)]
    suite = ElementTree.Element("testsuite", name="sonar-eval gate", tests=str(len(cases)))
    for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(kind, str(sum(case.find(tag) is not None for case in cases)))
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _gate_case(decision: Decision) -> ElementTree.Element:
    case, lines = _case("gate", "gate"), "\n".join(decision.lines)
    if decision.status is Status.PASS:
        return _with(case, "system-out", lines)
    return _with(case, "error" if decision.status is Status.INVALID else "failure", lines, decision.word)


def _cases(decision: Decision, candidate: Arm) -> Iterator[ElementTree.Element]:
    failures = {(failure.cell, failure.assertion): failure for failure in decision.safety}
    unmeasured = {(row.cell, row.assertion): row for row in decision.unmeasured if not row.evaluated}
    for key, cell in candidate.cells.items():
        for name, (held, n) in _assertions(cell).items():
            case = _case(".".join(part for part in key if part), name)
            missing = max(cell.asked, len(cell.records)) - n
            said = f"held in {held} of {n}" + (f", {missing} not measured" if missing else "")
            yield _outcome(case, failures.get((key, name)) or unmeasured.get((key, name)), said, n)


def _outcome(
    case: ElementTree.Element, found: SafetyFailure | Unmeasured | None, said: str, n: int
) -> ElementTree.Element:
    match found:
        case Unmeasured():
            return _with(case, "error", str(found), "not measured")
        case SafetyFailure() if found.counts:
            return _with(case, "failure", str(found), said)
        case SafetyFailure():
            return _with(case, "skipped", str(found), "known failure" if found.known else "not confirmed")
    return _with(case, "system-out", said) if n else _with(case, "skipped", said, "not measured")


def _assertions(cell: CellTrials) -> dict[str, tuple[int, int]]:
    tallies: dict[str, tuple[int, int]] = {}
    for record in cell.records:
        for row in record["assertions"]:
            held, n = tallies.get(row["name"], (0, 0))
            known = record["outcome"] != "errored" and not row.get("unknown")
            tallies[row["name"]] = (held + (known and bool(row["passed"])), n + known)
    return tallies


def _case(owner: str, name: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname=_clean(owner), name=_clean(name))


def _with(case: ElementTree.Element, tag: str, text: str, message: str = "") -> ElementTree.Element:
    child = ElementTree.SubElement(case, tag)
    if message:
        child.set("message", _clean(message))
    child.text = _clean(text)
    return case


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("", text)


def gate_markdown(decision: Decision) -> str:
    """Write the decision, then what it rests on."""
    marks = {Status.PASS: "passed", Status.FAIL: "FAILED", Status.INVALID: "INVALID RUN"}
    head = f"# Gate {marks[decision.status]}" + ("" if decision.word == "pass" else f": {decision.word}")
    listed = "\n".join(f"- {in_markdown(line)}" for line in decision.lines)
    known = [failure for failure in decision.safety if failure.known]
    also = "\n".join(f"- known failure, not counted: {in_markdown(str(failure))}" for failure in known)
    parts = [head, listed, also, render_markdown(decision.comparison)]
    return "\n\n".join(part for part in parts if part)
