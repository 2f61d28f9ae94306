"""Every client reads through compaction: the log moves into files while it is read and written.

Readers begin before there is a compactor, and stand still in the middle of every partition. Then a compactor
on Spark moves the log, and the collector deletes the WAL objects that the readers knew of. Producers go on
all the time, so the compactor goes on too: it moves the tail, and merges files that it wrote a moment before.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from tests.services.clients import BUILT_READERS, READERS, Message, Place, Reader, Reading
from tests.services.clients.contract import LOG_APPEND_TIME
from tests.services.clients.written_log import (
    APPENDED,
    BOTH,
    CREATED,
    FARTHEST_TIME,
    PLACES,
    TOPICS,
    BackgroundProducer,
    WrittenLog,
)
from tests.services.compactor import CompactorProcess
from tests.services.dray import DrayProcess, drayd_path
from tests.services.process import ServerProcess
from tests.services.tools import require_tool

CUT_BEFORE: tuple[Place, int] = ((CREATED, 1), 150)
"""Deleted while it is in WAL objects, inside of a batch."""
CUT_AFTER: tuple[Place, int] = ((APPENDED, 0), 93)
"""Deleted when it is in a file, inside of a row group."""
BEGINNING = dict.fromkeys(PLACES, 0)
STOP = 190
"""Where readers stand still, inside of a batch."""

SETTINGS = {
    "DRAY_GROUPS__INITIAL_REBALANCE_DELAY": "100ms",
    "DRAY_TEST_KNOB__LOG__COLLECT_SECONDS": "1",
    "DRAY_LOG__COLLECT_GRACE": "0s",
    # What a client gets was read from an object, not from the broker's memory of what it wrote.
    "DRAY_LOG__TAIL_CACHE_BYTES": "0B",
    "DRAY_TEST_KNOB__LOG__SEGMENT_CACHE_BYTES": "0",
    "DRAY_COMPACTION__INTERVAL": "1s",
    "DRAY_COMPACTION__WAL_MAX_AGE": "0s",
    "DRAY_TEST_KNOB__COMPACTION__PARQUET_MAX_FILES": "2",
    "DRAY_TEST_KNOB__COMPACTION__COLLECT_SECONDS": "1",
    "DRAY_COMPACTION__COLLECT_GRACE": "0s",
    "DRAY_ICEBERG__KEEP_SNAPSHOTS": "0s",
}


@dataclass(frozen=True, slots=True)
class Size:
    rounds: int
    largest_value: int


SIZES = {"small": Size(2, 1500), "large": Size(10, 10_000)}
"""A large log has several row groups in a file."""

every_reader = pytest.mark.parametrize(
    "name", [*READERS, *(pytest.param(name, marks=pytest.mark.soak) for name in BUILT_READERS)]
)


@dataclass
class Trial:
    broker: DrayProcess
    log: WrittenLog
    compactor: CompactorProcess
    going_on: BackgroundProducer
    times: dict[Place, list[int]]
    readers: dict[str, Reader | BaseException] = field(default_factory=dict)

    def reader(self, name: str) -> Reader:
        """It stands still since before the compactor came. Or why it could not."""
        found = self.readers[name]
        if isinstance(found, BaseException):
            raise found
        return found

    def new_reader(self, name: str, isolation: str, *, little: bool) -> Reader:
        make, protocol = (READERS | BUILT_READERS)[name]
        return make(
            Reading(self.broker.bootstrap, TOPICS, f"{name} {isolation}", protocol, isolation, little)
        )

    def check_read(self, reader: Reader, first: Mapping[Place, int], ends: Mapping[Place, int]) -> None:
        """Reads on: every offset once, in order, and each record as it was written."""
        for place, messages in reader.read(ends).items():
            written = self.log.between(place, first[place], ends[place])
            expected = [reader.tells(message) for message in written]
            assert [message.offset for message in messages] == [message.offset for message in expected], place
            for message, wanted in zip(messages, expected, strict=True):
                assert message == wanted, place

    def check_times(self, reader: Reader) -> None:
        for number in range(len(self.times[PLACES[0]])):
            asked = {place: times[number] for place, times in self.times.items()}
            for place, found in reader.first_at(asked).items():
                wanted = self.log.first_at(place, asked[place])
                if found is not None and found[1] is None and wanted is not None:
                    found = found[0], wanted[1]  # noqa: PLW2901 (this client does not tell the time)
                assert (place, asked[place], found) == (place, asked[place], wanted)


@pytest.fixture(scope="module", params=["small", pytest.param("large", marks=pytest.mark.soak)])
def trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    require_tool("java")
    size = SIZES[request.param]
    with ExitStack() as stack:
        broker = DrayProcess(tmp_path_factory.mktemp("trial"), settings=SETTINGS)
        stack.enter_context(broker)
        log = WrittenLog(broker.bootstrap, size.largest_value)
        log.create()
        log.fill(size.rounds)
        log.delete_before(*CUT_BEFORE)
        before = wal_objects(broker)
        assert len(before) > 20
        compactor = CompactorProcess(broker.directory, broker, {})
        made = Trial(broker, log, compactor, BackgroundProducer(log, pause_seconds=0.5), times_to_ask(log))
        stack.callback(made.going_on.stop)
        with ThreadPoolExecutor(len(READERS | BUILT_READERS)) as pool:
            begun = {name: pool.submit(begin, made, name, stack) for name in asked_for(request)}
            made.readers = {name: future.result() for name, future in begun.items()}
        assert not set(broker.data_directory.rglob("*.parquet")), "nothing was compacted so far"
        stack.enter_context(compactor)
        eventually(lambda: not before & wal_objects(broker), "the WAL objects are gone", compactor)
        log.delete_before(*CUT_AFTER)
        yield made


def asked_for(request: pytest.FixtureRequest) -> set[str]:
    """The readers that tests of this run, with this trial, will want."""
    asked = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    return {one["name"] for one in asked if one.get("trial") == request.param and "name" in one}


def begin(trial: Trial, name: str, stack: ExitStack) -> Reader | BaseException:
    """A reader that stands in the middle; or, for its own test to say, why it cannot."""
    try:
        reader = trial.new_reader(name, "read_uncommitted", little=True)
        stack.callback(reader.close)
        trial.check_read(reader, BEGINNING, dict.fromkeys(PLACES, STOP))
        trial.check_times(reader)
    except (Exception, pytest.skip.Exception, pytest.fail.Exception) as failure:
        return failure
    return reader


def times_to_ask(log: WrittenLog) -> dict[Place, list[int]]:
    """Of some records, and beside them; the answers lie in what is written already. Nothing is as late as
    the last."""
    times: dict[Place, list[int]] = {}
    for place, end in log.ends().items():
        written = log.between(place, 0, end)
        some = [written[len(written) * part // 7].timestamp for part in range(1, 7)]
        times[place] = [0, *some, some[2] + 1, some[4] - 1, FARTHEST_TIME + 1]
    return times


def wal_objects(broker: DrayProcess) -> set[Path]:
    return set((broker.data_directory / "objects" / "wal").rglob("*.wo"))


def eventually(holds: Callable[[], bool], what: str, compactor: ServerProcess | None = None) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline, f"not seen in time: {what}"
        assert compactor is None or compactor.alive, "the compactor ended"
        time.sleep(0.1)


@every_reader
def test_one_that_began_before_reads_through(trial: Trial, name: str) -> None:
    """From WAL objects that it knew of and that are gone, through files, to the tail and its next swaps."""
    reader, ends = trial.reader(name), trial.log.ends()
    trial.check_read(reader, dict.fromkeys(PLACES, STOP), ends)
    trial.check_read(reader, ends, eventually_further(trial.log, ends))


def eventually_further(log: WrittenLog, ends: Mapping[Place, int]) -> dict[Place, int]:
    eventually(lambda: all(log.ends()[place] > ends[place] for place in PLACES), "producers go on")
    return log.ends()


@every_reader
def test_one_looks_back(trial: Trial, name: str) -> None:
    """To offsets that it read from WAL objects, and finds the same in files."""
    reader = trial.reader(name)
    for place in ((CREATED, 0), (BOTH, 0), CUT_AFTER[0]):
        first = max(37, trial.log.starts[place])
        reader.seek(place, first)
        trial.check_read(reader, {place: first}, {place: 560})


@every_reader
def test_offsets_by_time_are_the_same(trial: Trial, name: str) -> None:
    trial.check_times(trial.reader(name))


@every_reader
def test_one_that_comes_later_reads_everything(trial: Trial, name: str) -> None:
    ends = trial.log.ends()
    reader = trial.new_reader(name, "read_committed", little=False)
    try:
        trial.check_read(reader, BEGINNING, ends)
        trial.check_times(reader)
    finally:
        reader.close()


def test_the_tables_are_equal_to_the_log(trial: Trial) -> None:
    """The last one: producers stop for it, and so does the compactor when it has done its work."""
    trial.going_on.stop()
    ends = trial.log.ends()
    for topic in TOPICS:
        eventually(partial(complete, trial.broker, topic, ends), f"{topic} as a table", trial.compactor)
    trial.compactor.terminate()
    types = {message.timestamp_type for message in trial.log.between((BOTH, 0), 0, ends[BOTH, 0])}
    assert len(types) == 2
    for topic in TOPICS:
        wanted = {place: trial.log.between(place, 0, ends[place]) for place in PLACES if place[0] == topic}
        by_pyiceberg, by_duckdb = pyiceberg_rows(trial.broker, topic), duckdb_rows(trial.broker, topic)
        for found in (by_pyiceberg, by_duckdb):
            for place, messages in wanted.items():
                rows = [row for row in found[place] if row.offset >= trial.log.starts[place]]
                assert rows == messages


def complete(broker: DrayProcess, topic: str, ends: Mapping[Place, int]) -> bool:
    try:
        files = table_of(broker, topic).scan(selected_fields=("partition", "offset")).to_arrow()
    except FileNotFoundError:  # of a snapshot that is gone a moment later: so this cluster has it
        return False
    last = files.group_by("partition").aggregate([("offset", "max")]).to_pylist()
    found = {(topic, row["partition"]): row["offset_max"] + 1 for row in last}
    return found == {place: end for place, end in ends.items() if place[0] == topic}


def table_of(broker: DrayProcess, topic: str) -> Table:
    catalog = load_catalog("dray", type="sql", uri=f"sqlite:///{broker.data_directory / 'catalog.sqlite'}")
    return catalog.load_table(f"dray.{topic}")


def pyiceberg_rows(broker: DrayProcess, topic: str) -> dict[Place, list[Message]]:
    found = table_of(broker, topic).scan().to_arrow()
    times = found.column("timestamp").cast("int64").to_pylist()
    rows = found.drop_columns("timestamp").to_pylist()
    return by_place(topic, [row | {"microseconds": at} for row, at in zip(rows, times, strict=True)])


def duckdb_rows(broker: DrayProcess, topic: str) -> dict[Place, list[Message]]:
    asked = (
        'select partition, "offset", epoch_us(timestamp) as microseconds, attributes, '
        "hex(key) as key, hex(value) as value, "
        "list_transform(headers, lambda h: {'key': h.key, 'value': hex(h.value)}) as headers "
        f'from "{topic}"'
    )
    command = [str(drayd_path()), "query", asked, "--format", "json", "--limit", "0"]
    told = subprocess.run(
        [*command, "--data-dir", str(broker.data_directory)],
        env=dict(broker.environment()),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    rows = json.loads(told.stdout)
    for row in rows:
        for holder in (row, *row["headers"]):
            for name in {"value", *({"key"} if holder is row else ())}:
                holder[name] = None if holder[name] is None else bytes.fromhex(holder[name])
    return by_place(topic, rows)


def by_place(topic: str, rows: Sequence[dict[str, Any]]) -> dict[Place, list[Message]]:
    found: dict[Place, list[Message]] = {}
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        assert row["microseconds"] % 1000 == 0
        message = Message(
            key=row["key"],
            value=row["value"],
            headers=tuple((header["key"], header["value"]) for header in row["headers"]),
            timestamp=row["microseconds"] // 1000,
            offset=row["offset"],
        )
        if row["attributes"] & 8:
            message = replace(message, timestamp_type=LOG_APPEND_TIME)
        found.setdefault((topic, row["partition"]), []).append(message)
    return found
