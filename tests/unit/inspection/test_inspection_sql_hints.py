"""The right spelling of a query, and the topic that was meant."""

from __future__ import annotations

import duckdb
import pytest

from dray.inspection.sql.hints import nearest, spelled
from dray.tables.iceberg.duckdb_views import parses

TOPICS = ["orders", "my-orders", "my-orders-2", "shop.orders", "Orders"]


@pytest.mark.parametrize(
    ("statement", "better"),
    [
        ("select offset from orders", 'offset has to stand in double quotes: select "offset" from orders'),
        (
            "select max(offset)\nfrom my-orders where key = 'offset' limit 3 offset 1",
            'offset has to stand in double quotes: select max("offset") from "my-orders" where key = '
            "'offset' limit 3 offset 1",
        ),
        ("from my-orders", 'my-orders has to stand in double quotes: from "my-orders"'),
        ("from my-orders-2", 'my-orders-2 has to stand in double quotes: from "my-orders-2"'),
        ("from shop.orders", 'shop.orders has to stand in double quotes: from "shop.orders"'),
        ("from orders$latest", 'orders$latest has to stand in double quotes: from "orders$latest"'),
        ('from "my-orders"', None),
        ("select 'my-orders' frm orders", None),
        ("selec 1", None),
        ("select 1 offset", 'offset has to stand in double quotes: select 1 "offset"'),
    ],
)
def test_the_spelling_that_parses(statement: str, better: str | None) -> None:
    with duckdb.connect() as connection:
        assert spelled(statement, TOPICS, lambda text: parses(text, connection)) == better


def test_a_query_that_is_too_long_to_be_shown() -> None:
    with duckdb.connect() as connection:
        long = f"select offset, '{'x' * 400}' from orders"
        found = spelled(long, TOPICS, lambda text: parses(text, connection))
    assert found == 'offset has to stand in double quotes: "offset"'


def test_the_topics_that_may_be_meant() -> None:
    assert nearest("ordres", TOPICS) == 'there is no topic ordres; near it: orders, "my-orders", Orders'
    assert nearest("x", ["a", "b-c"]) == 'there is no topic x; topics: a, "b-c"'
    assert nearest("x", []) == "there is no topic x, and no other yet"
    assert nearest("x", [f"t{n:03}" for n in range(30)]).endswith("t019, ...")
