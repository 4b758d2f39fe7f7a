"""What a trial costs: CPU, wall time against the ideal, memory, losses. One JSON line per case.

W1: 6 turns, bot and user answer at once, one tool call a turn. W2: the same with 200 ms per bot turn and 100 ms per
user turn, so that the ideal is k / C x 1.8 s. Run it on an idle machine:
python tests/benchmarks/engine.py [--peer PYTHON] [GROUP ...]; PYTHON has the package to compare with, which is then run
in turns with this one. A group runs in a process of its own, because a process is traced to one place only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

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
from sonar_eval.ingest.server import EmbeddedIngest, listen
from sonar_eval.transcript.inprocess import InProcessTransport

TURNS = 6
ROUNDS = 5


class Bot(BaseBotAdapter):
    """Make an agent span with one tool span per turn, after `pause_s`."""

    name = "bench"

    def __init__(self, pause_s: float, *, traced: bool, hung: int | None = None) -> None:
        self.pause_s = pause_s
        self.hung = hung
        self.traced = traced
        self.tracer = trace.get_tracer("bench")

    async def setup_trial(self, ctx) -> Session:
        return Session(ctx.conversation_id, handle=ctx.index)

    async def send(self, session, user_msg, media=None) -> Delivered:
        if self.pause_s or session.handle == self.hung:
            await asyncio.sleep(3600 if session.handle == self.hung else self.pause_s)
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


class TimedIngest(IngestClient):
    """Keep how long each pull took: what was flushed before it is there already."""

    def __init__(self, *place, **settings) -> None:
        super().__init__(*place, **settings)
        self.took_ms: list[float] = []

    async def pull(self, conversation_id: str, **settings) -> Transcript:
        began = time.perf_counter()
        transcript = await super().pull(conversation_id, **settings)
        self.took_ms.append((time.perf_counter() - began) * 1000)
        return transcript


def client_of(ingest: EmbeddedIngest) -> TimedIngest:
    """Ask without a socket, as the sweep does."""
    transport = InProcessTransport(ingest.app, ingest.loop)
    return TimedIngest(ingest.base_url, "bench", api_key=ingest.api_key, transport=transport)


def resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def tell(**row: object) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def measure(name: str, **load) -> dict:
    """Run k trials and tell what they took; see `run_trials`."""
    row = run_trials(name, **load)
    tell(**row)
    return row


def measure_often(name: str, **load) -> dict:
    """Tell the run of middle rate, of several after one that is not counted: what is met first costs more."""
    run_trials(name, **load)
    rows = sorted((run_trials(name, **load) for _ in range(ROUNDS)), key=lambda row: row["trials_per_s"])
    tell(**rows[ROUNDS // 2], median_of=ROUNDS)
    return rows[ROUNDS // 2]


class Progress:
    """Note when trials are done, and what the process holds after a tenth of them."""

    def __init__(self, k: int) -> None:
        self.tenth = max(k // 10, 1)
        self.done: list[float] = []
        self.resident_then = 0

    def __call__(self, trial) -> None:
        self.done.append(time.perf_counter())
        if len(self.done) == self.tenth:
            self.resident_then = resident_kb()


def run_trials(
    name: str, *, k: int, at_once: int, bot_s: float = 0, user_s: float = 0, client=None, hung: int | None = None
) -> dict:
    """Run k trials and return what they took; without a client nothing is traced."""
    task = TaskConfig("http://x", "bench", LLMConfig("u"), LLMConfig("j"), concurrency=at_once, turn_timeout_s=20)
    bot = Bot(bot_s, traced=client is not None, hung=hung)
    scenario = ScenarioConfig("bench", "", [Assertion("a", Severity.SAFETY_CRITICAL, no_tool_errors())], k=k)
    progress = Progress(k)
    with tempfile.TemporaryDirectory() as folder:
        orchestrator = Orchestrator(
            task,
            CountedAdapter(bot) if client else bot,
            User(user_s),
            store=JSONFileStore(folder),
            ingest_client=client or NoIngest(),
            on_trial=progress,
        )
        wall, cpu = time.perf_counter(), time.process_time()
        report = asyncio.run(orchestrator.run_scenario(scenario))
        began, wall, cpu = wall, time.perf_counter() - wall, time.process_time() - cpu
    # Before the transcripts are unpacked to be looked at.
    resident = resident_kb()
    ideal = k / at_once * TURNS * (bot_s + user_s)
    seen = [trial.transcript for trial in report.trials if client and trial.transcript]
    levels = [(transcript.completeness or {}).get("level") for transcript in seen]
    spans = sum(len(transcript.spans) for transcript in seen)
    row = {
        "case": name,
        "k": k,
        "at_once": at_once,
        "wall_s": round(wall, 3),
        "others_s": round(sorted(progress.done)[-2] - began, 3) if hung is not None else None,
        "against_ideal": round(wall / ideal, 3) if ideal else None,
        "cpu_ms_per_trial": round(cpu * 1000 / k, 2),
        "trials_per_s": round(k / wall, 1),
        "judged": report.judged,
        "not_counted_whole": sum(level != 3 for level in levels) if client else None,
        "spans_lost": len(seen) * TURNS * 2 - spans if client else None,
        "resident_mb": resident // 1024,
        "grown_kb_per_trial": round((resident - progress.resident_then) / (k * 0.9), 1) if k >= 1000 else None,
    }
    if client:
        noticed = sorted(client.took_ms)
        client.took_ms = []
        row["noticed_ms_p50"] = round(statistics.median(noticed), 1)
        row["noticed_ms_p99"] = round(noticed[int(len(noticed) * 0.99)], 1)
    return {key: value for key, value in row.items() if value is not None}


def trace_to(url: str, key: str | None) -> None:
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


def alone() -> None:
    """R4: nothing but the engine."""
    measure_often("R4 engine alone", k=300, at_once=16)


@contextlib.contextmanager
def embedded():
    with EmbeddedIngest("bench") as ingest:
        trace_to(ingest.base_url, ingest.api_key)
        client = client_of(ingest)
        measure("warm-up", k=64, at_once=64, client=client)
        yield client


def w1() -> None:
    """R6, R7, R8: many trials at full speed, ingest in this process."""
    with embedded() as client:
        measure("R7 W1", k=100, at_once=64, client=client)
        measure("R7, R8 W1", k=1000, at_once=64, client=client)


def rate() -> None:
    """R3: at full speed, ingest in this process."""
    with embedded() as client:
        measure_often("R3 W1", k=200, at_once=16, client=client)


def rate_apart() -> None:
    """R3: the same with the ingest in a process of its own; CPU is that of the harness alone."""
    with apart_client() as client:
        measure_often("R3 W1, ingest apart", k=200, at_once=16, client=client)


def w2() -> None:
    """R1: against the ideal, ingest in this process; R9: beside a bot that hangs."""
    with embedded() as client:
        for k, at_once in ((4, 1), (64, 16), (64, 64)):
            measure("R1 W2", k=k, at_once=at_once, bot_s=0.2, user_s=0.1, client=client)
        plain = measure("R9 W2, nobody hangs", k=60, at_once=15, bot_s=0.2, user_s=0.1, client=client)
        hung = measure("R9 W2, one bot hangs", k=61, at_once=16, bot_s=0.2, user_s=0.1, client=client, hung=3)
        tell(case="R9", others_against_nobody_hanging=round(hung["others_s"] / plain["wall_s"], 3))


@contextlib.contextmanager
def ingest_process():
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "sonar_eval.ingest", "--port", str(port), "--db", f"sqlite:///{folder}/x.db"]
        server = subprocess.Popen([*command, "--tenant", "bench"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(url + "/readyz")
            yield url
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def free_port() -> int:
    with listen("127.0.0.1", 0) as listener:
        return listener.getsockname()[1]


def wait_for(url: str) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), urllib.request.urlopen(url):
            return
        time.sleep(0.05)
    raise SystemExit(f"nothing answers at {url}")


@contextlib.contextmanager
def apart_client():
    with ingest_process() as url:
        trace_to(url, None)
        client = TimedIngest(url, "bench")
        measure("warm-up", k=64, at_once=64, client=client)
        yield client


def apart() -> None:
    """R2, R7: against the ideal, and what a trial keeps in memory; the ingest in a process of its own."""
    with apart_client() as client:
        measure("R7 W1, ingest apart", k=1000, at_once=64, client=client)
        for k, at_once in ((4, 1), (64, 16), (64, 64)):
            measure("R2 W2, ingest apart", k=k, at_once=at_once, bot_s=0.2, user_s=0.1, client=client)


def stop() -> None:
    """R9: from Ctrl-C to exit, with what had finished on disk."""
    script = Path(__file__).with_name("interrupted.py")
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.Popen([sys.executable, str(script), folder], stderr=subprocess.DEVNULL)
        time.sleep(4)
        run.send_signal(signal.SIGINT)
        run.send_signal(signal.SIGINT)
        began = time.perf_counter()
        run.wait()
        kept = len((Path(folder) / "trials.jsonl").read_text().splitlines())
        tell(case="R9 Ctrl-C", exit_s=round(time.perf_counter() - began, 2), finished_on_disk=kept)


def peer(python: str) -> None:
    """R3: the same workload by what both packages share, each under its own interpreter, in turns."""
    rates: dict[str, list[float]] = {"rate": [], "rate-apart": [], "peer": []}
    with ingest_process() as url:
        for _ in range(ROUNDS):
            for group in ("rate", "rate-apart"):
                rates[group].append(last_row([sys.executable, __file__, group])["trials_per_s"])
            rates["peer"].append(ask_peer(python, url, 200, 16, 0, 0)["trials_per_s"])
        for at_once in (16, 64):
            ask_peer(python, url, 64, at_once, 0.2, 0.1)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    times = {name: round(medians[name] / medians["peer"], 2) for name in ("rate", "rate-apart")}
    tell(case="R3 trials per second, in turns", rounds=ROUNDS, medians=medians, times_the_peer=times)


def ask_peer(python: str, url: str, *load: float) -> dict:
    """Run a load (k, at once, seconds of bot and user) under the peer's interpreter, and tell."""
    script = str(Path(__file__).with_name("peer.py"))
    row = last_row([python, script, url, "-", *map(str, load)])
    tell(case="peer, trials gathered by hand", **row)
    return row


def last_row(command: list[str]) -> dict:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


GROUPS = {
    "alone": alone,
    "rate": rate,
    "rate-apart": rate_apart,
    "w1": w1,
    "w2": w2,
    "apart": apart,
    "stop": stop,
}


def main() -> None:
    """Run groups of cases, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []])
    chosen = parser.parse_args()
    if len(chosen.groups) == 1 and chosen.peer is None:
        GROUPS[chosen.groups[0]]()
        return
    for group in chosen.groups or GROUPS:
        subprocess.run([sys.executable, __file__, group], check=True)
    if chosen.peer:
        peer(chosen.peer)


if __name__ == "__main__":
    main()
