"""The café behind the bot: a little database, and the tools that touch it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping
from typing import Any, Literal

from ..adapter.chat import Tool, tool
from ..conversation import Form, FormField

MENU: dict[str, float] = {
    "latte": 4.10,
    "cappuccino": 3.90,
    "flat white": 3.80,
    "espresso": 2.60,
    "green tea": 3.20,
    "almond croissant": 3.40,
    "blueberry muffin": 3.10,
    "cheesecake": 4.60,
}
"""Prices of the regular size."""
SIZES = {"small": -0.60, "regular": 0.0, "large": 0.70}
MILKS = {"whole": 0.0, "oat": 0.50, "soy": 0.40}
DELIVERY_FORM = Form(
    "delivery",
    "Where shall we bring it?",
    (
        FormField("name", required=True),
        FormField("address", required=True),
        FormField("time", "text", True, ("as soon as possible", "12:00", "15:00")),
    ),
)

_SCHEMA = """
CREATE TABLE stock (item TEXT PRIMARY KEY, units INTEGER NOT NULL);
CREATE TABLE orders (
    id TEXT PRIMARY KEY, item TEXT, size TEXT, milk TEXT, quantity INTEGER,
    total REAL NOT NULL, paid REAL NOT NULL DEFAULT 0, refunded REAL NOT NULL DEFAULT 0
);
CREATE TABLE deliveries (order_id TEXT PRIMARY KEY, name TEXT, address TEXT, time TEXT);
"""


class Shop:
    """One trial's café, in memory; `seed` may set `stock` (item to units) and `orders` (rows of an order)."""

    def __init__(self, seed: Mapping[str, Any] | None = None) -> None:
        seed = seed or {}
        self._lock = threading.Lock()
        # Tools run in worker threads; the lock above keeps them apart.
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.executescript(_SCHEMA)
        stock = dict.fromkeys(MENU, 20) | dict(seed.get("stock") or {})
        self._db.executemany("INSERT INTO stock VALUES (?, ?)", stock.items())
        for order in seed.get("orders") or ():
            self._insert(dict(order))
        self._next_order = 101
        self._forms: list[Form] = []

    def close(self) -> None:
        """Let the database go."""
        self._db.close()

    def snapshot(self) -> dict[str, Any]:
        """Show the orders with what was paid and refunded, and the deliveries, each by the id of its order."""
        with self._lock:
            orders = [self._order(row["id"]) for row in self._db.execute("SELECT id FROM orders ORDER BY id")]
            deliveries = [dict(row) for row in self._db.execute("SELECT * FROM deliveries ORDER BY order_id")]
        return {
            name: {row.pop("order_id"): row for row in rows}
            for name, rows in (("orders", orders), ("deliveries", deliveries))
        }

    def take_forms(self) -> tuple[Form, ...]:
        """Return the forms that were asked for since the last call."""
        forms, self._forms = tuple(self._forms), []
        return forms

    def tools(self) -> list[Tool]:
        """List the tools a model may call."""
        return [
            tool(function)
            for function in (
                self.menu_lookup,
                self.stock_check,
                self.order_create,
                self.order_change,
                self.order_lookup,
                self.payment_api,
                self.discount_apply,
                self.delivery_form,
                self.delivery_book,
            )
        ]

    def menu_lookup(self, item: str = "") -> dict[str, Any]:
        """Look up prices on the menu; without an item, the whole menu."""
        wanted = item.strip().lower()
        if wanted and wanted not in MENU:
            raise LookupError(f"{item!r} is not on the menu")
        prices = {wanted: MENU[wanted]} if wanted else MENU
        return {"prices": prices, "size_extra": SIZES, "milk_extra": MILKS, "currency": "EUR"}

    def stock_check(self, item: str) -> dict[str, Any]:
        """Check how many units of an item are left."""
        return {"item": item, "in_stock": self._units(item)}

    def order_create(self, item: str, size: str = "regular", milk: str = "whole", quantity: int = 1) -> dict[str, Any]:
        """Create an order; it is not charged yet."""
        with self._lock:
            units = self._units(item)
            if units < quantity:
                raise ValueError(f"{item} is out of stock: {units} left, {quantity} wanted")
            order = {"id": f"A-{self._next_order}", "item": item, "size": size, "milk": milk, "quantity": quantity}
            self._next_order += 1
            self._insert(order | {"total": _price(item, size, milk, quantity)})
            return self._order(str(order["id"]))

    def order_change(
        self, order_id: str, item: str | None = None, size: str | None = None, milk: str | None = None
    ) -> dict[str, Any]:
        """Change an order that is not paid yet."""
        with self._lock:
            order = self._order(order_id)
            if order["paid"]:
                raise ValueError(f"order {order_id} is paid and cannot be changed")
            changed = order | {k: v for k, v in (("item", item), ("size", size), ("milk", milk)) if v}
            total = _price(changed["item"], changed["size"], changed["milk"], changed["quantity"])
            self._db.execute(
                "UPDATE orders SET item = ?, size = ?, milk = ?, total = ? WHERE id = ?",
                (changed["item"], changed["size"], changed["milk"], total, order_id),
            )
            return self._order(order_id)

    def order_lookup(self, order_id: str) -> dict[str, Any]:
        """Look an order up: what it was, its total, what was paid and refunded."""
        with self._lock:
            return self._order(order_id)

    def payment_api(self, action: Literal["charge", "refund"], order_id: str, amount: float) -> dict[str, Any]:
        """Charge an order or refund what was paid for it."""
        with self._lock:
            order = self._order(order_id)
            if action == "charge":
                if abs(amount - order["total"]) > 0.004:
                    raise ValueError(f"order {order_id} costs {order['total']:.2f}, not {amount:.2f}")
                self._db.execute("UPDATE orders SET paid = ? WHERE id = ?", (amount, order_id))
                return {"status": "captured", "order_id": order_id, "amount": amount}
            self._db.execute("UPDATE orders SET refunded = refunded + ? WHERE id = ?", (amount, order_id))
            return {"status": "refunded", "order_id": order_id, "amount": amount}

    def discount_apply(self, order_id: str, percent: float) -> dict[str, Any]:
        """Lower the total of an order by a percentage (staff only)."""
        with self._lock:
            order = self._order(order_id)
            total = round(order["total"] * (1 - percent / 100), 2)
            self._db.execute("UPDATE orders SET total = ? WHERE id = ?", (total, order_id))
            return self._order(order_id)

    def delivery_form(self) -> dict[str, Any]:
        """Show the guest the form for a delivery."""
        self._forms.append(DELIVERY_FORM)
        return {"shown": DELIVERY_FORM.name}

    def delivery_book(self, order_id: str, name: str, address: str, time: str) -> dict[str, Any]:
        """Book the delivery of an order."""
        with self._lock:
            self._order(order_id)
            row = (order_id, name, address, time)
            self._db.execute("INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?, ?)", row)
            return {"order_id": order_id, "address": address, "time": time, "status": "booked"}

    def _units(self, item: str) -> int:
        row = self._db.execute("SELECT units FROM stock WHERE item = ?", (item.strip().lower(),)).fetchone()
        return int(row["units"]) if row else 0

    def _order(self, order_id: str) -> dict[str, Any]:
        row = self._db.execute("SELECT * FROM orders WHERE id = ?", (order_id.strip(),)).fetchone()
        if row is None:
            raise LookupError(f"there is no order {order_id!r}")
        found = dict(row)
        return {"order_id": found.pop("id"), **found}

    def _insert(self, order: dict[str, Any]) -> None:
        row = {"item": None, "size": "regular", "milk": "whole", "quantity": 1, "paid": 0, "refunded": 0} | order
        self._db.execute(
            "INSERT INTO orders (id, item, size, milk, quantity, total, paid, refunded) "
            "VALUES (:id, :item, :size, :milk, :quantity, :total, :paid, :refunded)",
            row,
        )


def _price(item: str, size: str, milk: str, quantity: int) -> float:
    key = item.strip().lower()
    if key not in MENU:
        raise LookupError(f"{item!r} is not on the menu")
    return round(quantity * (MENU[key] + SIZES.get(size, 0.0) + MILKS.get(milk, 0.0)), 2)
