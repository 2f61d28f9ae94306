"""The console in a real browser: what people do there, with the keyboard too, in both themes.

Pictures of every page are written to DRAY_TEST_SCREENSHOTS, where that names a directory: look at them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, Route, expect
from tests.services.browser import new_context, picture, running_browser
from tests.services.console import HOSTILE, LONG_NAME, ORDERS, BrokerWithConsole, commit, fill, link
from tests.services.marks import longer
from tests.services.target import ON_CLUSTER

pytestmark = pytest.mark.skipif(ON_CLUSTER, reason="the console runs beside one broker here")

PAGES = {
    "cluster": "/",
    "topics": "/topics",
    "topics-none": "/topics?filter=nothing-like-it",
    "records": "/topics/orders",
    "search": "/topics/orders?start=oldest&text=customer.id+%3D+17&way=json&where=value",
    "records-empty": "/topics/empty",
    "records-hostile": "/topics/hostile",
    "map": "/topics/orders/map",
    "topic-groups": "/topics/orders/groups",
    "settings": "/topics/orders/settings",
    "settings-long-name": f"/topics/{LONG_NAME}/settings",
    "record": "/topics/orders/0/5",
    "record-hostile": "/topics/hostile/0/1",
    "record-json": "/topics/hostile/0/4",
    "record-bytes": "/topics/hostile/0/6",
    "stores": "/stores",
    "groups": "/groups",
    "group": "/groups/billing",
    "reset": "/groups/billing/reset?to=earliest",
    "reset-unsaid": "/groups/billing/reset",
    "new-topic": "/new-topic",
    "link": "/topics/payments/link",
    "failure": "/topics/none",
}

IN_THE_DARK = ("cluster", "records", "search", "map", "settings", "record-json", "group", "reset", "failure")
"""Those that `make test` has time for: the others have the same parts, and their colors."""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerWithConsole]:
    with BrokerWithConsole(tmp_path_factory.mktemp("up")) as process:
        fill(process.bootstrap)
        link(process, "payments")
        yield process


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser, up: BrokerWithConsole) -> Iterator[Page]:
    """A page whose every complaint fails the test."""
    context = new_context(browser, base_url=up.console, viewport={"width": 1280, "height": 820})
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    context.close()
    assert [each for each in complaints if not re.search(r"status of (404|409)", each)] == []


def new_topic(up: BrokerWithConsole, page: Page, name: str, partitions: int = 1) -> None:
    page.goto("/topics")
    page.get_by_role("link", name="New topic").click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Partitions").fill(str(partitions))
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()


def test_from_the_cluster_to_a_record_by_its_key(page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name="Topics", exact=True).click()
    page.get_by_label("Filter topics by name").fill("ord")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="orders", exact=True).click()
    page.locator("select[name=start]").select_option("oldest")
    page.get_by_label("Search").fill("customer-17")
    page.locator("select[name=where]").select_option("key")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("[data-tail-status]")).to_contain_text("15 matches, 600 of 600 offsets looked at")
    page.locator("#records tbody a").first.click()
    expect(page.locator(".subhead:has(#key-title) + pre")).to_have_text("customer-17")
    expect(page.locator(".subhead:has(#value-title) + pre")).to_contain_text('"order": 9007199254741')
    # A small append: in the metadata store until it is packed into an object.
    expect(
        page.get_by_text(re.compile("In the metadata store, with its commit|In a WAL object"))
    ).to_be_visible()


def test_a_search_that_is_not_done_goes_on(page: Page) -> None:
    page.goto("/topics/orders?start=oldest&count=100")
    seen: set[str] = set()
    while True:
        seen |= {link.get_attribute("href") or "" for link in page.locator("#records tbody a").all()}
        more = page.get_by_role("link", name="Next records")
        if not more.count():
            break
        more.click()
        page.wait_for_load_state()
    assert len(seen) == ORDERS


def test_live_records_come_all_of_them(page: Page, up: BrokerWithConsole) -> None:
    new_topic(up, page, "live", 3)
    page.get_by_role("button", name="Live").click()
    expect(page.locator("[data-tail-status]")).to_have_text("Waiting for records…")
    producer = Producer({"bootstrap.servers": up.bootstrap})
    for number in range(500):
        producer.produce("live", partition=number % 3, key=str(number), value="<i>x</i>")
    producer.flush()
    expect(page.locator("[data-tail-status]")).to_have_text("500 received")
    page.get_by_role("button", name="Live").click()
    expect(page.locator("[data-tail-status]")).to_have_text("Paused after 500")
    for number in range(500, 2200):
        producer.produce("live", partition=number % 3, key=str(number), value="x")
    producer.flush()
    page.get_by_role("button", name="Live").click()
    expect(page.locator("[data-tail-status]")).to_have_text(
        "2\u202f200 received, the newest 1\u202f000 shown"
    )
    keys = page.locator("#records tbody .key").all_inner_texts()
    assert len(set(keys)) == 1000, "none is there twice"


def test_a_live_view_waits_for_records_only_when_it_will_miss_none(page: Page, up: BrokerWithConsole) -> None:
    """What is said is what people rely on: a record that is written once it waits is shown."""
    new_topic(up, page, "live-from-here-on")
    status = page.locator("[data-tail-status]")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/api/topics/live-from-here-on/tail*", hold)
    with page.expect_request("**/api/topics/live-from-here-on/tail*"):
        page.get_by_role("button", name="Live").click()
    expect(status).to_have_text("Connecting…")
    producer = Producer({"bootstrap.servers": up.bootstrap})
    producer.produce("live-from-here-on", "before")
    producer.flush()
    assert status.inner_text() == "Connecting…"
    while not held:
        page.wait_for_timeout(20)  # Playwright hands over what came while it is asked
    [request] = held
    request.continue_()
    expect(status).to_have_text("Waiting for records…")
    producer.produce("live-from-here-on", "after")
    producer.flush()
    expect(status).to_have_text("1 received")
    expect(page.locator("#records tbody .value").first).to_have_text("after")


def test_what_came_between_the_page_and_the_live_view_is_told(page: Page, up: BrokerWithConsole) -> None:
    new_topic(up, page, "between")
    producer = Producer({"bootstrap.servers": up.bootstrap})
    producer.produce("between", value="on the page")
    assert producer.flush(60) == 0
    page.reload()
    expect(page.locator("#records tbody .value")).to_have_text("on the page")
    for value in ("between", "between, too"):
        producer.produce("between", value=value)
    assert producer.flush(60) == 0
    page.get_by_role("button", name="Live").click()
    expect(page.locator("#records tbody tr").first).to_have_text(
        "2 written before the live view began, and not shown"
    )


def test_a_live_view_with_a_search_shows_only_what_matches(page: Page, up: BrokerWithConsole) -> None:
    page.goto("/topics/payments?text=needle")
    page.get_by_role("button", name="Live").click()
    expect(page.locator("[data-tail-status]")).to_have_text("Waiting for records…")
    producer = Producer({"bootstrap.servers": up.bootstrap})
    for value in ("hay", "a needle", "hay", "needles"):
        producer.produce("payments", partition=1, value=value)
    producer.flush()
    expect(page.locator("[data-tail-status]")).to_have_text("2 received")
    assert page.locator("#records tbody .value").all_inner_texts()[:2] == ["needles", "a needle"]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_values_do_nothing(page: Page, number: int) -> None:
    page.goto(f"/topics/hostile/0/{number}")
    expect(page.get_by_role("heading", name=f"Offset {number}")).to_be_visible()
    page.goto("/topics/hostile")
    assert page.evaluate("window.hostile") is None


def test_a_large_value_is_saved_whole(page: Page) -> None:
    page.goto(f"/topics/hostile/0/{len(HOSTILE) - 1}")
    expect(page.get_by_text("Only the beginning is shown")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Save").last.click()
    assert Path(download.value.path()).read_bytes() == HOSTILE[-1]


def test_a_record_is_produced(page: Page, up: BrokerWithConsole) -> None:
    new_topic(up, page, "made-by-hand")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog", name="Produce a record")
    dialog.get_by_label("Key", exact=True).fill("k")
    dialog.get_by_label("no key").uncheck()
    dialog.get_by_label("Value").fill('{"n": 9223372036854775807}')
    dialog.get_by_role("button", name="Produce").click()
    expect(page.locator(".subhead:has(#value-title) + pre")).to_contain_text("9223372036854775807")
    expect(page.locator(".subhead:has(#key-title) + pre")).to_have_text("k")


def test_a_setting_is_changed_and_goes_back(page: Page, up: BrokerWithConsole) -> None:
    new_topic(up, page, "changed-by-hand")
    page.get_by_role("link", name="Settings").click()
    row = page.locator("tr", has=page.get_by_text("retention.ms", exact=True))
    page.get_by_role("button", name="Change retention.ms", exact=True).click()
    page.get_by_role("dialog", name="retention.ms", exact=True).get_by_label("New value").fill("3600000")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(row).to_contain_text("3600000")
    expect(row).to_contain_text("topic")
    page.get_by_role("button", name="Change retention.ms", exact=True).click()
    page.get_by_role("button", name="Back to the default").click()
    expect(row).to_contain_text("default")


def test_a_topic_is_deleted_only_by_its_name(page: Page, up: BrokerWithConsole) -> None:
    new_topic(up, page, "to-be-deleted")
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Delete this topic").click()
    button = page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True)
    expect(button).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill("to-be-delete")
    expect(button).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill("to-be-deleted")
    button.click()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    assert page.goto("/topics/to-be-deleted").status == 404  # type: ignore[union-attr]


def test_what_the_cluster_refuses_is_said(page: Page) -> None:
    page.goto("/new-topic")
    page.get_by_label("Name").fill("orders")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="The cluster refused")).to_be_visible()
    expect(page.get_by_text("TOPIC_ALREADY_EXISTS")).to_be_visible()


def test_a_group_is_reset_as_its_preview_showed(page: Page, up: BrokerWithConsole) -> None:
    commit(up.bootstrap, "to-be-reset", {("orders", number): 100 for number in range(4)})
    page.goto("/groups/to-be-reset")
    page.get_by_role("link", name="Reset offsets").click()
    page.locator("select[name=to]").select_option("shift")
    page.get_by_label("Records").fill("-30")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("row", name=re.compile("orders 2"))).to_contain_text("70")
    assert up.view("/groups/to-be-reset")["lag"] == 200, "a preview changes nothing"
    button = page.get_by_role("button", name="Reset 4 partitions")
    expect(button).to_be_disabled()
    page.get_by_label(re.compile("Type to-be-reset")).fill("to-be-reset")
    button.click()
    expect(page.get_by_role("heading", name="to-be-reset")).to_be_visible()
    assert up.view("/groups/to-be-reset")["lag"] == 320


def test_a_group_with_a_strange_name_is_reached(page: Page) -> None:
    page.goto("/groups")
    page.get_by_role("link", name="warehouse/eu <1>").click()
    expect(page.get_by_role("heading", name="warehouse/eu <1>")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="warehouse/eu <1>")).to_be_visible()


def test_with_the_keyboard_alone(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    for key in ("g", "t"):
        page.keyboard.press(key)
    page.wait_for_url("**/topics")  # and until its scripts have run
    page.keyboard.press("/")
    expect(page.get_by_label("Filter topics by name")).to_be_focused()
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics?filter=orders")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/orders")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


def test_numbers_stay_fresh(page: Page, up: BrokerWithConsole) -> None:
    page.goto("/groups/billing")
    before = page.locator("#group .figure dd").first.inner_text()
    producer = Producer({"bootstrap.servers": up.bootstrap})
    producer.produce("orders", partition=0, value="one more")
    producer.flush()
    expect(page.locator("#group .figure dd").first).not_to_have_text(before)


def test_theme_and_times_are_remembered(page: Page) -> None:
    page.goto("/topics/orders/0/5")
    utc = page.locator("time").first.inner_text()
    page.get_by_role("button", name="UTC").click()
    expect(page.get_by_role("button", name="Local time")).to_be_visible()
    page.get_by_role("button", name="Light or dark").click()
    page.goto("/topics/orders/0/5")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.get_by_role("button", name="Local time")).to_be_visible()
    page.get_by_role("button", name="Local time").click()
    expect(page.locator("time").first).to_have_text(utc)


def test_the_map_leads_to_records_and_groups(page: Page) -> None:
    page.goto("/topics/orders/map")
    page.get_by_text("As a table").click()
    expect(page.get_by_role("row", name=re.compile("^0 0 0 15"))).to_be_visible()
    page.locator("#map svg a").first.click()
    expect(page.get_by_role("heading", name="Offset 0")).to_be_visible()


def test_a_topic_on_its_way_here_is_found_from_the_first_page(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".health", has_text="Links")).to_contain_text("the last switch went back")
    row = page.get_by_role("row", name=re.compile("payments"))
    expect(row).to_contain_text("mirroring")
    row.get_by_role("link", name="payments").click()
    expect(page.get_by_role("heading", name="Mirroring")).to_be_visible()
    # This console's config names no such cluster, and the page says what to add.
    expect(page.get_by_text("the config names no upstream 'old'").first).to_be_visible()
    page.get_by_role("link", name="Records", exact=True).click()
    page.get_by_role("link", name="mirroring from old").click()
    expect(page.get_by_role("heading", name="Mirroring")).to_be_visible()


@pytest.mark.parametrize(
    ("name", "scheme"),
    [(name, "light") for name in PAGES]
    + [(name, "dark") if name in IN_THE_DARK else longer(name, "dark") for name in PAGES],
)
def test_every_page_is_fit_for_all(
    browser: Browser, up: BrokerWithConsole, name: str, scheme: Literal["light", "dark"]
) -> None:
    context = new_context(
        browser, base_url=up.console, color_scheme=scheme, viewport={"width": 1280, "height": 820}
    )
    page = context.new_page()
    page.goto(PAGES[name])
    found = Axe().run(page)
    picture(page, f"{name}-{scheme}")
    context.close()
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("name", PAGES)
def test_every_page_fits_a_narrow_screen(browser: Browser, up: BrokerWithConsole, name: str) -> None:
    context = new_context(browser, base_url=up.console, viewport={"width": 360, "height": 740})
    page = context.new_page()
    page.goto(PAGES[name])
    width = page.evaluate("document.documentElement.scrollWidth")
    picture(page, f"{name}-narrow")
    context.close()
    assert width <= 360
