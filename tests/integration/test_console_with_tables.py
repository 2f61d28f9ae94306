"""The console's pages of tables, ranges, runs and curves, in a real browser and on a real cluster."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect
from tests.services.browser import new_context, picture, running_browser
from tests.services.console import HOSTILE, LONG_NAME, ORDERS, ConsoleProcess, answer_of, commit, fill
from tests.services.dray import DrayProcess
from tests.services.local_compactor import LocalCompactor
from tests.services.marks import longer
from tests.services.target import ON_CLUSTER

pytestmark = pytest.mark.skipif(ON_CLUSTER, reason="the console runs beside one broker here")

COUNTED = "select partition, count(*) as records from orders group by all order by all"
PAGES = {
    "table": "/topics/orders/table",
    "table-none": "/topics/empty/table",
    "table-hostile": "/topics/hostile/table",
    "sql-unsaid": "/topics/orders/sql",
    "sql-chart": f"/topics/orders/sql?q={COUNTED.replace(' ', '+')}",
    "sql-hostile": "/topics/hostile/sql?q=select+*+from+hostile",
    "sql-refused": "/topics/orders/sql?q=copy+orders+to+'/tmp/x'",
    "sql-curve": "/topics/orders/sql?q=select+x,+sin(x/20)+as+y+from+range(400)+t(x)",
    "range-unsaid": "/topics/orders/range",
    "range": "/topics/orders/range?start=oldest&end=until_offset&until_offset=50&text=customer-1&where=key",
    "range-long-name": f"/topics/{LONG_NAME}/range",
    "runs": "/runs",
    "run": "/runs/kept.json",
    "run-broken": "/runs/broken.json",
    "group-curves": "/groups/billing",
    "groups-curves": "/groups",
    "record-row": "/topics/orders/0/5",
}


FIRST = ("table", "sql-chart", "range", "runs", "group-curves")
"""Those that `make test` has time for: the others have the same parts."""


class ConsoleOfStores(ConsoleProcess):
    def __init__(self, directory: Path, broker: DrayProcess, *arguments: str) -> None:
        super().__init__(directory, broker.bootstrap, "--stores", "--writable", *arguments)
        self._broker = broker

    def environment(self) -> Mapping[str, str]:
        return dict(self._broker.environment()) | {"DRAY_DATA_DIR": str(self._broker.data_directory)}

    def view(self, path: str) -> Any:
        status, body = answer_of(f"{self.address}/api{path}")
        assert status == 200, body
        return json.loads(body)


def eventually(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _runs(directory: Path) -> Path:
    directory.mkdir()
    steps: Sequence[Any] = [
        {
            "at": n / 50,
            "who": ("broker-0", "broker-1", "plain producer 1", "reader 2", "weather")[n % 5],
            "what": "broker crashed" if n % 41 == 0 else "wrote 3 records",
        }
        for n in range(300)
    ]
    run = {
        "seed": 4711,
        "broken": None,
        "seconds": 6.0,
        "fingerprint": "00ff",
        "counts": {"operations": 761},
        "faults": {"broker crashed": 8},
        "steps": steps,
    }
    (directory / "kept.json").write_text(json.dumps(run))
    broken = "AssertionError('orders-0: offset 17 was acknowledged and is gone')"
    (directory / "broken.json").write_text(json.dumps(run | {"seed": 2**53, "broken": broken}))
    (directory / "no-run.json").write_text("[]")
    return directory


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleOfStores]:
    directory = tmp_path_factory.mktemp("tables")
    with DrayProcess(directory / "broker") as broker:
        fill(broker.bootstrap)
        runs = _runs(directory / "runs")
        with (
            ConsoleOfStores(directory / "console", broker, "--runs", str(runs)) as process,
            LocalCompactor(directory / "compactor", broker),
        ):
            eventually(lambda: process.view("/topics/orders/table")["rows"] == ORDERS)
            eventually(lambda: process.view("/runs")["cycles"])
            yield process


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser, console: ConsoleOfStores) -> Iterator[Page]:
    """A page whose every complaint fails the test."""
    context = new_context(browser, base_url=console.address, viewport={"width": 1280, "height": 820})
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    context.close()
    assert [each for each in complaints if not re.search(r"status of (404|409)", each)] == []


def test_from_a_record_to_its_row_and_back(page: Page) -> None:
    page.goto("/topics/orders/2/7")
    expect(page.get_by_text("In the table: row")).to_be_visible()
    page.get_by_role("link", name="show the row").click()
    row = page.locator("table.result tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("customer-30")
    expect(row).to_contain_text("9007199254741022")
    row.get_by_role("link", name="record").click()
    expect(page.get_by_role("heading", name="Offset 7")).to_be_visible()


def test_a_table_says_how_far_it_reaches(page: Page, console: ConsoleOfStores) -> None:
    page.goto("/topics/orders/table")
    expect(page.locator(".figure", has_text="Rows")).to_contain_text(f"{ORDERS}")
    expect(page.get_by_role("row", name=re.compile("^3 0 150 150 0 0$"))).to_be_visible()
    view = console.view("/topics/orders/table")
    newest = view["snapshots"][0]
    assert {int(number): end for number, end in newest["ends"].items()} == dict.fromkeys(range(4), 150)
    page.get_by_role("link", name="Show its rows").click()
    expect(page.locator("table.result tbody tr")).to_have_count(100)


def test_a_query_is_typed_run_drawn_and_saved(page: Page) -> None:
    page.goto("/topics/orders/sql")
    page.get_by_role("textbox", name="SQL").fill(COUNTED)
    page.keyboard.press("Control+Enter")
    expect(page.locator("[role=status]").last).to_contain_text("4 rows in")
    expect(page.locator(".bar-value")).to_have_text(["150", "150", "150", "150"])
    with page.expect_download() as download:
        page.get_by_role("link", name="Save as CSV").click()
    assert Path(download.value.path()).read_text() == "partition,records\n0,150\n1,150\n2,150\n3,150\n"


def test_hostile_sql_and_hostile_rows_do_nothing(page: Page) -> None:
    page.goto("/topics/hostile/sql?q=select+*+from+hostile")
    expect(page.locator("table.result tbody tr")).to_have_count(len(HOSTILE))
    assert page.evaluate("window.hostile") is None
    page.get_by_role("textbox", name="SQL").fill("select * from read_text('/etc/passwd')")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("file system operations are disabled")


def test_a_range_is_saved(page: Page) -> None:
    page.goto("/topics/orders/range")
    page.locator("select[name=end]").select_option("until_offset")
    page.get_by_label("Before offset").fill("50")
    page.get_by_label("Only what has").fill("customer-17")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".figure", has_text="Of them match")).to_contain_text("5")
    with page.expect_download() as download:
        page.get_by_role("link", name="Save as JSON lines").click()
    rows = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert {row["key"] for row in rows} == {"customer-17"}
    assert len(rows) == 5


def test_a_range_is_replayed_only_where_its_name_is_typed(page: Page, console: ConsoleOfStores) -> None:
    page.goto("/new-topic")
    page.get_by_label("Name").fill("replayed")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="replayed")).to_be_visible()
    page.goto("/topics/orders/range?start=oldest&end=end&text=customer-17&where=key")
    button = page.get_by_role("button", name="Replay", exact=True)
    expect(button).to_be_disabled()
    page.get_by_label("To the topic").fill("replayed")
    page.get_by_label("Its name again").fill("replaye")
    expect(button).to_be_disabled()
    page.get_by_label("Its name again").fill("replayed")
    button.click()
    expect(page.locator(".head .state")).to_have_text("done")
    picture(page, "replay-light")
    view = console.view("/topics/replayed?start=oldest")
    assert {row["key"]["text"] for row in view["rows"]} == {"customer-17"}
    assert len(view["rows"]) == ORDERS // 40
    page.goto("/runs")
    expect(page.get_by_role("link", name="replayed")).to_be_visible()


def test_runs_of_compactors_and_of_the_simulator(page: Page) -> None:
    page.goto("/runs")
    expect(page.get_by_role("row", name=re.compile("jobs: .*finished"))).not_to_have_count(0)
    page.get_by_role("link", name="broken.json").click()
    expect(page.get_by_role("alert")).to_contain_text("offset 17 was acknowledged and is gone")
    page.get_by_text("The steps as a table").click()
    expect(page.get_by_role("row", name=re.compile("broker crashed"))).not_to_have_count(0)


def test_a_curve_grows_while_its_page_is_open(page: Page, console: ConsoleOfStores) -> None:
    commit(console.bootstrap, "watched", {("orders", 0): 10})
    page.goto("/groups/watched")
    expect(page.locator(".curves .spark").first).to_be_visible(timeout=30_000)
    producer = Producer({"bootstrap.servers": console.bootstrap})
    producer.produce("orders", partition=0, value="one more")
    producer.flush()
    expect(page.locator(".curves figcaption").first).to_contain_text("at most 141")


@pytest.mark.parametrize("scheme", ["light", longer("dark")])
@pytest.mark.parametrize("name", [name if name in FIRST else longer(name) for name in PAGES])
def test_every_page_is_fit_for_all(
    browser: Browser, console: ConsoleOfStores, name: str, scheme: Literal["light", "dark"]
) -> None:
    context = new_context(
        browser, base_url=console.address, color_scheme=scheme, viewport={"width": 1280, "height": 820}
    )
    page = context.new_page()
    page.goto(PAGES[name])
    found = Axe().run(page)
    picture(page, f"{name}-{scheme}")
    context.close()
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("name", [name if name in FIRST else longer(name) for name in PAGES])
def test_every_page_fits_a_narrow_screen(browser: Browser, console: ConsoleOfStores, name: str) -> None:
    context = new_context(browser, base_url=console.address, viewport={"width": 360, "height": 740})
    page = context.new_page()
    page.goto(PAGES[name])
    width = page.evaluate("document.documentElement.scrollWidth")
    picture(page, f"{name}-narrow")
    context.close()
    assert width <= 360
