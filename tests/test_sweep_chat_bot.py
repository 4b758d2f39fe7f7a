"""A bot out of configuration alone: a model behind real HTTP, a prompt, and Python functions as its tools."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from fakes import verdict
from providing import Hang, HangUp, Refused, calling, providing, said
from test_sweep_run import sweep

pytestmark = pytest.mark.timeout(150)

TOOLS = '''
"""Tools of a shop."""

from sonar_eval import TrialContext


def look_up(item: str, ctx: TrialContext) -> dict:
    """Look up a price."""
    ctx.seed.data["asked"] = ctx.seed.data.get("asked", 0) + 1
    return {"item": item, "price": ctx.seed.data["prices"][item], "asked": ctx.seed.data["asked"]}


async def reserve(item: str, pieces: int = 1) -> str:
    """Put something aside."""
    return f"{pieces} {item} reserved"
'''
SCENARIO = """
name: ask_price
user_instructions: Ask for the price of tea.
seed: {prices: {tea: 3}}
rubric: The bot named the price.
assertions:
  - {name: looked-up, check: tool_was_called, tool: look_up, severity: safety_critical}
  - {name: said-price, check: bot_said, pattern: "3 euros", severity: capability}
"""
FAULT = """
name: till_broken
rules:
  - {target: look_up, action: error, when_call_index: 0, payload: the till is broken}
