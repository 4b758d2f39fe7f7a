"""The built wheel: its configuration comes along, and it sweeps from an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from test_sweep_run import sweep

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(150)]

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy of what goes into it."""
    source = tmp_path_factory.mktemp("source")
    for folder in ("src", "conf"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(source / "dist")]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (found,) = (source / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Install it, without its dependencies, into a folder that Python asks before it asks this checkout."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(folder)]
    ran = subprocess.run([*command, str(wheel)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return folder


def test_every_file_of_the_configuration_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    shipped = {str(path.relative_to(ROOT / "conf")) for path in (ROOT / "conf").rglob("*.yaml")}
    assert len(shipped) > 30
    assert {f"sonar_eval/conf/{path}" for path in shipped} <= names
    assert {"sonar_eval/py.typed", "sonar_eval/sweep/__main__.py"} <= names
    assert {f"sonar_eval/report/comparison.{kind}" for kind in ("html.j2", "css")} <= names
    assert not [name for name in names if name.startswith("tests/") or "mlruns" in name]


def test_the_wheel_names_its_command_and_its_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        texts = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if "dist-info/" in name}
    assert "sonar-eval = sonar_eval.cli:main" in texts["entry_points.txt"]
    assert "License-Expression: MIT" in texts["METADATA"]
    assert "LICENSE" in texts


def test_the_installed_package_is_not_this_checkout(installed, tmp_path):
    program = (
        "import sonar_eval; from sonar_eval.sweep.searchpath import shipped_conf; "
        "print(sonar_eval.__file__); print(shipped_conf())"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50
    )
    assert ran.stdout.splitlines() == [
        str(installed / "sonar_eval" / "__init__.py"),
        str(installed / "sonar_eval" / "conf"),
    ]


def test_the_installed_package_sweeps_from_an_empty_folder(installed, tmp_path):
    swept = sweep(tmp_path, "prompt=v1,v2", "task.k=2", "tracking=none", PYTHONPATH=str(installed))
    assert swept.status == 0, swept.err
    assert [result["report"]["judged"] for result in swept.results] == [2, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["sweeps"]


def test_a_conf_folder_adds_to_the_installed_configuration_and_overrides_it(installed, tmp_path):
    for path, text in {
        "conf/scenario/hello.yaml": "name: hello\nuser_instructions: Say hello.\nscripted_messages: [Hello]\n"
        "assertions:\n  - {check: bot_said, pattern: hello}\n",
        "conf/prompt/v2.yaml": "name: v2\ntext: mine\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    few = ("scenario=hello", "prompt=v1,v2", "task.k=1", "grader=none", "tracking=none")
    swept = sweep(tmp_path, *few, PYTHONPATH=str(installed))
    assert swept.status == 0, swept.err
    assert [result["report"]["scenario"] for result in swept.results] == ["hello", "hello"]
    for prompt, is_mine in (("v1", False), ("v2", True)):
        written = (swept.cell(prompt=prompt) / ".hydra" / "config.yaml").read_text(encoding="utf-8")
        assert ("text: mine" in written) is is_mine
