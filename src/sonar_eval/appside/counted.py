"""An adapter in the harness's own process, with the spans of its bot counted for it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from ..adapter import BotAdapter, Session, TrialContext
from ..conversation import Delivered, FormSubmission
from .counting import count_spans, end_trial


class CountedAdapter:
    """Hand everything to `inner`, and send the end marker after its teardown.

    What is not traced in this process is not counted here, and is then judged by its structure.
    """

    def __init__(self, inner: BotAdapter) -> None:
        self._inner = inner
        self._tenants: dict[str, str | None] = {}
        # Nothing needs a name, and adapters of old have none.
        self.name = getattr(inner, "name", None) or type(inner).__name__
        snapshot = getattr(inner, "snapshot", None)
        if snapshot is not None:
            # Only then: an adapter without a snapshot is told by its not being there.
            self.snapshot = snapshot

    async def __aenter__(self) -> Self:
        enter = getattr(self._inner, "__aenter__", None)
        if enter is not None:
            await enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave = getattr(self._inner, "__aexit__", None)
        if leave is not None:
            await leave(kind, error, trace)

    async def setup_trial(self, ctx: TrialContext) -> Session:
        """Set the trial up, counting from its first span on; some bots start tracing only here."""
        self._tenants[ctx.conversation_id] = ctx.tenant
        count_spans()
        session = await self._inner.setup_trial(ctx)
        count_spans()
        return session

    async def send(
        self, session: Session, user_msg: str, media: Any = None, submission: FormSubmission | None = None
    ) -> Delivered:
        """Hand one user turn over; adapters that know no forms are never sent one."""
        extra = {"submission": submission} if submission is not None else {}
        return await self._inner.send(session, user_msg, media, **extra)

    async def teardown_trial(self, session: Session) -> None:
        """Tear down, then say how many spans there were."""
        try:
            await self._inner.teardown_trial(session)
        finally:
            tenant = self._tenants.pop(session.conversation_id, None)
            await end_trial(session.conversation_id, tenant_id=tenant)
