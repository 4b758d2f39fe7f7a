from fakes import FixedIngest, RecordingBot, make_scenario, make_task, run

from sonar_eval import Orchestrator, ScriptedClient


def test_a_scenario_runs_and_passes():
    bot = RecordingBot()
    orchestrator = Orchestrator(make_task(), bot, ScriptedClient(["x"]), ingest_client=FixedIngest())
    report = run(orchestrator.run_scenario(make_scenario()))
    assert report.passed
    assert bot.sent == ["hello"]
