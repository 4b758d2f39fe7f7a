"""Mistakes of the user's: one clear line each, exit status 2, before anything is run or written."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sonar_eval.sweep.app import main

BOTS = '''
from sonar_eval import BaseBotAdapter

class Nothing:
    """No method of a bot."""

class Demanding(BaseBotAdapter):
    def __init__(self, address):
        self.address = address

five = 5

def pair(one, other):
    return True

async def later(value):
    return True
'''


@pytest.fixture(autouse=True)
def _a_folder_with_a_bot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "SONAR_CONF", "SONAR_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "mistaken_bots.py").write_text(BOTS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("mistaken_bots", None)
    assert not (tmp_path / "sweeps").exists(), "something was run"
    assert not (tmp_path / "mlflow.db").exists(), "something was tracked"


def sweep(monkeypatch, *arguments):
    """Run the real command in this process and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["sweep", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


MISTAKES = [
    # what can be chosen
    ("scenario=order_late", "Could not find 'scenario/order_late'. Available options in 'scenario': change_of_mind"),
    ("model=offline-careful,ofline-hasty", "Could not find 'model/ofline-hasty'"),
    ("scenaro=order_latte", "Could not override 'scenaro'"),
    ("+experiment=nope", "Could not find 'experiment/nope'. Available options in 'experiment': ab_model"),
    ("experiment=ab_model", "use +experiment=ab_model"),
    ("fault=null", "write the name of an option in fault=null"),
    ("model=4", "write the name of an option in model=4"),
    # keys and types
    ("task.kk=3", "Key 'kk' not in 'TaskConf'"),
    ("task.k=0", "task.k: expected a whole number of 1 or more, or auto; got 0"),
    ("scenario.k=-1", "'order_latte': k must be a whole number of 1 or more, got -1"),
    ("task.k=2.5", "task.k: expected a whole number of 1 or more, or auto; got 2.5"),
    ("task.k=true", "task.k: expected a whole number of 1 or more, or auto; got True"),
    ("scenario.max_turns=0", "max_turns must be a whole number of 1 or more, got 0"),
    ("task.k=four", "task.k: expected a whole number of 1 or more, or auto; got 'four'"),
    ("prompt.text=[[END]]", "Cannot convert 'list' to string"),
    ("prompt.text=null", "field 'prompt.text' is not Optional"),
    ("+foo=1", "unknown key 'foo' at the top of the configuration; known: task, scenario"),
    # options
    ("scenario=glob(q*)", "scenario=glob(q*): no option matches; known: change_of_mind, clean_books, delivery_form"),
    ("task.k=range(1,1)", "task.k=range(1,1): expected at least one value, got none"),
    (
        "scenario=order_latte,refund scenario.name=same",
        "scenario=order_latte and scenario=refund are both named 'same'; change one's name",
    ),
    ("task", "missing EQUAL"),
    ("prompt.text=${nothing}", "nothing"),
    # numbers of things
    ("task.concurrency=0", "concurrency must be a whole number of 1 or more, got 0"),
    ("prompt=v1,v2 scenario.max_turns=3,0", "max_turns must be a whole number of 1 or more, got 0"),
    ("grader.threshold=7", "threshold must lie between 0 and 1, got 7.0"),
    ("model=offline-careful,offline-careful", "two cells of this sweep are the same: model=offline-careful"),
    ("tracking=mlflow,none", "two cells of this sweep are the same"),
    # assertions
    (
        "scenario.assertions=[{check:tool_was_caled,tool:x}]",
        "check: unknown 'tool_was_caled', known: all_of, any_of, at",
    ),
    ("scenario.assertions=[{check:tool_was_caled,tool:x}]", "; did you mean tool_was_called?"),
    ("scenario.assertions=[{check:tool_was_called,tol:x}]", "tool_was_called takes tool, got tol"),
    ("scenario.assertions=[{check:tool_was_called}]", "tool_was_called takes tool, got nothing"),
    ("scenario.assertions=[{check:max_turns,limit:five}]", "limit: expected int, got 'five'"),
    ("scenario.assertions=[{check:tool_called_with,tool:x,args:5}]", "args: expected Mapping, got 5"),
    ('scenario.assertions=[{check:bot_said,pattern:"("}]', "missing ), unterminated subpattern"),
    ("scenario.assertions=[{check:max_turns,limit:5,severity:high}]", "severity: unknown 'high', known: capability"),
    ("scenario.assertions=[{name:a}]", "assertion 'a': expected either check or import"),
    ('scenario.assertions=[{import:"nowhere:x"}]', "cannot import 'nowhere:x': no module 'nowhere'"),
    ('scenario.assertions=[{import:"mistaken_bots:x"}]', "mistaken_bots has no attribute 'x'"),
    ('scenario.assertions=[{import:"mistaken_bots:five"}]', "mistaken_bots:five is no function but int"),
    ('scenario.assertions=[{import:"mistaken_bots:Nothing"}]', "cannot be called with (transcript, log)"),
    (
        'scenario.assertions=[{check:tool_called_with,tool:x,predicate:"mistaken_bots:pair"}]',
        "predicate: mistaken_bots:pair cannot be called with (the value): missing a required argument: 'other'",
    ),
    (
        'scenario.assertions=[{check:final_state,predicate:"mistaken_bots:later"}]',
        "mistaken_bots:later must not be async",
    ),
    (
        "scenario.assertions=[{check:max_turns,limit:5},{check:max_turns,limit:6}]",
        "two assertions are named 'max_turns'; give each a name of its own",
    ),
    # faults
    ("fault.rules=[{target:a,action:explode}]", "rule 0: action: unknown 'explode', known: corrupt, error, latency"),
    ("fault.rules=[{target:a}]", "rule 0: missing action"),
    ("fault.rules=[{target:a,action:error},{action:error}]", "rule 1: missing target"),
    ("fault.rules=[{target:a,action:error,wenn:1}]", "rule 0: unknown wenn; expected target, action"),
    ("fault.rules=[{target:a,action:latency,payload:soon}]", "latency wants seconds as a number >= 0, got 'soon'"),
    ("fault.rules=[{target:a,action:error,when_call_index:first}]", "when_call_index: expected int, got 'first'"),
    ("fault.rules=[{target:a,action:error,probability:2}]", "rule 0: fault rule for 'a': probability must lie between"),
    ("fault.rules=[{target:a,action:error,first:2,for_s:1}]", "first and for_s exclude each other"),
    ("fault.rules=[{target:a,action:truncate,payload:5}]", "truncate wants the share to keep"),
    ("fault.rules=[error]", "Cannot assign str to Dict[str, Any]"),
    # bots
    ("bot=mine", "bot 'mine': expected bot.adapter=module:attribute"),
    ("bot=mine bot.adapter=nowhere:Bot", "cannot import 'nowhere:Bot': no module 'nowhere'"),
    ("bot=mine bot.adapter=mistaken_bots:Bot", "mistaken_bots has no attribute 'Bot'"),
    ("bot=mine bot.adapter=mistaken_bots", "expected 'module:attribute', got 'mistaken_bots'"),
    ("bot=mine bot.adapter=mistaken_bots:five", "5 is no bot adapter: it lacks name (a string), setup_trial()"),
    ("bot=mine bot.adapter=mistaken_bots:Demanding", "missing a required argument: 'address'"),
    ("bot=http", "expected url or command, e.g. bot.url=http://"),
    ("bot=http bot.url=localhost:9000/x", "bot 'http': expected an address such as http://localhost:9000/sonar-eval"),
    ("bot=http bot.url=http://localhost:90x", "sonar-eval, got 'http://localhost:90x'"),
    ("bot.fidelity=fake", "fidelity: unknown 'fake', known: mocked, real"),
    # models, users, judges
    ("model=openai", "the environment variable OPENAI_API_KEY is empty"),
    ("user=openai", "the environment variable OPENAI_API_KEY is empty"),
    ("model.provider=acme", "unknown provider 'acme'; known here: anthropic, openai"),
    ("model.reliability=null", "provider=offline needs reliability and habit"),
    ("model.reliability=2", "needs reliability and habit, each from 0 to 1; reliability is 2.0"),
    ("model.habit=-0.1", "needs reliability and habit, each from 0 to 1; habit is -0.1"),
    ("model=local model.base_url=null", "base_url is missing"),
    ("user.type=robot", "user.type: unknown 'robot', known: llm, offline"),
    ("user.type=llm", "user.type=llm needs user.llm; see conf/user/local.yaml"),
    ("scenario.offline_user.opening=[]", "scenario 'order_latte': user=offline needs offline_user.opening"),
    ("scenario.offline_user.cues=[{wen:x}]", "offline_user, cue 0: expected when and say"),
    ('scenario.offline_user.cues=[{when:"(",say:x}]', "when: '(' is no regular expression"),
    ("scenario.rubric=[{name:kind}]", "scenario 'order_latte': rubric, criterion 1: missing text"),
    ("scenario.rubric=[{name:a,text:x},{name:A,text:y}]", "two criteria are named 'A', 'a'"),
    ("scenario.rubric=7", "rubric must be a text or a list of criteria (name, text, weight), got 7"),
    ("grader.repeats=0", "grader: repeats must be a whole number of 1 or more, got 0"),
    ("grader.timeout_s=0", "grader: timeout_s must be more than 0 seconds, got 0.0"),
    ("grader.max_prompt_chars=1000", "leave under 1000 for the conversation; shorten them or raise max_prompt_chars"),
    (
        "scenario.opening_messages=[hi] scenario.scripted_messages=[ho]",
        "scenario 'order_latte': give either opening_messages (then a model goes on) or scripted_messages",
    ),
    (
        "grader=none,offline grader.required=true",
        "nobody judges (grader=none) in offline-careful v1 order_latte none grader=none; choose another grader",
    ),
    (
        "scenario.rubric=null grader.required=true fault=glob(*)",
        "no rubric in offline-careful v1 order_latte menu_truncated, offline-careful v1 order_latte none, ",
    ),
    ("scenario.rubric=null grader.required=true fault=glob(*)", "payment_error_once and 6 more; give the scenario one"),
    ("task.trial_timeout_s=0", "trial_timeout_s must be more than 0 seconds, got 0.0"),
    ("task.job_timeout_s=-1", "job_timeout_s must be more than 0 seconds, got -1.0"),
    # files and neighbours
    ("prompt.text= prompt.text_file=nowhere.md", "prompt 'v1': no file 'nowhere.md' in "),
    ("prompt.text_file=mistaken_bots.py", "prompt 'v1': expected text or text_file, got both; leave one of them out"),
    ("prompt.registry=prompts:/refund/1", "prompt 'v1': expected text or registry, got both; leave one of them out"),
    ("prompt.text=", "prompt 'v1': expected text, text_file or registry, got none of them"),
    ("ingest.quiet_s=-1", "ingest.quiet_s must be 0 to 1000000000 seconds, got -1.0"),
    ("ingest.settle_timeout_s=-0.5", "ingest.settle_timeout_s must be 0 to 1000000000 seconds, got -0.5"),
    ("ingest.quiet_s=nan", "ingest.quiet_s must be 0 to 1000000000 seconds, got nan"),
    ("ingest=external ingest.base_url=http://127.0.0.1:1", "is it running? (python -m sonar_eval.ingest)"),
    ("ingest=external ingest.base_url=null", "ingest.type=external needs ingest.base_url"),
    ("tracking.type=wandb", "tracking.type: unknown 'wandb', known: mlflow, none"),
    ("tracking.uri=http://127.0.0.1:1", "tracking: no MLflow server at http://127.0.0.1:1"),
    ("tracking=none hydra.sweep.dir=/proc/nowhere", "hydra.sweep.dir: cannot write to /proc/nowhere"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES, ids=[arguments for arguments, _ in MISTAKES])
def test_a_mistake_is_told_in_one_line_before_anything_is_run(arguments, said, monkeypatch, capsys):
    assert sweep(monkeypatch, *arguments.split(" ")) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith("sonar-eval: ")
    assert said in line
    assert told.out == ""


def test_an_experiment_is_composed_and_checked_as_a_whole_before_it_starts(monkeypatch, capsys):
    unreachable = ("ingest=external", "ingest.base_url=http://127.0.0.1:1")
    assert sweep(monkeypatch, "+experiment=fault_matrix", "scenario.max_turns=0", *unreachable) == 2
    assert "max_turns" in capsys.readouterr().err
    assert sweep(monkeypatch, "+experiment=fault_matrix", *unreachable) == 2
    assert "is it running?" in capsys.readouterr().err


def test_a_folder_that_holds_a_sweep_already_is_left_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "sweep.json").write_text("{}", encoding="utf-8")
    assert sweep(monkeypatch, "hydra.sweep.dir=done", "tracking=none") == 2
    assert "done holds a sweep already; name another folder with hydra.sweep.dir" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "done").iterdir()] == ["sweep.json"]


def test_the_traceback_is_shown_to_whoever_asks_for_it(monkeypatch, capsys):
    monkeypatch.setenv("SONAR_DEBUG", "1")
    assert sweep(monkeypatch, "task.k=0") == 2
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert told.splitlines()[-1].startswith("sonar-eval: ")


@pytest.mark.parametrize("arguments", ["-m scenario=order_late", "task.k=0", "bot=mine bot.adapter=nowhere:Bot"])
def test_the_command_itself_says_it_in_one_line_too(arguments, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "sonar_eval.sweep", *arguments.split(" ")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert ran.stderr.startswith("sonar-eval: ")
