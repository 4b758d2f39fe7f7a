"""A bot whose last tool fails, seen through the real exporter with its five-second timer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "data" / "late_bot.py"


def late_bot(mode, quiet_s, fate):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), mode, str(quiet_s), fate],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_bot_that_counts_is_judged_as_soon_as_its_last_span_is_here():
    seen = late_bot("counted", 30, "kept")
    assert (seen["outcome"], seen["level"]) == ("judged", 3)
    assert seen["held"] is False
    assert "declined" in seen["detail"]
    # The timer alone would take five seconds, the quiet thirty.
    assert seen["took_s"] < 5


def test_a_bot_that_does_not_count_is_judged_when_it_was_quiet():
    seen = late_bot("plain", 6.5, "kept")
    assert (seen["outcome"], seen["level"]) == ("judged", 2)
    assert seen["held"] is False
    assert seen["took_s"] > 6.5


@pytest.mark.parametrize(
    ("mode", "reason"), [("counted", "spans were lost on their way"), ("plain", "1 of 2 turns left an end")]
)
def test_a_batch_that_was_lost_gives_an_errored_trial_that_says_so(mode, reason):
    seen = late_bot(mode, 2, "lost")
    assert (seen["outcome"], seen["passed"]) == ("errored", False)
    assert reason in seen["failure"]


def test_an_exporter_that_is_refused_gives_an_errored_trial():
    seen = late_bot("counted", 2, "refused")
    assert (seen["outcome"], seen["passed"]) == ("errored", False)
    assert "no transcript" in seen["failure"]


@pytest.mark.parametrize("mode", ["counted", "plain"])
def test_a_batch_that_is_too_large_to_be_taken_gives_an_errored_trial(mode):
    seen = late_bot(mode, 6.5, "too_big")
    assert (seen["outcome"], seen["passed"]) == ("errored", False)
    assert "requests of this tenant were refused" in seen["failure"]
