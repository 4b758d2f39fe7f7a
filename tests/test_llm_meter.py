"""What a client takes is counted, and never made up."""

from __future__ import annotations

import pytest

from fakes import run
from sonar_eval import ConfigError, LLMConfig, Message, ScriptedClient
from sonar_eval.errors import LLMAnswerError, LLMTransportError
from sonar_eval.llm import ChatReply, Meter, Usage, make_client, make_config, make_price, price_usage
from sonar_eval.usage import Price, Spend, add_up, total_cost

HELLO = [Message("user", "hi")]
PRICE = Price(2.0, 8.0, cached_input=0.5, cache_write=4.0)
SETTINGS = {"provider": "openai", "model": "m-1", "base_url": "http://127.0.0.1:9/v1"}


class PlainClient:
    """Answer with a plain text, as clients of other people do."""

    async def complete(self, config, system, messages):
        return "hi"


def reply(prompt, completion, **more):
    return ChatReply("hi", usage=Usage(prompt, completion, **more))


def metered(client, *configs):
    meter = Meter(client)
    for config in configs:
        run(meter.complete(config, "", HELLO))
    return meter.spent


def test_calls_and_tokens_and_their_cost_are_added_up():
    client = ScriptedClient([reply(100, 10), reply(200, 20, cached_tokens=100, cache_write_tokens=50)])
    spent = metered(client, LLMConfig("a", price=PRICE), LLMConfig("b", price=PRICE))
    fresh, cached, written, output = 150, 100, 50, 30
    cost = (fresh * 2 + cached * 0.5 + written * 4 + output * 8) / 1e6
    assert spent == Spend(2, 300, 30, pytest.approx(cost), 100)


def test_calls_that_tell_leave_a_known_part_of_a_cost_that_is_not_known():
    client = ScriptedClient([reply(100, 10), reply(None, None), reply(100, 10)])
    spent = metered(client, *[LLMConfig("a", price=PRICE)] * 3)
    assert (spent.cost_usd, spent.known_usd) == (None, pytest.approx(2 * (100 * 2 + 10 * 8) / 1e6))
    more = spent + Spend(1, 5, 5, 1.0)
    assert (more.cost_usd, more.known_usd) == (None, pytest.approx(1 + spent.known_usd))
    assert metered(client, LLMConfig("b")).known_usd == 0


def test_what_was_never_used_took_nothing():
    assert Meter(PlainClient()).spent is None


def test_of_a_plain_text_nothing_is_known_and_no_0_is_made_up():
    assert metered(PlainClient(), LLMConfig("a", price=PRICE)) == Spend(1, None, None, None)


def test_one_answer_without_a_count_leaves_the_sum_unknown():
    spent = metered(ScriptedClient([reply(100, 10), "hi"]), *[LLMConfig("a", price=PRICE)] * 2)
    assert spent == Spend(2, None, None, None)


def test_without_a_price_tokens_are_known_and_their_cost_is_not():
    assert metered(ScriptedClient([reply(100, 10)]), LLMConfig("a")) == Spend(1, 100, 10, None)


def test_what_is_free_costs_nothing_however_much_it_was():
    assert metered(PlainClient(), LLMConfig("a", price=Price(0, 0))) == Spend(1, None, None, 0.0)


def test_an_answer_that_could_not_be_used_was_paid_for_all_the_same():
    refused = LLMAnswerError("refused")
    refused.usage = Usage(50, 5, calls=2)
    meter = Meter(ScriptedClient([refused]))
    with pytest.raises(LLMAnswerError):
        run(meter.complete(LLMConfig("a", price=PRICE), "", HELLO))
    assert meter.spent == Spend(2, 50, 5, pytest.approx(140 / 1e6))


def test_a_provider_that_was_not_reached_took_nothing():
    meter = Meter(ScriptedClient([LLMTransportError("down")]))
    with pytest.raises(LLMTransportError):
        run(meter.complete(LLMConfig("a"), "", HELLO))
    assert meter.spent is None


def test_spending_is_added_up_by_role_and_a_total_wants_to_know_every_role():
    first = {"bot": Spend(1, 10, 1, 0.1), "judge": Spend(1, 5, 5, 0.2)}
    second = {"bot": Spend(2, 20, 2, 0.3)}
    both = add_up([first, second])
    assert both == {"bot": Spend(3, 30, 3, pytest.approx(0.4)), "judge": Spend(1, 5, 5, 0.2)}
    assert total_cost(both) == pytest.approx(0.6)
    assert total_cost({**both, "simulator": Spend(1, 5, 5, None)}) is None
    assert total_cost({}) is None


def test_cached_and_written_tokens_default_to_the_price_of_input():
    usage = Usage(1_000_000, 0, cached_tokens=400_000, cache_write_tokens=100_000)
    assert price_usage(usage, Price(2.0, 8.0)).cost_usd == 2.0


@pytest.mark.parametrize("row", [None, {}, {"input": None, "output": None}])
def test_no_price_is_no_price(row):
    assert make_price({**SETTINGS, "price": row}) is None


def test_a_price_goes_into_the_config_of_its_model():
    row = {"input": 1, "output": 2.5, "cached_input": None, "cache_write": 3}
    assert make_config({**SETTINGS, "price": row}).price == Price(1, 2.5, None, 3)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"input": 1}, "both input and output, got input"),
        ({"input": 1, "output": 1, "per": "hour"}, "expected input, output, cached_input, cache_write"),
        ({"input": "1", "output": 1}, "input must be US dollars per million tokens, got '1'"),
        ({"input": 1, "output": -1}, "output must be"),
        ({"input": 1, "output": float("nan")}, "output must be"),
        ({"input": True, "output": 1}, "input must be"),
        (5, "expected input, output"),
    ],
)
def test_a_price_that_is_none_is_refused_with_its_model(row, told):
    with pytest.raises(ConfigError, match=f"model 'm-1': price: .*{told}"):
        make_price({**SETTINGS, "price": row})


def test_the_same_settings_share_a_client_and_others_do_not():
    client = make_client(SETTINGS)
    assert make_client({**SETTINGS, "temperature": 0.3, "model": "m-2"}) is client
    for other in ({"base_url": "http://127.0.0.1:8/v1"}, {"extra_body": {"a": 1}}, {"timeout_s": 3}):
        assert make_client({**SETTINGS, **other}) is not client


@pytest.mark.parametrize(("key", "value"), [("timeout_s", 0), ("timeout_s", "long"), ("max_retries", -1)])
def test_patience_that_is_none_is_refused(key, value):
    with pytest.raises(ConfigError, match=key):
        make_client({**SETTINGS, key: value})
