"""A run that is to be interrupted: trials of 2 s, three at a time, records in the folder named."""

import asyncio
import sys

from engine import Bot, NoIngest, User

from sonar_eval import JSONFileStore, LLMConfig, Orchestrator, ScenarioConfig, TaskConfig

task = TaskConfig("http://x", "bench", LLMConfig("u"), LLMConfig("j"), concurrency=3)
run = Orchestrator(
    task, Bot(0.2, traced=False), User(0.1), store=JSONFileStore(sys.argv[1]), ingest_client=NoIngest()
).run_scenario(ScenarioConfig("bench", "", k=60))
asyncio.run(run)
