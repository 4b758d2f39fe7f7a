"""Prompts of MLflow's registry: swept over by version, told apart by text, linked to what was run with them."""

from __future__ import annotations

import json

import pytest

from sonar_eval.sweep.schema import PromptConf, SweepConf, TrackingConf
from stores import empty_store
from test_sweep_resume import runs_of, said
from test_sweep_run import sweep

# MLflow 3.17 uses what SQLAlchemy 2.1 deprecates, and trips over it when warnings are errors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.timeout(150),
]

TEXTS = ("Take orders.\n", "Take orders.\n- Check the stock before you take an order.\n")


@pytest.fixture
def registry(tmp_path):
    """Put two versions of a prompt into the store of `tmp_path`, the second under an alias."""
    from mlflow import MlflowClient

    client = MlflowClient(empty_store(tmp_path))
    for text in TEXTS:
        client.register_prompt("refund", text)
    client.set_prompt_alias("refund", "production", 2)
    client.register_prompt("chat", [{"role": "system", "content": "Hello."}])
    return client


def test_versions_of_a_prompt_are_swept_over_and_compared_as_prompts(tmp_path, registry):
    versions = "prompt.registry=prompts:/refund/1,prompts:/refund@production"
    swept = sweep(tmp_path, "prompt=registry", versions, "task.k=1")
    assert swept.status == 0, swept.err
    _, runs = runs_of(tmp_path)
    cells = {run.data.params["prompt"]: run for run in runs if run.data.tags["sonar.kind"] == "cell"}
    assert set(cells) == {"refund/1", "refund/2"}
    for number, text in enumerate(TEXTS, 1):
        params, tags = cells[f"refund/{number}"].data.params, cells[f"refund/{number}"].data.tags
        assert (params["prompt.registry_version"], params["prompt.text"]) == (f"prompts:/refund/{number}", text)
        assert json.loads(tags["mlflow.linkedPrompts"]) == [{"name": "refund", "version": str(number)}]
        assert len(swept.trials(prompt=f"refund/{number}")) == 1
    assert {prompt.name for prompt in registry.search_prompts()} == {"refund", "chat"}
    assert set(said(sweep(tmp_path, "resume=last")).values()) == {"kept 1 of 1"}
    # Where the alias leads elsewhere, its cell is another.
    registry.register_prompt("refund", "Refuse.")
    registry.set_prompt_alias("refund", "production", 3)
    moved = sweep(tmp_path, "resume=last", "dry_run=true")
    assert "1 of 2 cells are finished" in moved.out
    assert "refund/3" in moved.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["prompt.registry=prompts:/refund/9"], "prompts:/refund/9"),
        (["prompt.registry=prompts:/refund@nobody"], "prompts:/refund@nobody cannot be read from sqlite:///"),
        (["prompt.registry=prompts:/nothing/1"], "prompts:/nothing/1"),
        (["prompt.registry=refund"], "expected prompts:/NAME/VERSION or prompts:/NAME@ALIAS, got 'refund'"),
        (["prompt.registry=prompts:/chat/1"], "prompts:/chat/1 is a chat; a system prompt is a text"),
        (["prompt.registry=prompts:/refund/1", "prompt.text_file=a.md"], "expected text_file or registry, got both"),
        (["prompt.registry=prompts:/refund/1", "tracking.uri=sqlite:///no.db"], "there is no store sqlite:///"),
        (["prompt.registry=prompts:/refund/1", "tracking.uri=http://127.0.0.1:1"], "no MLflow server at"),
        ([], "prompt.registry"),
    ],
)
def test_a_prompt_that_cannot_be_had_is_told_in_one_line(tmp_path, registry, arguments, told):
    ran = sweep(tmp_path, "prompt=registry", "task.k=1", *arguments)
    (line,) = ran.err.splitlines()
    assert ran.status == 2
    assert line.startswith("sonar-eval: ")
    assert told in line
    assert not (tmp_path / "sweeps").exists()


def test_a_cell_that_was_run_tells_its_prompt_without_the_registry():
    from sonar_eval.sweep.prompt import prompt_name, prompt_text

    prompt = PromptConf("registry", "Be kind.", registry="prompts:/gone@old", registry_version="prompts:/gone/7")
    conf = SweepConf(prompt=prompt, tracking=TrackingConf("mlflow", uri="sqlite:////nowhere/mlflow.db"))
    assert (prompt_name(conf), prompt_text(conf)) == ("gone/7", "Be kind.")
