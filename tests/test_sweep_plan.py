"""What a sweep says and checks before its first trial, and how it ends when cells fail."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading

import pytest

from sonar_eval.report import planning_line
from sonar_eval.sweep.searchpath import shipped_conf
from test_sweep_run import BOTS, sweep

pytestmark = pytest.mark.timeout(150)

NOWHERE = "http://127.0.0.1:1/v1"
MORE_BOTS = '''


class Leaves(CafeBot):
    """Ends the whole process, or tries to, with one of the prompts."""

    async def setup_trial(self, ctx):
        if ctx.variant.prompt == "v1":
            raise SystemExit(3)
        return await super().setup_trial(ctx)
'''


@pytest.fixture
def bots(tmp_path):
    (tmp_path / "my_bots.py").write_text(BOTS + MORE_BOTS, encoding="utf-8")
    return tmp_path


def test_a_dry_run_shows_the_grid_and_runs_nothing(tmp_path):
    dry = sweep(tmp_path, "+experiment=ab_model", "task.k=5", "dry_run=true")
    assert (dry.status, dry.err) == (0, "")
    lines = dry.out.splitlines()
    cells = 2 * len(list((shipped_conf() / "scenario").glob("*.yaml")))
    assert len(lines) == cells + 2
    assert lines[-2].startswith(f"{cells} cells x 5 trials = {5 * cells} trials; time and cost unknown: no earlier")
    assert lines[-1] == planning_line(cells // 2, 5)
    assert re.fullmatch(r"  offline-careful v2 change_of_mind none +5 trials", lines[0])
    assert list(tmp_path.iterdir()) == []


def test_variants_that_are_compared_run_side_by_side(tmp_path):
    axes = (
        "fault=none,slow_menu",
        "model=offline-careful,offline-hasty",
        "scenario=refund,order_latte",
        "prompt=v1,v2",
    )
    listed = [line.split()[:4] for line in sweep(tmp_path, *axes, "dry_run=true").out.splitlines()[:-2]]
    assert len(listed) == 16
    blocks = [listed[start : start + 4] for start in range(0, 16, 4)]
    for block in blocks:
        assert len({(scenario, fault) for _, _, scenario, fault in block}) == 1
        assert len({(model, prompt) for model, prompt, _, _ in block}) == 4
    assert [block[0][2:] for block in blocks] == [
        ["refund", "none"],
        ["order_latte", "none"],
        ["refund", "slow_menu"],
        ["order_latte", "slow_menu"],
    ]


def test_the_forecast_is_that_of_earlier_trials_of_the_same_model(tmp_path):
    for number, (model, seconds, dollars) in enumerate((("local", 60.0, 0.05), ("openai", 5.0, None))):
        folder = tmp_path / "sweeps" / "earlier" / f"cell-{number}"
        folder.mkdir(parents=True)
        made_of = {"model": model, "prompt": "v1", "scenario": "order_latte", "user": "offline", "grader": "offline"}
        measured = {"trials": 10, "mean_s": seconds, "mean_usd": dollars}
        (folder / "result.json").write_text(json.dumps({"choices": made_of, "measured": measured}), encoding="utf-8")
    (tmp_path / "sweeps" / "earlier" / "cell-0" / "more.json").write_text("{", encoding="utf-8")
    few = ("task.k=16", "task.concurrency=8", "dry_run=true")
    known = sweep(tmp_path, "model=local", *few)
    assert known.out.splitlines()[-1] == (
        "1 cell x 16 trials = 16 trials; at most about 2 min, about $0.80 (by 10 earlier trials)"
    )
    unpriced = sweep(tmp_path, "model=openai", *few, OPENAI_API_KEY="sk-nothing-at-all")
    assert "at most about 11 s, cost unknown (by 10 earlier trials)" in unpriced.out
    assert "time and cost unknown" in sweep(tmp_path, "model=offline-hasty", *few).out


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        (
            "+experiment=ab_model,ab_prompt",
            "+experiment=ab_model,ab_prompt: expected one value, its grid is read before",
        ),
        ("launcher=local,joblib", "expected one value, it holds for the whole sweep; run one sweep for each"),
        ("dry_run=true,false", "expected one value"),
        ("hydra.sweeper._target_=hydra._internal.core_plugins.basic_sweeper.BasicSweeper", "cannot be replaced"),
        ("hydra.job.env_copy=[PLANTED_API_KEY]", "hydra.job.env_copy would write PLANTED_API_KEY to disk"),
        ("prompt.text=${oc.env:PLANTED_API_KEY}", "the value of the environment variable PLANTED_API_KEY stands in"),
        ("+hydra.job.env_set.A=sk-planted-123456", "the value of the environment variable PLANTED_API_KEY stands in"),
        (f"model=local model.base_url={NOWHERE}", f"nothing answers at {NOWHERE} (ConnectionRefusedError"),
        ("bot=http bot.url=http://127.0.0.1:1/x", "nothing answers at http://127.0.0.1:1/x"),
    ],
)
def test_what_would_go_wrong_is_told_before_anything_is_begun(tmp_path, argument, told):
    ran = sweep(tmp_path, *argument.split(" "), "tracking=none", PLANTED_API_KEY="sk-planted-123456")
    assert ran.status == 2
    (line,) = ran.err.splitlines()
    assert line.startswith("sonar-eval: ")
    assert told in line
    assert "sk-planted-123456" not in line or "env_set" in argument
    assert list(tmp_path.iterdir()) == []


def test_a_neighbour_that_some_cells_need_is_a_warning_and_costs_only_them(tmp_path):
    few = ("task.k=1", "task.retries=0", "tracking=none")
    ran = sweep(tmp_path, "model=offline-careful,local,offline-hasty", *few, LOCAL_LLM_URL=NOWHERE)
    assert ran.status == 1
    warnings = [line for line in ran.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"warning: nothing answers at {NOWHERE} (")
    assert warnings[0].endswith("; its cells will fail")
    assert [bool(result["error"]) for result in ran.results] == [False, True, False]
    assert ran.out.splitlines()[-2] == "1 of 3 cells failed:"


def test_every_address_of_the_grid_is_asked_not_only_the_first(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as there:
        answer = threading.Thread(target=accept_once, args=(there,), daemon=True)
        answer.start()
        urls = f"http://127.0.0.1:{there.getsockname()[1]},http://127.0.0.1:1"
        ran = sweep(tmp_path, "bot=http", f"bot.url={urls}", "task.k=1", "task.retries=0", "tracking=none")
    assert "warning: nothing answers at http://127.0.0.1:1 (" in ran.err
    assert ran.err.count("warning: nothing answers") == 1


def accept_once(server):
    """Be there when asked, and gone when it matters."""
    connection, _ = server.accept()
    server.close()
    connection.close()


def test_a_trap_in_the_user_s_conf_is_told_at_the_start(tmp_path):
    (tmp_path / "conf" / "fault").mkdir(parents=True)
    (tmp_path / "conf" / "fault" / "off.yaml").write_text("name: 'off'\n", encoding="utf-8")
    ran = sweep(tmp_path, "dry_run=true")
    assert ran.status == 0
    assert ran.err == (
        "warning: conf/fault/off.yaml: the name 'off' is not read as text; rename the file, e.g. fault-off\n"
    )


def test_a_bot_that_leaves_the_process_fails_its_cell_only(bots):
    ran = sweep(bots, "bot=mine", "bot.adapter=my_bots:Leaves", "prompt=v1,v2", "task.k=1", "tracking=none")
    assert ran.status == 1
    assert ran.out.splitlines()[-1] == "  offline-careful v1 order_latte none: SystemExit: 3"
    assert ran.trials(prompt="v2")[0]["outcome"] == "judged"


@pytest.mark.parametrize("fail_fast", [False, True])
def test_every_failed_cell_is_listed_and_fail_fast_begins_no_further_one(bots, fail_fast):
    ran = sweep(
        bots,
        "bot=mine",
        "bot.adapter=my_bots:FailsWithV2",
        "prompt=v2,v1",
        "scenario=order_latte,refund",
        "task.k=1",
        "task.retries=0",
        "tracking=none",
        f"fail_fast={fail_fast}",
    )
    assert ran.status == 1
    last = ran.out.splitlines()[-4 if fail_fast else -2 :]
    begun = len(list(ran.folder.glob("*/trials.jsonl")))
    if fail_fast:
        assert begun == 1
        assert "4 of 4 cells failed:" in ran.out
        told = "not run: fail_fast, after offline-careful v2 order_latte none failed"
        assert [told in line for line in last] == [False, True, True, True]
    else:
        assert begun == 4
        assert "2 of 4 cells failed:" in ran.out
        assert all("the café's cellar is flooded" in line for line in last)
    # What was not run is what is left to do.
    (bots / "my_bots.py").write_text(BOTS.replace('== "v2"', '== "v9"'), encoding="utf-8")
    again = sweep(bots, "resume=last")
    assert again.status == 0, again.err
    assert len(again.results) == 4


def test_the_configuration_of_a_cell_can_be_shown_resolved(tmp_path):
    command = [sys.executable, "-m", "sonar_eval.sweep", "--cfg", "job", "--resolve", "model=local", "prompt=v2"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=True)
    assert "base_url: http://127.0.0.1:8000/v1" in ran.stdout
    assert "${" not in ran.stdout
    assert list(tmp_path.iterdir()) == []


COMPLETIONS = [
    ("sonar-sweep model=offline-", {"model=offline-careful", "model=offline-hasty", "model=offline-steady"}),
    ("sonar-sweep +experiment=ab", {"+experiment=ab_model", "+experiment=ab_prompt"}),
    ("sonar-sweep launcher=ray", {"launcher=ray", "launcher=ray_cluster"}),
    ("sonar-sweep task.se", {"task.seed=", "task.setup_timeout_s="}),
    ("sonar-sweep resu", {"resume="}),
]


@pytest.mark.parametrize(("typed", "offered"), COMPLETIONS, ids=[typed for typed, _ in COMPLETIONS])
def test_the_tab_key_completes_the_command(tmp_path, typed, offered):
    command = tmp_path / "bin" / "sonar-sweep"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom sonar_eval.sweep.app import main\nmain()\n", encoding="utf-8")
    command.chmod(0o755)
    script = f"""
eval "$(sonar-sweep -sc install=bash)"
COMP_LINE='{typed}'; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=($COMP_LINE); COMP_CWORD=1; COMP_KEY=9; COMP_TYPE=9
hydra_bash_completion
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    environment = {**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert set(ran.stdout.split()) == offered, ran.stderr
