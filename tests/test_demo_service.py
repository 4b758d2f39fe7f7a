"""The café's service, which teams copy: its faults go through the gate that marks the spans they hit."""

from __future__ import annotations

from fakes import run
from sonar_eval import FaultSpec
from sonar_eval.adapter import Variant
from sonar_eval.adapter.wire import TrialSetup
from sonar_eval.appside import FaultGate
from sonar_eval.demo import service

OBEDIENT = {"provider": "offline", "model": "offline-careful", "reliability": 1.0, "habit": 1.0}


def test_every_tool_of_the_service_is_called_through_a_gate_with_the_posted_faults(monkeypatch):
    called, posted = [], []

    class Watched(FaultGate):
        def __init__(self, faults=None):
            posted.append(faults)
            super().__init__(faults)

        async def call(self, target, tool, /, **args):
            called.append(target)
            return await super().call(target, tool, **args)

    monkeypatch.setattr(service, "FaultGate", Watched)
    setup = TrialSetup("c", variant=Variant("m", "p", "Look on the menu first.", OBEDIENT), faults=FaultSpec())

    async def story():
        conversation = await service.open_conversation(setup)
        await conversation.send("A large latte with oat milk, please.", None)
        await conversation.close()

    run(story())
    assert "menu_lookup" in called
    assert posted == [setup.faults]
