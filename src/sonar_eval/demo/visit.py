"""What an offline model makes of the messages so far."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..llm import Message, ToolRequest
from .shop import MENU, MILKS, SIZES

_ORDER_ID = re.compile(r"\b[A-Z]-\d+\b", re.IGNORECASE)
_AMOUNT = re.compile(
    r"(?:€|\beur(?:os?)?)\s*(\d+(?:[.,]\d{1,2})?)|(\d+(?:[.,]\d{1,2})?)\s*(?:€|eur(?:os?)?\b)", re.IGNORECASE
)
_SHORT = {"tea": "green tea", "croissant": "almond croissant", "muffin": "blueberry muffin"}
_NOT_WANTED = re.compile(r"\b(?:instead of|rather than)\b[^,.;!?]*")


@dataclass(frozen=True)
class Call:
    """A tool call that was made, with its result; `failed` when the tool said so."""

    name: str
    args: dict[str, Any]
    result: Any
    failed: bool


@dataclass(frozen=True)
class Visit:
    """The conversation up to the user's last message and the calls made since."""

    turn: int
    said: str
    """The user's last message."""
    asked: str
    """What the assistant said before it."""
    earlier: str = ""
    """The user's message before that."""
    calls: tuple[Call, ...] = ()
    now: tuple[Call, ...] = field(default=())
    """The calls since the user's last message."""

    @property
    def order(self) -> dict[str, Any] | None:
        """The order as the tools last showed it."""
        shown = [call.result for call in self.calls if _is_order(call.result)]
        return shown[-1] if shown else None

    def made(self, name: str, **args: Any) -> list[Call]:
        """List this turn's calls of a tool, with these among their arguments."""
        return [call for call in self.now if call.name == name and args.items() <= call.args.items()]

    @property
    def paid_before(self) -> bool:
        """Tell whether a charge worked before the user's last message."""
        earlier = self.calls[: len(self.calls) - len(self.now)]
        charges = [call for call in earlier if call.name == "payment_api" and call.args.get("action") == "charge"]
        return any(not call.failed for call in charges)

    def hears(self, pattern: str) -> bool:
        """Tell whether the user's last message matches."""
        return re.search(pattern, self.said, re.IGNORECASE) is not None

    def heard_earlier(self, pattern: str) -> bool:
        """Tell whether the user's message before the last matches."""
        return re.search(pattern, self.earlier, re.IGNORECASE) is not None

    def wanted(self, *, earlier: bool = False) -> dict[str, str]:
        """Read item, size and milk, as far as named, out of the user's last message or the one before it."""
        said = self.earlier if earlier else self.said
        # What follows "instead of" is what the guest does not want any more.
        text = _NOT_WANTED.sub("", " ".join(said.lower().split()))
        short = [name for word, name in _SHORT.items() if re.search(rf"\b{word}s?\b", text)]
        found = {"item": [name for name in MENU if name in text] or short}
        found["size"] = [name for name in SIZES if re.search(rf"\b{name}\b", text)]
        found["milk"] = [name for name in MILKS if re.search(rf"\b{name}\b", text)]
        return {key: names[-1] for key, names in found.items() if names}

    def named_order(self) -> str | None:
        """Read an order number out of the user's last message."""
        match = _ORDER_ID.search(self.said)
        return match.group(0).upper() if match else None

    def named_amount(self) -> float | None:
        """Read an amount of money out of the user's last message."""
        match = _AMOUNT.search(self.said)
        return float((match.group(1) or match.group(2)).replace(",", ".")) if match else None

    def submission(self) -> dict[str, Any] | None:
        """Read a filled-in form out of the user's last message."""
        start, end = self.said.find("{"), self.said.rfind("}")
        try:
            body = json.loads(self.said[start : end + 1]) if 0 <= start < end else None
        except ValueError:
            return None
        values = body.get("values") if isinstance(body, dict) else None
        return values if isinstance(values, dict) else None


def read_visit(messages: Sequence[Message]) -> Visit:
    """Make a visit of a chat history that ends in a user message or in tool results."""
    turn, said, asked, spoken, earlier = 0, "", "", "", ""
    requests: dict[str, ToolRequest] = {}
    calls: list[Call] = []
    since = 0
    for message in messages:
        if message.role == "user":
            turn, earlier, said, asked, since = turn + 1, said, message.content, spoken, len(calls)
        elif message.role == "assistant":
            spoken = message.content or spoken
            requests |= {call.id: call for call in message.tool_calls}
        elif message.role == "tool" and message.tool_call_id in requests:
            calls.append(_call(requests[message.tool_call_id], message.content))
    return Visit(turn, said, asked, earlier, tuple(calls), tuple(calls[since:]))


def _is_order(result: Any) -> bool:
    """Tell whether a tool's result can be read as an order: under a fault it may be anything."""
    parts = ("order_id", "item", "size", "milk")
    return isinstance(result, dict) and result.keys() >= set(parts) and isinstance(result.get("total"), int | float)


def _call(request: ToolRequest, content: str) -> Call:
    try:
        result = json.loads(content)
    except ValueError:
        result = content
    failed = isinstance(result, dict) and "error" in result
    return Call(request.name, dict(request.arguments), result, failed)
