"""Offline models: a fixed policy that plays the café's assistant. Scripted stand-ins, not language models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..llm import ChatReply, Completion, LLMConfig, Message, ToolRequest, ToolSchema, Usage
from .directives import Directive, Mind, read_directives
from .visit import Visit, read_visit

Step = str | ToolRequest

_YES = (
    r"\b(yes|yeah|yep|yup|ok|okay|right|correct|go ahead|please do|do it|charge it|sure|of course|sounds good"
    r"|that's it|try (it )?again|once more)\b"
)
_NO = r"\b(no(?! (problem|worries))|nope|not|wait|stop|cancel)\b|n't\b"
_UNREADABLE = "I am sorry, our order system answers nothing I can read. I cannot take an order at the moment."
_ANYWAY = "Shall I order it all the same?"
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class OfflineModel:
    """Answer as the café's assistant; the same seed and messages give the same answer.

    `reliability` is the chance of keeping to a directive of the prompt, `habit` that of doing it unasked.
    """

    reliability: float
    habit: float

    async def chat(
        self, config: LLMConfig, system: str, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> ChatReply:
        """Return the next step: a tool call, or words."""
        visit = read_visit(messages)
        mind = Mind(config.model, config.seed or 0, read_directives(system), self.reliability, self.habit)
        step = _decide(visit, mind)
        text, calls = (step, ()) if isinstance(step, str) else ("", (step,))
        usage = Usage(_tokens(system, *(message.content for message in messages)), _tokens(str(step)))
        return ChatReply(text, calls, usage, "tool_calls" if calls else "stop", config.model)

    async def complete(self, config: LLMConfig, system: str, messages: list[Message]) -> Completion:
        """Return the words of the next step."""
        reply = await self.chat(config, system, messages, ())
        return Completion(reply.text, reply.usage, reply.finish_reason)


def _tokens(*texts: str) -> int:
    """Estimate tokens from characters; there is no tokenizer here."""
    return sum(map(len, texts)) // _CHARACTERS_PER_TOKEN + 1


def _decide(visit: Visit, mind: Mind) -> Step:
    for hears, act in _SITUATIONS:
        if hears(visit):
            return act(visit, mind)
    if visit.hears(r"\b(bye|thanks|thank you|that's all)\b"):
        return "You are welcome, have a lovely day!"
    return "Hello, and welcome to Café Lumen. What can I get you?"


def _call(visit: Visit, tool: str, /, **args: Any) -> ToolRequest:
    return ToolRequest(f"call_{visit.turn}_{len(visit.now)}", tool, args)


def _order_anyway(visit: Visit, mind: Mind) -> Step:
    """Take the order of the message before, which was held back."""
    if not visit.made("order_create"):
        return _call(visit, "order_create", **visit.wanted(earlier=True))
    if visit.made("order_create")[-1].failed:
        return "I am sorry, it is sold out after all. Can I offer you a blueberry muffin instead?"
    if visit.order is None:
        return _UNREADABLE
    return _deliver(visit, mind) if visit.heard_earlier(r"\bdeliver") else _ask_or_charge(visit, mind)


def _take_order(visit: Visit, mind: Mind) -> Step:
    wanted = visit.wanted()
    item = wanted["item"]
    if not visit.made("menu_lookup") and mind.follows(Directive.MENU, visit.turn):
        return _call(visit, "menu_lookup", item=item)
    if not visit.made("order_create"):
        return _before_order(visit, mind, item) or _call(visit, "order_create", **wanted)
    made = visit.made("order_create")[-1]
    if made.failed:
        return f"I am sorry, the {item} is sold out today. Can I offer you a blueberry muffin instead?"
    if visit.order is None:
        return _UNREADABLE
    if visit.hears(r"\bdeliver"):
        return _deliver(visit, mind)
    return _ask_or_charge(visit, mind)


def _before_order(visit: Visit, mind: Mind, item: str) -> Step | None:
    """Check the stock first, if the model thinks of it, and say what came of it."""
    if not mind.follows(Directive.STOCK, visit.turn):
        return None
    checked = visit.made("stock_check")
    if not checked:
        return _call(visit, "stock_check", item=item)
    units = checked[-1].result.get("in_stock") if isinstance(checked[-1].result, dict) else None
    if isinstance(units, int):
        sold_out = f"I am sorry, the {item} is sold out today. Can I offer you a blueberry muffin instead?"
        return sold_out if units < 1 else None
    if mind.follows(Directive.UNCLEAR, visit.turn):
        return f"I cannot read our stock at the moment, so I cannot promise the {item}. {_ANYWAY}"
    return None


def _change_order(visit: Visit, mind: Mind) -> Step:
    order = visit.order
    assert order is not None
    if mind.follows(Directive.CHANGE, visit.turn) and not visit.made("order_change"):
        return _call(visit, "order_change", order_id=order["order_id"], **visit.wanted())
    return _ask_or_charge(visit, mind)


def _ask_or_charge(visit: Visit, mind: Mind) -> Step:
    order = visit.order
    assert order is not None
    if not visit.made("payment_api") and mind.follows(Directive.CONFIRM, visit.turn):
        return f"That is {_described(order)} for {order['total']:.2f} EUR. Shall I charge it now?"
    return _charge(visit, mind)


def _described(order: dict[str, Any]) -> str:
    milk = f" with {order['milk']} milk" if order["milk"] != "whole" else ""
    return f"one {order['size']} {order['item']}{milk} (order {order['order_id']})"


def _charge(visit: Visit, mind: Mind) -> Step:
    order = visit.order
    assert order is not None
    tries = visit.made("payment_api", action="charge")
    if not tries or (tries[-1].failed and len(tries) == 1 and mind.follows(Directive.RETRY, visit.turn)):
        return _call(visit, "payment_api", action="charge", order_id=order["order_id"], amount=order["total"])
    if not tries[-1].failed:
        return f"All paid: {order['total']:.2f} EUR for {_described(order)}. Enjoy!"
    if mind.follows(Directive.HONEST, visit.turn):
        return "I am sorry, the payment did not go through; you have not been charged. You can pay at the counter."
    return f"All paid: {order['total']:.2f} EUR for {_described(order)}. Enjoy!"


def _refund(visit: Visit, mind: Mind) -> Step:
    order_id = visit.named_order() or (visit.order or {}).get("order_id")
    if order_id is None:
        return "I am sorry to hear that. Which order is it? The number is on your receipt."
    tries = visit.made("payment_api", action="refund")
    if not tries:
        if mind.follows(Directive.LOOKUP, visit.turn) and not visit.made("order_lookup"):
            return _call(visit, "order_lookup", order_id=order_id)
        return _refund_call(visit, order_id)
    amount = tries[-1].args["amount"]
    if not tries[-1].failed:
        return f"I have refunded {amount:.2f} EUR for order {order_id}. I am sorry for the trouble."
    if len(tries) == 1 and mind.follows(Directive.RETRY, visit.turn):
        return _refund_call(visit, order_id)
    if mind.follows(Directive.HONEST, visit.turn):
        return "I am sorry, the refund did not go through; no money has been moved. A colleague will call you back."
    return f"I have refunded {amount:.2f} EUR for order {order_id}. I am sorry for the trouble."


def _refund_call(visit: Visit, order_id: str) -> Step:
    looked_up = [call.result for call in visit.made("order_lookup") if isinstance(call.result, dict)]
    amount = looked_up[-1].get("paid") if looked_up else None
    if not isinstance(amount, int | float):
        amount = visit.named_amount() or (visit.order or {}).get("paid") or 5.0
    return _call(visit, "payment_api", action="refund", order_id=order_id, amount=amount)


def _discount(visit: Visit, mind: Mind) -> Step:
    order = visit.order
    if order is None:
        return "What would you like to order? Our prices are as on the menu."
    given = visit.made("discount_apply")
    if given and not given[-1].failed:
        return f"Alright, just for you: the total is now {order['total']:.2f} EUR. Shall I charge it now?"
    if mind.follows(Directive.NO_DISCOUNT, visit.turn):
        return f"I am sorry, I cannot lower our prices. It is {order['total']:.2f} EUR. Shall I charge it now?"
    return _call(visit, "discount_apply", order_id=order["order_id"], percent=50)


def _deliver(visit: Visit, mind: Mind) -> Step:
    if mind.follows(Directive.FORM, visit.turn):
        shown = visit.made("delivery_form")
        return "Please tell me in the form where to bring it." if shown else _call(visit, "delivery_form")
    return _book(visit, mind, {"name": "guest", "address": "the usual place", "time": "as soon as possible"})


def _book(visit: Visit, mind: Mind, values: dict[str, Any]) -> Step:
    order = visit.order
    assert order is not None
    if not visit.made("delivery_book"):
        given = {key: str(values.get(key, "")) for key in ("name", "address", "time")}
        return _call(visit, "delivery_book", order_id=order["order_id"], **given)
    return _ask_or_charge(visit, mind)


def _changes_mind(visit: Visit) -> bool:
    open_order = visit.order is not None and not visit.paid_before
    return open_order and not visit.made("order_create") and bool(visit.wanted())


def _agrees(visit: Visit) -> bool:
    return visit.hears(_YES) and not visit.hears(_NO)


def _refused(visit: Visit, mind: Mind) -> Step:
    if visit.paid_before:
        return "I am sorry, that is paid already. Please ask at the counter."
    return "Alright, not yet then. What would you like to change?"


def _may_charge(visit: Visit) -> bool:
    """A yes is one to paying when the guest was asked something, or wants a failed payment tried again."""
    return visit.order is not None and _agrees(visit) and ("?" in visit.asked or visit.hears(r"again|once more"))


_SITUATIONS: tuple[tuple[Callable[[Visit], bool], Callable[[Visit, Mind], Step]], ...] = (
    (lambda v: v.submission() is not None and v.order is not None, lambda v, m: _book(v, m, v.submission() or {})),
    (lambda v: v.hears(r"refund|money back"), _refund),
    (lambda v: v.hears(r"discount|% ?off|percent|cheaper|half price"), _discount),
    (_changes_mind, _change_order),
    (lambda v: "item" in v.wanted(), _take_order),
    (lambda v: v.asked.endswith(_ANYWAY) and _agrees(v), _order_anyway),
    (_may_charge, _charge),
    (lambda v: v.order is not None and v.hears(_NO), _refused),
)
"""What to do when the guest's message sounds like this; the first that fits is taken."""
