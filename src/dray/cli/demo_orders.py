"""The stream of the demo: orders of a web shop, as JSON, with busy and quiet moments."""

from __future__ import annotations

import json
import math
from array import array
from random import Random
from typing import Final

from dray.records import BytesColumn, Columns, encode

TOPIC: Final = "orders"
PARTITIONS: Final = 4

_PRODUCTS: Final = (
    ("tea", 4.5),
    ("coffee", 9.9),
    ("cup", 7.0),
    ("kettle", 39.0),
    ("grinder", 89.0),
    ("book", 19.5),
)
_COUNTRIES: Final = ("DE", "FR", "IT", "JP", "US", "BR")
_CUSTOMERS: Final = 500


def rate_at(moment: float, usual: int) -> int:
    """Records per second: a slow wave, and a rush every twenty seconds."""
    wave = 1.0 + 0.4 * math.sin(moment / 6.0)
    rush = 2.5 if moment % 20.0 > 17.0 else 1.0
    return round(usual * wave * rush)


def make_orders(count: int, random: Random, now_ms: int) -> bytes:
    """A batch of so many orders. The header says who wrote it, as tracing headers do."""
    keys, values = [], []
    for _ in range(count):
        # Few customers order a lot.
        customer = int(_CUSTOMERS * random.random() ** 3)
        product, price = random.choice(_PRODUCTS)
        quantity = random.choice((1, 1, 1, 2, 3))
        keys.append(f"customer-{customer:03d}".encode())
        order = {
            "customer": customer,
            "country": _COUNTRIES[customer % len(_COUNTRIES)],
            "product": product,
            "quantity": quantity,
            "amount": round(price * quantity, 2),
        }
        values.append(json.dumps(order, separators=(",", ":")).encode())
    return bytes(encode(_columns(keys, values, now_ms), batch_bytes=1 << 24))


def _columns(keys: list[bytes], values: list[bytes], now_ms: int) -> Columns:
    count = len(keys)
    none_each = array("i", [-1] * count).tobytes()
    return Columns(
        row_count=count,
        header_count=count,
        offsets=array("q", range(count)).tobytes(),
        timestamps=array("q", [now_ms] * count).tobytes(),
        producer_ids=array("q", [-1] * count).tobytes(),
        producer_epochs=none_each,
        base_sequences=none_each,
        attributes=bytes(4 * count),
        keys=_bytes_column(keys),
        values=_bytes_column(values),
        headers=array("i", range(count + 1)).tobytes(),
        header_keys=_bytes_column([b"source"] * count),
        header_values=_bytes_column([b"web-shop"] * count),
    )


def _bytes_column(items: list[bytes]) -> BytesColumn:
    offsets = array("i", [0])
    for item in items:
        offsets.append(offsets[-1] + len(item))
    return BytesColumn(offsets.tobytes(), b"".join(items), None)
