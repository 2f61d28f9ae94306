"""SQL on the console's page over a table and the records behind it, which no compactor has touched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.console.console_client import ConsoleClient
from tests.unit.inspection.inspection_fakes import TOPIC_ID, FakeKafka, FakePartition
from tests.unit.log.harness import append, batch_bytes

from dray.base.runtime import SystemRuntime
from dray.inspection.sql.queries import SqlQueries
from dray.inspection.sql.tail import TailReader
from dray.inspection.storage.tables import ClusterTables, TopicTails
from dray.log import Log, LogSettings
from dray.metadata.memory import MemoryStore
from dray.migration.entries.kind import ForeignEntries
from dray.objects.memory import MemoryObjects
from dray.tables.contract import TableSnapshot
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.view import Column, TableView, no_table_yet

KINDS = {"partition": "int", "offset": "long", "value": "binary"}
IN_TABLE, IN_LOG = 2, 5
SECOND = 1_000


class Tables:
    """The first two records of `t`, as of the time that the second of them has; nothing of `other`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "a.parquet"
        columns = {"partition": [0, 0], "offset": [0, 1], "value": [b"0", b"1"]}
        pq.write_table(pa.table(columns), self.path)

    async def view(self, topic: str) -> TableView | None:
        if topic != "t":
            return None
        return replace(
            no_table_yet(topic, TOPIC_ID),
            metadata_location="1",
            files=[f"file://{self.path}"],
            ends={0: IN_TABLE},
            columns=[Column(name, name, kind) for name, kind in KINDS.items()],
        )

    async def rows_view(self, topic: str) -> TableView | None:
        return await self.view(topic)

    async def snapshots(self, topic: str) -> list[TableSnapshot] | None:
        if topic != "t":
            return None
        ends = {0: IN_TABLE}
        return [TableSnapshot(1, None, SECOND, "append", 2, 0, 1, 0, 2, 1, 1, ends, True)]

    async def ends_of(self, topic: str, snapshot_id: int) -> Mapping[int, int] | None:
        raise AssertionError(f"the ends of snapshot {snapshot_id} of {topic} are with it")


class Stored:
    """What a console reads of the metadata store."""

    def __init__(self, streams: list[int]) -> None:
        self.streams = streams

    async def topic(self, name: str) -> Any:
        return SimpleNamespace(name=name, topic_id=TOPIC_ID, streams=self.streams)

    async def time_of(self, topic: str, partition: int, offset: int) -> int:
        raise AssertionError(f"nothing asks for the time of {topic} {partition} {offset}")

    async def live_migration(self, topic: str) -> None:
        """None of these topics moves."""


class Served:
    def __init__(self, directory: Path, stored: Stored, reader: TailReader) -> None:
        async def why_not(topic: str) -> str | None:
            return "its name matches x" if topic == "excluded" else None

        tails = TopicTails(stored, reader, why_not)  # type: ignore[arg-type]
        tables = ClusterTables(
            Tables(directory), Locations(f"file://{directory}/"), SqlQueries(SystemRuntime()), why_not, tails
        )
        topics = {name: [FakePartition()] for name in ("t", "other", "excluded")}
        self.client = ConsoleClient(FakeKafka(topics), stored, tables=tables)  # type: ignore[arg-type]

    async def ask(self, statement: str, **more: str) -> Any:
        """The rows, or the line that refuses them."""
        view = (await self.client.get(f"/api/topics/t/sql?{urlencode({'q': statement, **more})}")).json
        return view["refused"] or view["rows"]


class Behind:
    """Five records in the log, a second apart from each other."""

    def __init__(self, directory: Path, log: Log, stored: Stored, reader: Any) -> None:
        self.directory, self.log, self.stored, self.reader = directory, log, stored, reader

    def served(self, most: int = 1 << 20) -> Served:
        return Served(self.directory, self.stored, self.reader(most))


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncIterator[Behind]:
    runtime = SystemRuntime(threads=2)
    store, objects, settings = MemoryStore(runtime), MemoryObjects(runtime), LogSettings()
    log = Log(store, objects, runtime, 2, settings)
    await log.start()
    stored = Stored(await log.create_streams(1))
    for number in range(IN_LOG):
        data = batch_bytes([b"%d" % number], timestamps=[number * SECOND])
        await append(log, stored.streams[0], data)

    def reader(most: int) -> TailReader:
        def outside() -> ForeignEntries:
            return ForeignEntries(objects, runtime, {}, most)

        return TailReader(store, objects, runtime, 2, settings, outside, most)

    yield Behind(tmp_path, log, stored, reader)
    await log.stop()
    runtime.close()


ALL = 'select "offset", decode(value) v from t order by 1'


async def test_the_newest_record_is_there_and_each_once(behind: Behind) -> None:
    served = behind.served()
    assert await served.ask(ALL) == [[number, str(number)] for number in range(IN_LOG)]
    await append(behind.log, behind.stored.streams[0], batch_bytes([b"now"]))
    assert (await served.ask(ALL))[-1] == [IN_LOG, "now"]
    assert await served.ask(ALL, compacted="1") == [[0, "0"], [1, "1"]]
    page = await served.client.get(f"/topics/t/sql?{urlencode({'q': ALL})}")
    assert ">now<" in page.text
    assert "Compacted only" in page.text
    saved = await served.client.get(f"/topics/t/sql/csv?{urlencode({'q': ALL})}")
    assert saved.text.splitlines()[-1] == f"{IN_LOG},now"


async def test_times_hold_over_table_and_log(behind: Behind) -> None:
    served = behind.served()
    for last in range(1, IN_LOG):
        rows = await served.ask('select max("offset") from t', as_of=f"1970-01-01 00:00:0{last}.500")
        assert rows == [[last]]
    assert await served.ask("select count(*) from t", as_of="0") == [[1]]


async def test_a_topic_without_a_table(behind: Behind) -> None:
    served = behind.served()
    assert await served.ask("select count(*) from other") == [[IN_LOG]]
    assert await served.ask("select count(*) from excluded") == "excluded has no table: its name matches x"


async def test_more_than_a_console_takes_says_what_to_do(behind: Behind) -> None:
    large = batch_bytes([bytes(2_000)] * 1_000)
    await append(behind.log, behind.stored.streams[0], large)
    assert await behind.served().ask(ALL) == (
        "t has more than 1 MiB of records that no compactor has touched: ask again when they are compacted, "
        "or ask the table alone (compacted)"
    )
    assert await behind.served(1 << 24).ask("select count(*) from t") == [[IN_LOG + 1_000]]
