"""What a person does who has never seen Dray: from `drayd up` in an empty directory to a record in the log
and in the table, a group that reads again, and the cluster's health. In one browser, by what pages say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Page, expect
from tests.services.browser import new_context, picture, running_browser
from tests.services.console import BrokerWithConsole
from tests.services.local_compactor import LocalCompactor
from tests.services.marks import longer
from tests.services.target import ON_CLUSTER

pytestmark = pytest.mark.skipif(ON_CLUSTER, reason="it begins with drayd up")

ORDERS = 300
EAGER = {"DRAY_COMPACTION__WAL_MAX_AGE": "1s", "DRAY_COMPACTION__INTERVAL": "1s"}


class NewcomersCluster(BrokerWithConsole):
    """`drayd up`. Its own compactor needs Spark, which takes its time; another one does the same without."""

    def __init__(self, directory: Path, *, spark: bool) -> None:
        super().__init__(directory)
        self.settings |= EAGER | {"DRAY_COMPACTION__ENABLED": str(spark).lower()}

    @property
    def printed(self) -> str:
        """The console's address, where a person finds it."""
        found = [json.loads(line) for line in self.log_path.read_text().splitlines() if line.startswith("{")]
        return str(next(line["address"] for line in found if line["event"] == "console is serving"))


@pytest.fixture(params=["a compactor without Spark", longer("its own compactor")])
def up(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewcomersCluster]:
    spark = request.param == "its own compactor"
    with NewcomersCluster(tmp_path / "up", spark=spark) as process:
        if spark:
            yield process
            return
        with LocalCompactor(tmp_path / "compactor", process):
            yield process


@pytest.fixture
def page() -> Iterator[Page]:
    with running_browser() as browser:
        context = new_context(browser, viewport={"width": 1280, "height": 820})
        yield context.new_page()
        context.close()


def orders(bootstrap: str) -> None:
    """A program of theirs, which knows nothing of Dray."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(ORDERS):
        order = {"order": 2**60 + number, "state": "paid" if number % 2 else "new"}
        producer.produce("orders", key=f"customer-{number}", value=json.dumps(order))
    assert producer.flush(60) == 0


def read_all(bootstrap: str) -> None:
    """And one that reads them all, and stops."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    left = ORDERS
    while left:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        left -= 1
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.timeout(600)
def test_a_newcomer_finds_the_way(page: Page, up: NewcomersCluster) -> None:
    page.goto(up.printed)
    expect(
        page.get_by_role("heading", name=re.compile("All is well|It works, but look below"))
    ).to_be_visible()
    picture(page, "newcomer-first")
    page.get_by_role("link", name="Topics", exact=True).click()
    expect(page.get_by_text("There are no topics yet")).to_be_visible()

    orders(up.bootstrap)
    page.reload()
    page.get_by_role("link", name="orders", exact=True).click()

    # By its key, into the log.
    page.locator("select[name=start]").select_option("oldest")
    page.get_by_label("Search").fill("customer-217")
    page.locator("select[name=where]").select_option("key")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("[data-tail-status]")).to_contain_text(f"1 match, {ORDERS} of {ORDERS} offsets")
    page.locator("#records tbody a").click()
    expect(page.locator(".subhead:has(#key-title) + pre")).to_have_text("customer-217")
    expect(page.locator(".subhead:has(#value-title) + pre")).to_contain_text(str(2**60 + 217))

    # The same record in the table, once it was compacted.
    row = page.get_by_role("link", name="show the row")
    for _ in range(300):
        if row.count():
            break
        page.wait_for_timeout(1000)
        page.reload()
    picture(page, "newcomer-record")
    row.click()
    cells = page.locator("table.result tbody tr")
    expect(cells).to_have_count(1)
    expect(cells).to_contain_text("customer-217")
    expect(cells).to_contain_text(str(2**60 + 217))
    cells.get_by_role("link", name="record").click()
    expect(page.locator(".subhead:has(#key-title) + pre")).to_have_text("customer-217")

    # A group reads again, and it is seen before what that means.
    read_all(up.bootstrap)
    page.get_by_role("link", name="Groups", exact=True).click()
    page.get_by_role("link", name="billing").click()
    expect(page.locator("#group .figure", has_text="Lag")).to_contain_text("0")
    page.get_by_role("link", name="Reset offsets").click()
    page.locator("select[name=to]").select_option("earliest")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".figure", has_text="Read again")).to_contain_text(str(ORDERS))
    picture(page, "newcomer-reset")
    assert up.view("/groups/billing")["lag"] == 0, "a preview changes nothing"
    page.get_by_label(re.compile("Type billing")).fill("billing")
    page.get_by_role("button", name=re.compile("^Reset ")).click()
    expect(page.locator("#group .figure", has_text="Lag")).to_contain_text(str(ORDERS))

    # And how it is.
    page.get_by_role("link", name="Cluster", exact=True).click()
    health = page.locator(".health")
    expect(health.get_by_role("heading")).to_have_text("All is well")
    for what in ("Brokers", "Partitions", "Object store", "Metadata store", "Compactors"):
        expect(health.locator("div.good", has_text=what)).to_be_visible()
    picture(page, "newcomer-health")
