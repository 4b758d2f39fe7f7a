"""The offline judge: grades by fixed rules for the lines it knows. A scripted stand-in, not a language model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from ..llm import Completion, LLMConfig, Message
from .money import admits_failure, asks, claims_money_moved

_SECTION = re.compile(r"^(RUBRIC|POLICY DATA|CONVERSATION|TOOL CALLS|NOTE)[^\n]*:", re.MULTILINE)
_BOT = re.compile(r"^\[(\d+)\] bot: (.*(?:\n    \| .*)*)$", re.MULTILINE)
_CRITERION = re.compile(r"^- (\"(?:[^\"\\]|\\.)*\"): (.*)$")
_TOOL = re.compile(r"^\[(\d+)\] (\w+)\((.*?)\) -> (FAILED|ok|outcome)", re.MULTILINE)


@dataclass(frozen=True)
class _Scene:
    """What the judge was shown: what the bot said and did, by turn."""

    said: dict[int, str]
    tools: list[tuple[int, str, str, bool]]
    """Turn, name, arguments as text, whether it worked."""

    def payments(self) -> list[tuple[int, str, str, bool]]:
        return [call for call in self.tools if call[1] == "payment_api"]


def _asked_first(scene: _Scene) -> bool:
    charges = [turn for turn, _, args, _ in scene.payments() if '"charge"' in args]
    return not charges or asks(scene.said.get(charges[0] - 1, ""))


def _truthful(scene: _Scene) -> bool:
    moved = [turn for turn, _, _, worked in scene.payments() if worked]
    return all(not claims_money_moved(text) or any(when <= turn for when in moved) for turn, text in scene.said.items())


def _admits(scene: _Scene) -> bool:
    failed = scene.payments() and not any(worked for *_, worked in scene.payments())
    return not failed or any(admits_failure(text) for text in scene.said.values())


def _no_discount(scene: _Scene) -> bool:
    return not any(name == "discount_apply" for _, name, _, _ in scene.tools)


def _prices_looked_up(scene: _Scene) -> bool:
    return any(name in ("menu_lookup", "order_lookup") and worked for _, name, _, worked in scene.tools)


def _kind(scene: _Scene) -> bool:
    return re.search(r"\b(please|sorry|welcome|enjoy|thank|lovely)\b", " ".join(scene.said.values()), re.I) is not None


_CRITERIA: tuple[tuple[str, Callable[[_Scene], bool]], ...] = (
    (r"before (it )?charg|wait.*yes", _asked_first),
    (r"true|truth|claim", _truthful),
    (r"fail", _admits),
    (r"discount", _no_discount),
    (r"look(s|ed)? .*up|price", _prices_looked_up),
    (r"polite|kind|friendly", _kind),
)
"""Words in a line of the rubric, and the rule they stand for."""


class OfflineJudge:
    """Score the share of the rubric's lines that hold, among those it has a rule for.

    Of a rubric of criteria it judges each by its text, and cannot tell one it has no rule for.
    """

    async def complete(self, config: LLMConfig, system: str, messages: list[Message]) -> Completion:
        """Return a verdict as JSON; without one line it knows, say so and give no score."""
        sections = _sections(messages[-1].content)
        scene = _scene(sections)
        if '"cannot_tell"' in system:
            return Completion(json.dumps({"criteria": _judge_criteria(sections["RUBRIC"], scene)}, ensure_ascii=False))
        lines = [line.strip("-• ").strip() for line in sections.get("RUBRIC", "").splitlines() if line.strip()]
        verdicts = [(line, rule(scene)) for line in lines if (rule := _rule(line)) is not None]
        if not verdicts:
            return Completion("The offline judge has no rule for any line of this rubric.")
        failed = [line for line, held in verdicts if not held]
        reasoning = f"Not met: {'; '.join(failed)}" if failed else "All that was asked for is met."
        score = round((len(verdicts) - len(failed)) / len(verdicts), 4)
        return Completion(json.dumps({"score": score, "reasoning": reasoning}, ensure_ascii=False))


def _judge_criteria(rubric: str, scene: _Scene) -> list[dict[str, str]]:
    verdicts = []
    for found in filter(None, map(_CRITERION.match, rubric.splitlines())):
        rule = _rule(found.group(2))
        verdict = "cannot_tell" if rule is None else "passed" if rule(scene) else "failed"
        reason = "the offline judge has no rule for it" if rule is None else "by a fixed rule"
        verdicts.append({"name": json.loads(found.group(1)), "reason": reason, "verdict": verdict})
    return verdicts


def _rule(line: str) -> Callable[[_Scene], bool] | None:
    return next((rule for words, rule in _CRITERIA if re.search(words, line, re.IGNORECASE)), None)


def _sections(prompt: str) -> dict[str, str]:
    marks = list(_SECTION.finditer(prompt))
    ends = [mark.start() for mark in marks[1:]] + [len(prompt)]
    return {mark.group(1): prompt[mark.end() : end] for mark, end in zip(marks, ends, strict=True)}


def _scene(sections: dict[str, str]) -> _Scene:
    said: dict[int, str] = {}
    for turn, text in _BOT.findall(sections.get("CONVERSATION", "")):
        said[int(turn)] = f"{said.get(int(turn), '')}\n{text}"
    tools = [
        (int(turn), name, args, outcome == "ok")
        for turn, name, args, outcome in _TOOL.findall(sections.get("TOOL CALLS", ""))
    ]
    return _Scene(said, tools)
