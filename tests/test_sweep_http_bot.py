"""The demo bot as a service in a process of its own: the same verdicts, with the faults posted to it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from test_sweep_run import finish, start, without_ids_and_times

pytestmark = pytest.mark.timeout(150)

SCENARIOS = ("order_latte", "refund", "delivery_form")


def services_in(folder: Path) -> list[str]:
    """List the command lines of the demo services that run in `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\x00", b" ").decode(errors="replace")
            if "sonar_eval.demo" in command and os.readlink(process / "cwd") == str(folder):
                found.append(command)
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("http")
    process = start(
        folder,
        "bot=cafe,cafe_http",
        f"scenario={','.join(SCENARIOS)}",
        "model=offline-steady",
        "prompt=v2",
        "fault=payment_error_once",
        "task.k=3",
        "tracking=none",
    )
    wait_for_service(folder, process)
    done = finish(folder, process)
    assert done.status == 0, done.err
    return done


def wait_for_service(folder, process):
    deadline = time.monotonic() + 40
    while process.poll() is None and time.monotonic() < deadline:
        if services_in(folder):
            return
        time.sleep(0.05)
    process.kill()
    pytest.fail(f"no service was started: {process.communicate()}")


def pairs(swept):
    """Pair the trials of the two bots, by scenario and index."""
    return [
        pair
        for scenario in SCENARIOS
        for pair in zip(
            swept.trials(bot="cafe", scenario=scenario), swept.trials(bot="cafe_http", scenario=scenario), strict=True
        )
    ]


def test_the_service_gets_the_same_verdicts_as_the_bot_in_process(swept):
    for here, there in pairs(swept):
        assert there["outcome"] == "judged", there["failure"]
        assert without_ids_and_times(here) == without_ids_and_times(there)


def test_the_fault_fired_in_the_service_and_its_span_says_so(swept):
    fired = 0
    for _, there in pairs(swept):
        (rule,) = there["faults"]
        marked = [span["fault"] for span in there["transcript"]["spans"] if span.get("fault")]
        assert rule["fired"] == len(marked)
        assert all(mark == {"action": "error", "rule": 0, "call_index": 0} for mark in marked)
        fired += rule["fired"]
    assert fired > 0


def test_the_form_and_its_submission_cross_the_wire(swept):
    filled = [
        turn["submission"]["values"]["address"]
        for record in swept.trials(bot="cafe_http", scenario="delivery_form")
        for turn in record["conversation"]
        if turn["submission"]
    ]
    assert filled
    assert set(filled) == {"12 Harbour Street"}


def test_the_other_bot_is_an_axis_of_the_table(swept):
    assert swept.out.splitlines()[0].split()[4] == "bot"


def test_no_service_is_left_behind(swept):
    assert services_in(swept.launched_in) == []


@pytest.mark.parametrize("after_s", [0, 1], ids=["starting", "serving"])
def test_an_interrupted_sweep_leaves_no_service_behind(tmp_path, after_s):
    process = start(tmp_path, "bot=cafe_http", "fault=slow_menu", "task.k=40", "task.concurrency=1", "tracking=none")
    wait_for_service(tmp_path, process)
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    assert finish(tmp_path, process).status == 130
    assert services_in(tmp_path) == []


def test_a_service_that_does_not_start_fails_its_cell_with_what_it_printed(tmp_path):
    process = start(
        tmp_path,
        "bot=cafe_http",
        'bot.command="{python} -c \\"raise SystemExit(\'no oven, port {port}\')\\""',
        "task.k=1",
        "tracking=none",
    )
    done = finish(tmp_path, process)
    assert done.status == 1
    assert "the bot's process ended before it listened; it printed last: no oven, port" in done.out.splitlines()[-1]
