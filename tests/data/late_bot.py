"""A bot whose last tool fails, traced with the default timer of five seconds; prints its trial as JSON.

Arguments: counted or plain; the seconds of quiet wanted; what happens to its spans (kept,
refused, lost, too_big).
"""

import asyncio
import json
import sys
import time

import sonar_tracing
from opentelemetry import trace

from sonar_eval import (
    Assertion,
    BaseBotAdapter,
    Delivered,
    IngestClient,
    LLMConfig,
    Orchestrator,
    ScenarioConfig,
    ScriptedClient,
    Session,
    Severity,
    TaskConfig,
    no_tool_errors,
)
from sonar_eval.appside import CountedAdapter
from sonar_eval.ingest.server import EmbeddedIngest

MODE, QUIET, FATE = sys.argv[1], float(sys.argv[2]), sys.argv[3]


class LateBot(BaseBotAdapter):
    """Work in the first turn, fail in the second."""

    name = "late"

    async def setup_trial(self, ctx):
        return Session(ctx.conversation_id, [])

    async def send(self, session, user_msg, media=None):
        session.handle.append(user_msg)
        tracer = trace.get_tracer("late")
        with (
            sonar_tracing.identity(conversation_id=session.conversation_id),
            tracer.start_as_current_span("agent", attributes={"gen_ai.operation.name": "invoke_agent"}),
        ):
            span = tracer.start_span(
                "tool", attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay"}
            )
            if len(session.handle) == 2:
                span.set_status(trace.StatusCode.ERROR, "declined")
                if FATE == "too_big":
                    span.set_attribute("padding", "x" * 25_000_000)
            span.end()
        if len(session.handle) == 1:
            # What came so far is exported; the failure goes with the next tick of the timer.
            await asyncio.to_thread(sonar_tracing.force_flush)
        elif FATE == "lost":
            drop_last_batch()
        return Delivered(("done",))


def drop_last_batch():
    processor = sonar_tracing.current_state().span_processor
    batch = getattr(processor, "_batch_processor", processor)
    batch._queue.clear()


def main():
    with EmbeddedIngest("acme") as ingest:
        key = "wrong" if FATE == "refused" else ingest.api_key
        sonar_tracing.init(
            service_name="late",
            framework=[],
            endpoint=ingest.base_url,
            api_key=key,
            tenant_id="acme",
            redaction_mode="allow",
            max_attribute_length=30_000_000,
        )
        client = IngestClient(ingest.base_url, "acme", api_key=ingest.api_key, quiet_s=QUIET)
        bot = CountedAdapter(LateBot()) if MODE == "counted" else LateBot()
        task = TaskConfig(ingest.base_url, "acme", LLMConfig("u"), LLMConfig("j"))
        check = Assertion("no-tool-errors", Severity.SAFETY_CRITICAL, no_tool_errors())
        scenario = ScenarioConfig("late", "", [check], k=1, scripted_messages=["one", "two"])
        began = time.monotonic()
        orchestrator = Orchestrator(task, bot, ScriptedClient(["x"]), ingest_client=client)
        report = asyncio.run(orchestrator.run_scenario(scenario))
        trial = report.trials[0]
        result = trial.assertions[0] if trial.assertions else None
        print(
            json.dumps(
                {
                    "passed": report.passed,
                    "outcome": trial.outcome,
                    "failure": str(trial.failure),
                    "held": result.passed if result else None,
                    "unknown": result.unknown if result else None,
                    "detail": result.detail if result else None,
                    "level": ((trial.transcript and trial.transcript.completeness) or {}).get("level"),
                    "took_s": time.monotonic() - began,
                }
            )
        )


main()