"""
PRICED = (
    "model.price={input: 2, output: 8, cached_input: 0.5}",
    "user.llm.price={input: 1, output: 1}",
    "grader.llm.price={input: 10, output: 0}",
)


def shop(folder: Path) -> Path:
    """Lay out the folder of somebody who has tools, a scenario and a fault."""
    (folder / "my_tools.py").write_text(TOOLS, encoding="utf-8")
    prompts = {f"prompt/{name}": f"{{name: {name}, text: Be {name}.}}" for name in ("clear", "clumsy")}
    for name, text in {"scenario/ask_price": SCENARIO, "fault/till_broken": FAULT, **prompts}.items():
        path = folder / "conf" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def answer(body):
    """Play the user, the judge and the bot, by the name of the model."""
    if body["model"] == "user-1":
        heard = body["messages"][-1]["content"]
        return "[[END]]" if "euros" in heard or "sorry" in heard else "What is the price of tea?"
    if body["model"] == "judge-1":
        return verdict(0.9)
    last = body["messages"][-1]
    if last["role"] == "user":
        return calling("look_up", '["tea"]' if "clumsy" in str(body["messages"][0]) else '{"item": "tea"}')
    if "no JSON object" in last["content"]:
        return calling("look_up", '{"item": "tea"}', "call_2")
    if "broken" in last["content"]:
        return "I am sorry, I cannot look it up."
    return said(f"That is {json.loads(last['content'])['price']} euros.", cached=40)


def chat_sweep(folder, server, *arguments):
    return sweep(
        shop(folder),
        "bot=chat",
        "bot.tools=[my_tools:look_up, my_tools:reserve]",
        "scenario=ask_price",
        "model=local",
        "model.model=bot-1",
        "user=local",
        "user.llm.model=user-1",
        "grader=local",
        "grader.llm.model=judge-1",
        "tracking=none",
        *arguments,
        LOCAL_LLM_URL=server.url,
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    with providing(answer) as server:
        done = chat_sweep(
            tmp_path_factory.mktemp("chat"),
            server,
            "fault=none,till_broken",
            "prompt=clear,clumsy",
            "task.k=2",
            *PRICED,
        )
    assert done.status == 0, done.out + done.err
    return done, server


def trials(swept, fault="none", prompt="clear"):
    return swept[0].trials(fault=fault, prompt=prompt)


def test_a_model_and_tools_from_the_configuration_hold_a_conversation_that_is_judged(swept):
    for record in trials(swept):
        assert (record["outcome"], record["passed"], record["failure"]) == ("judged", True, None)
        assert record["grader"]["score"] == 0.9
        assert [turn["delivered"] for turn in record["conversation"]] == [["That is 3 euros."]]


def test_the_trace_holds_agent_model_and_tool_under_the_conversation(swept):
    for record in trials(swept):
        kinds = sorted(span["kind"] for span in record["transcript"]["spans"])
        assert kinds == ["agent", "llm", "llm", "tool"]
        assert record["transcript"]["completeness"]["level"] == 3
        rows = {row["type"]: row["value"] for row in record["transcript"]["content"] if row["name"] == "look_up"}
        assert rows["tool_arguments"] == {"item": "tea"}


def test_the_state_of_a_tool_is_the_trials_own(swept):
    for record in trials(swept):
        assert '"asked": 1' in json.dumps(record["transcript"]["content"])


def test_the_model_is_told_of_the_tools_and_not_of_what_the_trial_fills_in(swept):
    first = swept[1].of("bot-1")[0]
    tools = {entry["function"]["name"]: entry["function"] for entry in first["tools"]}
    assert set(tools) == {"look_up", "reserve"}
    assert set(tools["look_up"]["parameters"]["properties"]) == {"item"}
    assert tools["reserve"]["parameters"]["required"] == ["item"]
    assert first["messages"][0] == {"role": "system", "content": "Be clear."}


def test_a_fault_hits_the_tool_and_marks_its_span(swept):
    for record in trials(swept, fault="till_broken"):
        (rule,) = record["faults"]
        assert rule["fired"] == 1
        marked = [span["fault"] for span in record["transcript"]["spans"] if span.get("fault")]
        assert marked == [{"action": "error", "rule": 0, "call_index": 0}]
        assert record["conversation"][0]["delivered"] == ["I am sorry, I cannot look it up."]


def test_arguments_that_are_no_object_go_back_to_the_model(swept):
    for record in trials(swept, prompt="clumsy"):
        tools = [span for span in record["transcript"]["spans"] if span["kind"] == "tool"]
        assert sorted(span["tool_success"] for span in tools) == [False, True]
        assert record["passed"]


def test_what_a_trial_took_is_split_by_role(swept):
    for record in trials(swept):
        spent = record["spent"]
        cached = 40 if "euros" in record["conversation"][0]["delivered"][0] else 0
        assert spent["bot"]["cached_tokens"] == cached
        assert spent["bot"]["cost_usd"] == pytest.approx(((200 - cached) * 2 + cached * 0.5 + 20 * 8) / 1e6)
        assert spent["simulator"] == {
            "calls": 2,
            "input_tokens": 200,
            "output_tokens": 20,
            "cost_usd": pytest.approx(220 / 1e6),
            "cached_tokens": 0,
        }
        assert spent["judge"]["cost_usd"] == pytest.approx(1000 / 1e6)
        assert record["cost_usd"] == pytest.approx(sum(spend["cost_usd"] for spend in spent.values()))


def test_the_transcript_says_what_the_trial_cost(swept):
    text = (swept[0].cell(fault="none", prompt="clear") / "transcripts" / "trial-001.md").read_text()
    assert "- cost: $0.0017 (simulator $0.0002, bot $0.0005, judge $0.0010)" in text


def test_a_cell_without_waits_says_nothing_of_them(swept):
    assert "rate limited" not in swept[0].err
    for result in swept[0].results:
        assert result["waits"]["requests"] > 0
        assert result["waits"]["limited"] == 0


class Weather:
    """Refuse half of all requests, drop one in twenty, hang at two, and answer the rest."""

    def __init__(self) -> None:
        self.chance = random.Random(7)
        self.limited = self.dropped = self.hung = self.seen = 0

    def __call__(self, body):
        self.seen += 1
        if self.seen in (30, 200):
            self.hung += 1
            raise Hang
        luck = self.chance.random()
        if luck < 0.05:
            self.dropped += 1
            raise HangUp
        if luck < 0.55:
            self.limited += 1
            raise Refused(429, retry_after_ms="5")
        return answer(body)


def test_forty_trials_against_a_provider_in_trouble_are_all_judged_and_the_log_tells_the_waits(tmp_path):
    weather = Weather()
    patience = [f"{role}.timeout_s=2" for role in ("model", "user.llm", "grader.llm")]
    with providing(weather) as server:
        done = chat_sweep(tmp_path, server, "task.k=40", *patience)
    assert done.status == 0, done.out + done.err
    (result,) = done.results
    records = done.trials()
    assert [record["outcome"] for record in records] == ["judged"] * 40
    assert [record["index"] for record in records] == list(range(40))
    assert all(record["passed"] and record["grader"]["score"] == 0.9 for record in records)
    assert (weather.hung, weather.dropped > 5, weather.limited > 100) == (2, True, True)
    waits = result["waits"]
    assert waits["requests"] == weather.seen
    assert waits["limited"] == weather.limited
    assert waits["retries"] <= weather.limited + weather.dropped + weather.hung
    (line,) = [line for line in done.err.splitlines() if "rate limited" in line]
    assert f"{weather.seen} requests to models: {weather.limited} rate limited, {waits['retries']} sent again" in line
    (log,) = done.folder.glob("*/sweep.log")
    assert re.search(rf"{weather.limited} rate limited", log.read_text())


def test_a_provider_that_is_down_is_no_failure_of_the_bot(tmp_path):
    def down(body):
        if body["model"] == "bot-1":
            raise Refused(500, "the model is on fire")
        return answer(body)

    with providing(down) as server:
        done = chat_sweep(tmp_path, server, "task.k=1", "task.retries=1", "model.max_retries=0", *PRICED)
    (record,) = done.trials()
    assert (record["outcome"], record["failure"]["owner"]) == ("errored", "harness")
    assert "the model is on fire" in record["failure"]["message"]
    assert len(record["earlier_failures"]) == 1
    assert record["spent"]["simulator"]["calls"] == record["earlier_spent"]["simulator"]["calls"] == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("model=offline-careful",), "unknown provider 'offline'"),
        (("bot.tools=[my_tools:nothing]",), "has no attribute 'nothing'"),
        (("bot.tools=[my_tools:look_up, my_tools:look_up]",), "two tools are named 'look_up'"),
        (("bot.tools=[my_tools:__doc__]",), "expected a function"),
        (("bot.max_steps=0",), "max_steps must be a whole number of 1 or more"),
        (("model.price={input: -1, output: 2}",), "price: input must be US dollars per million tokens, got -1"),
        (("model.timeout_s=0",), "timeout_s must be more than 0 seconds"),
    ],
)
def test_a_mistake_is_told_in_one_line_before_anything_is_asked(tmp_path, arguments, told):
    with providing(answer) as server:
        done = chat_sweep(tmp_path, server, *arguments)
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert told in line
    assert server.bodies == []
