"""W1 and W2 on whatever `sonar_eval` the interpreter has: only what all versions share is used.

For `engine.py --peer PYTHON`, which starts an ingest and runs this under the peer's interpreter:
python tests/benchmarks/peer.py URL KEY K CONCURRENCY BOT_S USER_S
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time

import sonar_tracing
from opentelemetry import trace

import sonar_eval as se

TURNS = 6


class Bot(se.BaseBotAdapter):
    """Make an agent span with one tool span per turn, after `pause_s`; flush when a trial is over."""

    name = "bench"

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.tracer = trace.get_tracer("bench")

    async def setup_trial(self, ctx):
        return se.Session(ctx.conversation_id)

    async def send(self, session, user_msg, media=None):
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
        agent = {"gen_ai.operation.name": "invoke_agent"}
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "menu_lookup"}
        with (
            sonar_tracing.identity(conversation_id=session.conversation_id, tenant_id="bench"),
            self.tracer.start_as_current_span("invoke_agent", attributes=agent),
            self.tracer.start_as_current_span("execute_tool menu_lookup", attributes=tool),
        ):
            return se.Delivered(("Here you are.",))

    async def teardown_trial(self, session) -> None:
        await asyncio.to_thread(sonar_tracing.force_flush)


class User:
    """Say six things, then end."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    async def complete(self, config, system, messages):
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
        return "and then?"


async def gathered(url: str, key: str, k: int, concurrency: int, bot_s: float, user_s: float) -> int:
    """Run k trials, `concurrency` at a time, gathered by hand; returns how many have a verdict."""
    model = se.LLMConfig("m")
    task = se.TaskConfig(url, "bench", model, model, api_key=key)
    check = se.Assertion("a", se.Severity.SAFETY_CRITICAL, se.no_tool_errors())
    places, judged = iter(range(k)), 0
    bot, user = Bot(bot_s), User(user_s)

    async def work(folder: str) -> None:
        nonlocal judged
        for place in places:
            scenario = se.ScenarioConfig(f"s{place}", "Ask.", assertions=[check], k=1, max_turns=TURNS)
            store = se.JSONFileStore(f"{folder}/{place}")
            report = await se.Orchestrator(task, bot, user, store=store).run_scenario(scenario)
            judged += bool(report.assertions)

    with tempfile.TemporaryDirectory() as folder:
        await asyncio.gather(*(work(folder) for _ in range(concurrency)))
    return judged


def main() -> None:
    """Run one case and print it as a JSON line."""
    url, key, k, concurrency, bot_s, user_s = sys.argv[1:]
    sonar_tracing.init(
        service_name="bench",
        framework=[],
        endpoint=url,
        api_key=key,
        tenant_id="bench",
        redaction_mode="allow",
        schedule_delay_millis=200,
        max_queue_size=16_384,
    )
    asyncio.run(gathered(url, key, 4, 4, 0.0, 0.0))
    wall, cpu = time.perf_counter(), time.process_time()
    judged = asyncio.run(gathered(url, key, int(k), int(concurrency), float(bot_s), float(user_s)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    row = {
        "version": se.__version__,
        "k": int(k),
        "concurrency": int(concurrency),
        "wall_s": round(wall, 3),
        "trials_per_s": round(int(k) / wall, 1),
        "cpu_ms_per_trial": round(cpu * 1000 / int(k), 2),
        "judged": judged,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
