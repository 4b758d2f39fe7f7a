"""The MLflow UI over a store that a sweep made: the page that a sweep's last line names."""

from __future__ import annotations

import html
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from test_sweep_run import HEADLINES, run_grid, sweep

pytestmark = pytest.mark.timeout(240)

CHROMIUM = shutil.which("chromium")
COLUMNS = {
    *(f"params.`{axis}`" for axis in ("model", "prompt", "scenario", "fault")),
    *(f"metrics.`{name}`" for name in ("pass_rate", "pass_hat_k", "judge_mean", "safety_violations")),
    *(f"metrics.`{name}`" for name in ("trials_judged", "trials_errored")),
}


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return run_grid(tmp_path_factory)


@pytest.fixture(scope="module")
def address(grid, tmp_path_factory):
    """Serve a copy of the grid's store with `sonar-eval ui`."""
    folder = tmp_path_factory.mktemp("ui")
    shutil.copy(grid.launched_in / "mlflow.db", folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    command = [sys.executable, "-m", "sonar_eval", "ui", "--uri", uri, "--port", str(port)]
    with (folder / "ui.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, folder / "ui.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(10)
        finally:
            # Its worker is a process of its own.
            end_group(server.pid)


def wait_for(url, server, log):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        try:
            if httpx.get(url, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    pytest.fail(f"the UI did not come up: {log.read_text()}")


def end_group(leader):
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def render(url, profile):
    """Return the page as it stands once its scripts have run."""
    switches = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --window-size=2600,1400 --virtual-time-budget=20000 --dump-dom"
    )
    command = [CHROMIUM, *switches.split(), f"--user-data-dir={profile}", url]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)
    return html.unescape(ran.stdout)


def rows_of(page):
    """Return the cells of each row of the runs table, by run and column."""
    found = {}
    for part in re.split(r'row-id="', page)[1:]:
        cells = re.findall(r'col-id="([^"]+)"[^>]*>(.*?)</div></div>', part, re.DOTALL)
        found.setdefault(part[:32], {}).update({key: re.sub(r"<[^>]+>", "", value).strip() for key, value in cells})
    return found


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_page_that_a_sweep_names_shows_its_cells_side_by_side(grid, address, tmp_path):
    (link,) = re.findall(r"http://127\.0\.0\.1:5000/(\S+)", grid.out)
    page = render(f"{address}/{link}", tmp_path / "profile")
    rows = rows_of(page)
    assert set(rows) == {result["run_id"] for result in grid.results}, "all cells, and not their parent"
    for result in grid.results:
        shown = rows[result["run_id"]]
        assert COLUMNS <= set(shown)
        assert [shown[f"params.`{axis}`"] for axis in ("model", "prompt", "scenario", "fault")] == [
            result["choices"][axis] for axis in ("model", "prompt", "scenario", "fault")
        ]
        assert float(shown["metrics.`pass_rate`"]) == pytest.approx(result["report"]["pass_rate"], abs=1e-4)
        assert result["name"] in page
    rates = [float(cells["metrics.`pass_rate`"]) for cells in rows.values()]
    assert rates == sorted(rates, reverse=True)


def test_a_sweep_can_be_tracked_by_a_server(address, tmp_path):
    swept = sweep(tmp_path, f"tracking.uri={address}", "tracking.experiment=served", "task.k=1")
    assert swept.status == 0, swept.err
    assert f"Look at it: {address}/#/experiments/" in swept.out
    assert [path.name for path in tmp_path.iterdir()] == ["sweeps"]
    (result,) = swept.results
    api = f"{address}/api/2.0/mlflow"
    with httpx.Client(trust_env=False) as client:
        run = client.get(f"{api}/runs/get", params={"run_id": result["run_id"]}).json()["run"]
        files = client.get(f"{api}/artifacts/list", params={"run_id": result["run_id"]}).json()["files"]
    assert run["info"]["status"] == "FINISHED"
    assert {metric["key"] for metric in run["data"]["metrics"] if "/" not in metric["key"]} == HEADLINES
    assert {"trials.jsonl", "transcripts", "config.json"} <= {file["path"] for file in files}
