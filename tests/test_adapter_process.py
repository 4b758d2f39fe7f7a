"""Starting a bot's own process, and leaving nothing behind."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import run
from sonar_eval import FaultSpec, Fidelity, Seed, TrialContext
from sonar_eval.adapter.http import HTTPBotAdapter
from sonar_eval.adapter.process import BotProcess
from sonar_eval.errors import HarnessError

LISTEN = "import socket, time; s = socket.create_server(('127.0.0.1', {port})); print('up', flush=True); time.sleep(60)"


def python(code: str, **settings: Any) -> BotProcess:
    return BotProcess([sys.executable, "-c", code], **settings)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep temporary files where they can be counted."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def is_running(pid: int) -> bool:
    """Tell whether the process is there and more than a zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if Path("/proc").is_dir() else True
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_for(condition: Callable[[], object]) -> bool:
    """Tell whether the condition comes to hold within a moment."""
    deadline = time.monotonic() + 5
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(pid: int) -> bool:
    """Tell whether the process ends within a moment."""
    return wait_for(lambda: not is_running(pid))


def test_a_process_is_ready_when_it_listens_and_gone_when_it_is_stopped(folder):
    process = python(LISTEN)

    async def story() -> None:
        await process.start()
        assert listens(process.port)
        assert process.base_url == f"http://127.0.0.1:{process.port}"
        await process.stop()

    run(story())
    assert not listens(process.port)
    assert list(folder.iterdir()) == []


def test_starting_a_running_process_again_does_nothing():
    process = python(LISTEN)

    async def story() -> None:
        await process.start()
        port = process.port
        await process.start()
        assert process.port == port
        await process.stop()
        await process.stop()

    run(story())


def test_a_stopped_process_can_be_started_again():
    process = python(LISTEN)

    async def story() -> None:
        for _ in range(2):
            await process.start()
            assert listens(process.port)
            await process.stop()

    run(story())


def test_a_command_may_be_one_line_and_gets_its_environment(tmp_path):
    script = tmp_path / "my bot.py"
    script.write_text(
        "import os, socket, sys, time\n"
        "print('mood', os.environ['MOOD'], 'home' if 'PATH' in os.environ else 'lost', flush=True)\n"
        "s = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "time.sleep(60)\n"
    )
    process = BotProcess(f"{sys.executable} '{script}' {{port}}", environment={"MOOD": "sunny"})

    async def story() -> str:
        await process.start()
        said = process.last_words()
        await process.stop()
        return said

    assert "mood sunny home" in run(story())


def test_a_process_that_dies_at_once_is_quoted_and_leaves_nothing(folder):
    process = python("import sys; print('settings read'); sys.exit('no licence file')")
    with pytest.raises(HarnessError, match=r"(?s)ended before it listened.*no licence file"):
        run(process.start())
    assert list(folder.iterdir()) == []


def test_a_process_that_never_listens_is_given_up_quoted_and_ended(folder):
    code = "import os, time; print('pid', os.getpid(), 'waiting for the database', flush=True); time.sleep(60)"
    process = python(code, start_timeout_s=1.0)
    with pytest.raises(
        HarnessError, match=r"did not listen on port \d+ within 1 s.*waiting for the database"
    ) as caught:
        run(process.start())
    pid = int(str(caught.value).split("pid ")[1].split()[0])
    assert gone(pid)
    assert list(folder.iterdir()) == []


def test_a_command_that_does_not_exist_is_named(folder):
    process = BotProcess("no-such-bot-command --port {port}")
    with pytest.raises(HarnessError, match=r"no-such-bot-command"):
        run(process.start())
    assert list(folder.iterdir()) == []


def test_only_the_end_of_what_a_process_printed_is_quoted():
    process = python("print('x' * 100_000 + ' the end')")
    with pytest.raises(HarnessError, match="the end") as caught:
        run(process.start())
    assert len(str(caught.value)) < 1000


def test_a_process_that_ignores_the_request_to_end_is_ended_all_the_same():
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + LISTEN
    process = python(code)

    async def story() -> None:
        await process.start()
        await process.stop(patience_s=0.2)

    run(story())
    assert not listens(process.port)


def test_a_script_that_starts_the_bot_is_ended_together_with_it():
    process = BotProcess(["sh", "-c", f'"{sys.executable}" -c "{LISTEN}" & echo bot $! ; wait'])

    async def story() -> int:
        await process.start()
        bot = int(process.last_words().split("bot ")[1].split()[0])
        await process.stop()
        return bot

    assert gone(run(story()))
    assert not listens(process.port)


def test_a_start_that_is_cancelled_leaves_no_process(folder):
    pid_file = folder / "pid"
    process = python(f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)")

    async def story() -> None:
        start = asyncio.create_task(process.start())
        await asyncio.to_thread(wait_for, lambda: pid_file.is_file() and pid_file.read_text())
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    run(story())
    assert gone(int(pid_file.read_text()))
    assert list(folder.iterdir()) == [pid_file]


def test_the_demo_bot_is_started_driven_and_ended():
    command = [sys.executable, "-m", "sonar_eval.demo", "--port", "{port}"]
    # Its spans have nowhere to go, and it shall not look for a place.
    process = BotProcess(command, environment={"SONAR_MODE": "off"})
    adapter = HTTPBotAdapter(name="cafe", process=process)
    context = TrialContext("conv-1", Seed({"stock": {"latte": 3}}), FaultSpec(), Fidelity.REAL)

    async def story() -> Any:
        async with adapter:
            session = await adapter.setup_trial(context)
            delivered = await adapter.send(session, "Good morning!")
            await adapter.teardown_trial(session)
            return delivered

    assert run(story()).messages == ("Hello, and welcome to Café Lumen. What can I get you?",)
    assert not listens(process.port)


def test_an_adapter_whose_process_dies_quotes_its_last_words():
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', {port}));\n"
        "probe = s.accept(); request = s.accept(); sys.exit('out of memory')"
    )
    adapter = HTTPBotAdapter(process=python(code))

    async def story() -> None:
        async with adapter:
            await adapter.setup_trial(TrialContext("conv-1", Seed(), FaultSpec(), Fidelity.REAL))

    with pytest.raises(ConnectionError, match=r"POST http://127.*/trials.*out of memory"):
        run(story())


KILLED = """
import asyncio, sys
from sonar_eval.adapter.process import BotProcess

async def main():
    process = BotProcess([sys.executable, "-c", sys.argv[1]])
    await process.start()
    print(process._process.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_the_bot_ends_with_a_harness_that_is_killed(folder):
    command = [sys.executable, "-c", KILLED, LISTEN]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as harness:
        pid = int(harness.stdout.readline())
        assert is_running(pid)
        harness.kill()
    assert wait_for(lambda: not is_running(pid))


def test_no_guard_is_left_behind(folder):
    async def story():
        process = python(LISTEN)
        await process.start()
        guard = process._guard.pid
        assert is_running(guard)
        await process.stop()
        return guard

    assert not is_running(run(story()))
