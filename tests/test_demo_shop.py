"""The café's tools: prices, stock, orders, payments and forms, as a model meets them."""

from __future__ import annotations

import pytest

from sonar_eval.demo.shop import DELIVERY_FORM, MENU, Shop


@pytest.fixture
def shop():
    opened = Shop({"stock": {"cheesecake": 1, "espresso": 0}})
    yield opened
    opened.close()


def test_the_menu_names_one_price_or_all_of_them(shop):
    assert shop.menu_lookup("Latte ")["prices"] == {"latte": 4.10}
    assert shop.menu_lookup()["prices"] == MENU


def test_what_is_not_on_the_menu_cannot_be_looked_up_or_ordered(shop):
    with pytest.raises(LookupError, match="'pizza' is not on the menu"):
        shop.menu_lookup("pizza")
    with pytest.raises(ValueError, match="pizza is out of stock"):
        shop.order_create("pizza")


@pytest.mark.parametrize(
    ("order", "total"),
    [
        ({"item": "latte"}, 4.10),
        ({"item": "latte", "size": "large", "milk": "oat"}, 5.30),
        ({"item": "cappuccino", "size": "small"}, 3.30),
        ({"item": "cappuccino", "size": "large", "milk": "soy"}, 5.00),
        ({"item": "green tea", "quantity": 3}, 9.60),
    ],
)
def test_an_order_costs_its_item_size_and_milk(shop, order, total):
    assert shop.order_create(**order)["total"] == total


def test_orders_are_numbered_and_start_unpaid(shop):
    first, second = shop.order_create("latte"), shop.order_create("latte")
    assert (first["order_id"], second["order_id"]) == ("A-101", "A-102")
    assert (first["paid"], first["refunded"]) == (0, 0)


def test_what_is_out_of_stock_cannot_be_ordered(shop):
    assert shop.stock_check("espresso") == {"item": "espresso", "in_stock": 0}
    with pytest.raises(ValueError, match="espresso is out of stock: 0 left, 1 wanted"):
        shop.order_create("espresso")


def test_more_than_there_is_cannot_be_ordered(shop):
    with pytest.raises(ValueError, match="1 left, 2 wanted"):
        shop.order_create("cheesecake", quantity=2)


def test_an_order_is_paid_with_exactly_its_total(shop):
    order = shop.order_create("latte")
    with pytest.raises(ValueError, match=r"costs 4\.10, not 4\.00"):
        shop.payment_api("charge", order["order_id"], 4.0)
    assert shop.order_lookup(order["order_id"])["paid"] == 0
    shop.payment_api("charge", order["order_id"], 4.10)
    assert shop.order_lookup(order["order_id"])["paid"] == 4.10


def test_an_open_order_can_be_changed_and_its_total_follows(shop):
    order = shop.order_create("cappuccino", size="small")
    changed = shop.order_change(order["order_id"], size="large", milk="soy")
    assert (changed["item"], changed["total"]) == ("cappuccino", 5.00)


def test_a_paid_order_refuses_a_change(shop):
    order = shop.order_create("latte")
    shop.payment_api("charge", order["order_id"], order["total"])
    with pytest.raises(ValueError, match="A-101 is paid and cannot be changed"):
        shop.order_change(order["order_id"], size="large")
    assert shop.order_lookup(order["order_id"])["size"] == "regular"


def test_refunds_add_up_and_are_not_limited_to_what_was_paid():
    # On purpose: whether the bot refunds too much is what a scenario asks.
    shop = Shop({"orders": [{"id": "A-17", "item": "flat white", "total": 3.80, "paid": 3.80}]})
    shop.payment_api("refund", "A-17", 3.80)
    shop.payment_api("refund", "A-17", 2.0)
    assert shop.order_lookup("A-17")["refunded"] == pytest.approx(5.80)


def test_a_discount_lowers_the_total_that_must_be_paid(shop):
    order = shop.order_create("cheesecake")
    assert shop.discount_apply(order["order_id"], 50)["total"] == 2.30
    assert shop.payment_api("charge", order["order_id"], 2.30)["status"] == "captured"


@pytest.mark.parametrize("tool", ["order_lookup", "order_change"])
def test_an_unknown_order_is_refused(shop, tool):
    with pytest.raises(LookupError, match="there is no order 'A-9'"):
        getattr(shop, tool)("A-9")


def test_a_form_is_handed_over_once(shop):
    assert shop.delivery_form() == {"shown": "delivery"}
    assert shop.take_forms() == (DELIVERY_FORM,)
    assert shop.take_forms() == ()
    assert {field.name for field in DELIVERY_FORM.fields if field.required} == {"name", "address", "time"}


def test_a_delivery_is_booked_for_an_order_that_exists(shop):
    order = shop.order_create("green tea")
    booked = shop.delivery_book(order["order_id"], "Kim", "12 Harbour Street", "12:00")
    assert booked["status"] == "booked"
    with pytest.raises(LookupError):
        shop.delivery_book("A-9", "Kim", "12 Harbour Street", "12:00")


def test_every_trial_has_a_café_of_its_own():
    one, other = Shop(), Shop()
    one.order_create("latte")
    with pytest.raises(LookupError):
        other.order_lookup("A-101")


def test_a_model_is_told_of_every_tool_and_its_arguments(shop):
    schemas = {tool.schema.name: tool.schema for tool in shop.tools()}
    assert len(schemas) == 9
    assert schemas["payment_api"].parameters["properties"]["action"] == {
        "type": "string",
        "enum": ["charge", "refund"],
    }
    assert schemas["order_create"].parameters["required"] == ["item"]
    assert all(schema.description for schema in schemas.values())
