"""Honouring posted faults in an app's own tool dispatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry import trace

from ..interceptor import FaultSpec, InterceptDecision, ProxyInterceptor, fault_attributes


class FaultGate:
    """Put one trial's faults in front of its tools, and mark the current span of each call they hit.

    With no faults, as in production, calls go straight through.
    """

    def __init__(self, faults: FaultSpec | None = None) -> None:
        self.interceptor = ProxyInterceptor(faults or FaultSpec())

    async def call(self, target: str, tool: Callable[..., Any], /, **args: Any) -> Any:
        """Return `tool(**args)`, or raise, delay, replace or spoil it as the faults say."""
        try:
            result, decision = await self.interceptor.run(target, args, tool)
        except Exception as error:
            self._mark(getattr(error, "sonar_decision", None))
            raise
        self._mark(decision)
        return result

    def call_now(self, target: str, tool: Callable[..., Any], /, **args: Any) -> Any:
        """Return `tool(**args)` of a plain function, as `call` does, where no loop runs."""
        try:
            result, decision = self.interceptor.run_now(target, args, tool)
        except Exception as error:
            self._mark(getattr(error, "sonar_decision", None))
            raise
        self._mark(decision)
        return result

    def _mark(self, decision: InterceptDecision | None) -> None:
        if decision is None:
            return
        trace.get_current_span().set_attributes(fault_attributes(decision, self.interceptor.spec.rules))
