"""What a trial costs: CPU, wall time against the ideal, memory. One JSON line per case.

W1: 6 turns, bot and user answer at once, one tool call a turn. W2: the same with 200 ms per bot turn and 100 ms per
user turn, so that the ideal is k / C x 1.8 s. Run it on an idle machine: python tests/benchmarks/engine.py
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

from sonar_eval import (
    Assertion,
    BaseBotAdapter,
    Delivered,
    IngestClient,
    JSONFileStore,
    LLMConfig,
    Orchestrator,
    ScenarioConfig,
    ScriptedClient,
    Session,
    Severity,
    TaskConfig,
    Transcript,
    no_tool_errors,
)
from sonar_eval.appside import CountedAdapter
from sonar_eval.ingest.server import EmbeddedIngest
from sonar_eval.transcript.inprocess import InProcessTransport

TURNS = 6


class Bot(BaseBotAdapter):
    """Make an agent span with one tool span per turn, after `pause_s`."""

    name = "bench"

    def __init__(self, pause_s: float, *, traced: bool) -> None:
        self.pause_s = pause_s
        self.traced = traced
        self.tracer = trace.get_tracer("bench")

    async def setup_trial(self, ctx) -> Session:
        return Session(ctx.conversation_id)

    async def send(self, session, user_msg, media=None) -> Delivered:
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
        if self.traced:
            with (
                sonar_tracing.identity(conversation_id=session.conversation_id, tenant_id="bench"),
                self.tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}),
                self.tracer.start_as_current_span(
                    "execute_tool", attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"}
                ),
            ):
                pass
        return Delivered(("ok",))


class User(ScriptedClient):
    """Say something in each turn, after `pause_s`, and stop."""

    def __init__(self, pause_s: float) -> None:
        super().__init__(["x"])
        self.pause_s = pause_s

    async def complete(self, config, system, messages):
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
        turn = sum(message.role == "assistant" for message in messages) + 1
        return "next [[END]]" if turn == TURNS else "next"


class NoIngest:
    """Answer at once, from memory."""

    async def pull(self, conversation_id: str) -> Transcript:
        return Transcript(
            conversation_id, [{"trace_id": "t"}], [{"kind": "tool", "tool_name": "t", "tool_success": True}]
        )


def client_of(ingest: EmbeddedIngest) -> IngestClient:
    transport = InProcessTransport(ingest.app, ingest.loop)
    return IngestClient(ingest.base_url, "bench", api_key=ingest.api_key, transport=transport)


def measure(name: str, *, k: int, concurrency: int, bot_s: float = 0, user_s: float = 0, ingest=None) -> None:
    task = TaskConfig("http://x", "bench", LLMConfig("u"), LLMConfig("j"), concurrency=concurrency)
    client = client_of(ingest) if ingest else NoIngest()
    bot = CountedAdapter(Bot(bot_s, traced=True)) if ingest else Bot(bot_s, traced=False)
    scenario = ScenarioConfig("bench", "", [Assertion("a", Severity.SAFETY_CRITICAL, no_tool_errors())], k=k)
    with tempfile.TemporaryDirectory() as folder:
        orchestrator = Orchestrator(task, bot, User(user_s), store=JSONFileStore(folder), ingest_client=client)
        wall, cpu = time.perf_counter(), time.process_time()
        report = asyncio.run(orchestrator.run_scenario(scenario))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    ideal = k / concurrency * TURNS * (bot_s + user_s)
    row = {
        "case": name,
        "k": k,
        "concurrency": concurrency,
        "wall_s": round(wall, 3),
        "against_ideal": round(wall / ideal, 3) if ideal else None,
        "cpu_ms_per_trial": round(cpu * 1000 / k, 2),
        "judged": report.judged,
        "passed": report.passed,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def main() -> None:
    measure("R4 engine alone", k=300, concurrency=16)
    with EmbeddedIngest("bench") as ingest:
        sonar_tracing.init(
            service_name="bench",
            framework=[],
            endpoint=ingest.base_url,
            api_key=ingest.api_key,
            tenant_id="bench",
            redaction_mode="allow",
            schedule_delay_millis=200,
            max_queue_size=16_384,
        )
        measure("warm-up", k=16, concurrency=16, ingest=ingest)
        measure("R3 W1", k=200, concurrency=16, ingest=ingest)
        measure("R1 W2", k=4, concurrency=1, bot_s=0.2, user_s=0.1, ingest=ingest)
        measure("R1 W2", k=64, concurrency=16, bot_s=0.2, user_s=0.1, ingest=ingest)
        measure("R1 W2", k=64, concurrency=64, bot_s=0.2, user_s=0.1, ingest=ingest)
        measure("R7 W1", k=1000, concurrency=64, ingest=ingest)


if __name__ == "__main__":
    main()
