"""A job that died is gone on with from its journal: nothing finished is run again, nothing is missing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from fakes import FixedIngest, RecordingBot, make_scenario, make_task, run
from serving import slow
from sonar_eval import ConfigError, JSONFileStore, Orchestrator, ScriptedClient, finished_trials
from sonar_eval.store import read_jsonl

K = 30

JOB = f"""
import asyncio, random, sys
from fakes import FixedIngest, RecordingBot, make_scenario, make_task
from sonar_eval import Assertion, JSONFileStore, Orchestrator, ScriptedClient, Severity, bot_said, finished_trials

folder = sys.argv[1]

class Moody(RecordingBot):
    async def setup_trial(self, ctx):
        print("started", ctx.index, flush=True)
        session = await super().setup_trial(ctx)
        session.handle = random.Random(ctx.random_seed)
        return session

    async def send(self, session, user_msg, media=None, **extra):
        await asyncio.sleep(session.handle.uniform(0.05, 0.1))
        # Long enough for a record to take a while to write.
        self.answer = session.handle.choice(["good", "good", "bad"]) + " " * 200_000
        return await super().send(session, user_msg, media, **extra)

good = Assertion("good", Severity.SAFETY_CRITICAL, bot_said("good"))
orchestrator = Orchestrator(
    make_task(concurrency=4, seed=11), Moody(), ScriptedClient(["x"]),
    store=JSONFileStore(folder), ingest_client=FixedIngest(), finished=finished_trials(folder),
)
print("ready", flush=True)
report = asyncio.run(orchestrator.run_scenario(make_scenario(k={K}, assertions=[good])))
print("rate", report.pass_rate, report.judged, report.assertions[0].passes, flush=True)
"""


def start(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", JOB, str(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(folder: Path) -> tuple[str, list[int]]:
    """Run the job to its end; return its totals and the trials that it started."""
    process = start(folder)
    out, err = process.communicate(timeout=50)
    assert process.returncode == 0, err
    lines = out.splitlines()
    return lines[-1], [int(line.split()[1]) for line in lines if line.startswith("started")]


def verdicts(folder: Path) -> dict[int, tuple[int, bool]]:
    return {
        record["index"]: (record["random_seed"], record["passed"]) for record in read_jsonl(folder / "trials.jsonl")
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    totals, started = finish(folder)
    assert sorted(started) == list(range(K))
    return totals, verdicts(folder)


def kill(folder: Path, after_s: float) -> set[int]:
    """Kill the job some time after it began; return the trials whose records were whole by then."""
    process = start(folder)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(after_s)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    return set(verdicts(folder))


def kill_and_go_on(folder: Path, seed: int, whole: tuple[str, dict[int, tuple[int, bool]]]) -> None:
    moments = random.Random(seed)
    # Thirty trials of at least 0.05 s, four at a time, last longer than that.
    kept = kill(folder, moments.uniform(0.0, 0.3))
    totals, started = finish(folder)
    assert not kept & set(started), "a finished trial was run again"
    records = list(read_jsonl(folder / "trials.jsonl"))
    assert Counter(record["index"] for record in records) == Counter(range(K))
    assert (totals, verdicts(folder)) == whole
    assert finish(folder) == (totals, [])


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_job_is_gone_on_with_and_comes_to_the_same(tmp_path, seed, whole):
    kill_and_go_on(tmp_path, seed, whole)


@slow
@pytest.mark.parametrize("seed", range(2, 20))
def test_a_killed_job_is_gone_on_with_whenever_it_was(tmp_path, seed, whole):
    kill_and_go_on(tmp_path, seed, whole)


def test_a_record_that_was_half_written_is_run_again_and_only_that(tmp_path):
    def orchestrator(bot):
        finished = finished_trials(tmp_path)
        return Orchestrator(
            make_task(),
            bot,
            ScriptedClient(["x"]),
            store=JSONFileStore(tmp_path),
            ingest_client=FixedIngest(),
            finished=finished,
        )

    run(orchestrator(RecordingBot()).run_scenario(make_scenario(k=4)))
    path = tmp_path / "trials.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], lines[3][:-40]]))
    bot = RecordingBot()
    report = run(orchestrator(bot).run_scenario(make_scenario(k=4)))
    assert [ctx.index for ctx in bot.contexts] == [3]
    assert report.judged == 4
    assert [trial.index for trial in finished_trials(tmp_path)["s"]] == [0, 1, 2, 3]


def test_a_journal_of_a_later_version_is_told_before_a_trial_is_run(tmp_path):
    (tmp_path / "trials.jsonl").write_text(json.dumps({"schema_version": 9, "scenario": "s"}) + "\n")
    with pytest.raises(ConfigError, match="schema 9"):
        finished_trials(tmp_path)
