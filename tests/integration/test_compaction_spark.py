"""Units written by a real Spark session, embedded. One session for all: it takes seconds to start."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import ClassVar
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from tests.services import room_settings
from tests.services.compaction_cluster import FixedTopics
from tests.services.room_settings import EMBEDDED
from tests.services.s3 import BUCKET, SECRET_KEY, S3Process
from tests.services.tools import missing
from tests.unit.tables.compaction.executor_inputs import kafka_batch, records, unit_of, wal_entry

from dray.base.runtime import SystemRuntime
from dray.broker.topics.model import Topic, TopicSettings
from dray.kafka.records import Record, decode, validate
from dray.log import Log
from dray.log.entries import IndexEntry
from dray.log.jobs.values import WrittenFile
from dray.log.stream_store import StreamStore
from dray.log.types import ReadRequest
from dray.metadata.memory import MemoryStore
from dray.objects import LocalStore, open_store
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.model import Deliver, Progress, Unit, UnitAnswer, UnitFailed, WrittenKeys
from dray.tables.compaction.packages import SparkUnavailable, find_java
from dray.tables.compaction.spark import writer as spark_writer
from dray.tables.compaction.spark.session import (
    SparkDied,
    SparkProcess,
    SparkSettings,
    open_session,
    reason_of,
    worker_python,
)
from dray.tables.compaction.spark.worker import StoreAddress, from_row, to_row, weight_of
from dray.tables.compaction.spark.writer import SparkJobFailed, SparkUnitWriter, tasks_of
from dray.tables.compaction.summary import CompactionObserver, Phase
from dray.tables.compaction.writing.executor import LocalUnitWriter


@pytest.fixture(scope="module")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark") / "spark.log"


@pytest.fixture(scope="module")
def session(spark_log: Path) -> Iterator[SparkProcess]:
    try:
        opened = open_session(SparkSettings(master="local[2,3]", log_path=str(spark_log)))
    except SparkUnavailable as error:
        missing(str(error))
    yield opened
    with pytest.raises(SparkDied):  # the last test that uses it kills it
        opened.stop()


@pytest.fixture
async def runtime() -> AsyncIterator[SystemRuntime]:
    made = SystemRuntime(threads=8)
    yield made
    made.close()


@pytest.fixture
async def objects(tmp_path: Path, runtime: SystemRuntime) -> AsyncIterator[LocalStore]:
    store = await LocalStore.open(tmp_path / "objects", runtime)
    yield store
    await store.close()


def address(tmp_path: Path) -> StoreAddress:
    return StoreAddress(f"file:{tmp_path / 'objects'}")


async def units(objects: LocalStore, count: int) -> list[Unit]:
    made = []
    for stream in range(count):
        entry = await wal_entry(objects, 10, [kafka_batch(records(10, 20)), kafka_batch(records(30, 5))])
        made.append(unit_of([entry], stream=stream, job=stream + 1, partition=stream))
    return made


async def test_many_units_in_one_job(
    session: SparkProcess, objects: LocalStore, runtime: SystemRuntime, tmp_path: Path
) -> None:
    work = await units(objects, 9)
    gone = work[4].decoded()[0].path
    await objects.delete(gone)
    seen: list[tuple[int, int]] = []
    writer = SparkUnitWriter(session, address(tmp_path), runtime)
    answers = await writer.write(work, lambda done, of: seen.append((done, of)))
    by_stream = {answer.stream: answer for answer in answers}
    assert sorted(by_stream) == list(range(9))
    failed = by_stream.pop(4)
    assert isinstance(failed, UnitFailed)
    assert gone in failed.reason, "one failure is told, and the others are done"
    local = LocalUnitWriter(objects, runtime)
    for stream, answer in by_stream.items():
        assert isinstance(answer, WrittenFile)
        [expected] = await local.write([work[stream]])
        assert isinstance(expected, WrittenFile)
        assert read(tmp_path, answer) == read(tmp_path, expected), "the same rows as without Spark"
        assert (answer.row_groups, answer.columns) == (expected.row_groups, expected.columns)
        assert answer.path != expected.path
    assert seen[-1] == (9, 9)
    assert all(done <= of for done, of in seen)


def read(tmp_path: Path, written: WrittenFile) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.read_table(
        tmp_path / "objects" / written.path, partitioning=None
    ).to_pylist()
    return rows


async def test_a_compacted_topic_is_cleaned_by_spark(
    session: SparkProcess, objects: LocalStore, runtime: SystemRuntime, tmp_path: Path
) -> None:
    """Merges by key, the keys of a cleaning round and its files: all of it is work for Spark's workers."""
    store = MemoryStore(runtime)
    log = Log(store, objects, runtime, 1, room_settings.log())
    config = {"cleanup.policy": "compact", "retention.ms": "-1"}
    [stream] = await log.create_streams(1)
    topic = Topic("orders", UUID(int=1), (stream,), config, 0, TopicSettings.of(config, {}))
    streams = StreamStore(store, 1, room_settings.log().producer_expiry_ms)
    written: list[WrittenFile | WrittenKeys | UnitFailed] = []

    class Watched(SparkUnitWriter):
        async def write(
            self, units: Sequence[Unit], progress: Progress | None = None, _: Deliver | None = None
        ) -> list[UnitAnswer]:
            answers = await super().write(units, progress)
            written.extend(answers)
            return answers

    class Seen(CompactionObserver):
        phases: ClassVar[set[Phase]] = set()

        def progress(self, phase: Phase, done: int, total: int) -> None:
            if total and done == total:
                self.phases.add(phase)

    def compactor(**changes: int) -> Compactor:
        return Compactor(
            CompactorStores(streams, objects),
            runtime,
            Watched(session, address(tmp_path), runtime),
            None,
            FixedTopics([topic]),
            room_settings.compaction(**changes),
            room_settings.log(),
            Seen(),
        )

    async def append(*rows: tuple[bytes, bytes | None]) -> None:
        data = kafka_batch(
            [Record(place, runtime.wall_ms(), key, value, ()) for place, (key, value) in enumerate(rows)]
        )
        [batch] = validate(data, max_batch_bytes=1 << 20, max_decompressed_bytes=1 << 20)
        await log.append(stream, batch, memoryview(data))

    async def offsets() -> list[int]:
        reader = Log(store, objects, runtime, 1, room_settings.log())
        request = ReadRequest(stream, 0, 1 << 20)
        [result] = await reader.fetch([request], min_bytes=0, max_bytes=1 << 20, max_wait_ms=0)
        return [
            record.offset for buffer in result.buffers for record in decode(buffer, sparse=True).records()
        ]

    try:
        await append((b"a", b"1"), (b"b", b"1"))
        await append((b"a", b"2"), (b"c", None))
        summary = await compactor().run_cycle(everything=True)
        assert (summary.troubles, await offsets()) == ([], [1, 2, 3])
        await append((b"b", b"2"), (b"d", b"1"))
        written.clear()
        summary = await compactor(bottom_raw_bytes=0, target_file_bytes=1).run_cycle(everything=True)
        assert (summary.troubles, await offsets()) == ([], [2, 3, 4, 5])
        assert (summary.key_rounds, [type(each) for each in written].count(WrittenKeys)) == (1, 1)
        found = (await streams.cleaned(stream)).value
        assert (found.end, found.round) == (6, None)
        assert Phase.WRITE in Seen.phases
    finally:
        await log.stop()


async def test_what_is_carried_is_compacted_without_an_object(
    session: SparkProcess, objects: LocalStore, runtime: SystemRuntime, tmp_path: Path
) -> None:
    """The batches of carried entries travel to the workers with the unit: there is nothing else of them."""
    store = MemoryStore(runtime)
    settings = room_settings.log(carry=EMBEDDED, pack_look_seconds=1e9)
    log = Log(store, objects, runtime, 1, settings)
    log.carry(True)
    [stream] = await log.create_streams(1)
    topic = Topic("orders", UUID(int=1), (stream,), {}, 0, TopicSettings.of({}, {}))
    streams = StreamStore(store, 1, settings.producer_expiry_ms)
    given: list[IndexEntry] = []

    class Watched(SparkUnitWriter):
        async def write(
            self,
            units: Sequence[Unit],
            progress: Progress | None = None,
            deliver: Deliver | None = None,
        ) -> list[UnitAnswer]:
            given.extend([entry for unit in units for entry in unit.decoded()])
            return await super().write(units, progress, deliver)

    compactor = Compactor(
        CompactorStores(streams, objects),
        runtime,
        Watched(session, address(tmp_path), runtime),
        None,
        FixedTopics([topic]),
        room_settings.compaction(),
        settings,
    )
    values = [b"%d" % number for number in range(6)]
    try:
        for place in range(0, 6, 2):
            rows = [Record(at, runtime.wall_ms(), None, values[place + at], ()) for at in range(2)]
            data = kafka_batch(rows)
            [batch] = validate(data, max_batch_bytes=1 << 20, max_decompressed_bytes=1 << 20)
            await log.append(stream, batch, memoryview(data))
        summary = await compactor.run_cycle(everything=True)
        assert summary.troubles == []
        assert [(entry.start, entry.end, entry.is_carried) for entry in given] == [
            (0, 2, True),
            (2, 4, True),
            (4, 6, True),
        ]
        assert [info.path async for info in objects.list("wal/")] == []
        [written] = await streams.entries_above(stream, -1)
        assert (written.value.is_parquet, written.value.start, written.value.end) == (True, 0, 6)
        reader = Log(store, objects, runtime, 1, settings)
        request = ReadRequest(stream, 0, 1 << 20)
        [result] = await reader.fetch([request], min_bytes=0, max_bytes=1 << 20, max_wait_ms=0)
        found = [record.value for buffer in result.buffers for record in decode(buffer).records()]
        assert found == values
    finally:
        await log.stop()


async def test_nothing_to_do_is_no_job(session: SparkProcess, runtime: SystemRuntime, tmp_path: Path) -> None:
    assert await SparkUnitWriter(session, address(tmp_path), runtime).write([]) == []


async def test_a_worker_that_is_killed_is_tried_again(
    session: SparkProcess,
    objects: LocalStore,
    runtime: SystemRuntime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first attempt dies without a word. What it left is nobody's file."""
    from dray.tables.compaction.spark import writer as module

    work = await units(objects, 1)
    mark = str(tmp_path / "died once")
    real = module._in_worker

    def dying(*given):
        write = real(*given)

        def once(batches):
            import os

            if not os.path.exists(mark):
                with open(mark, "w"):
                    os._exit(7)
            yield from write(batches)

        return once

    monkeypatch.setattr(module, "_in_worker", dying)
    [answer] = await SparkUnitWriter(session, address(tmp_path), runtime).write(work)
    assert isinstance(answer, WrittenFile)
    assert "died once" in os.listdir(tmp_path)


async def test_a_task_that_always_fails_fails_the_job(
    session: SparkProcess,
    objects: LocalStore,
    runtime: SystemRuntime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dray.tables.compaction.spark import writer as module

    def failing(*_):
        def fail(batches):
            raise RuntimeError("a mistake of ours")
            yield

        return fail

    monkeypatch.setattr(module, "_in_worker", failing)
    with pytest.raises(SparkJobFailed) as caught:
        await SparkUnitWriter(session, address(tmp_path), runtime).write(await units(objects, 1))
    assert "\n" not in str(caught.value)
    assert str(caught.value) == "the Spark job failed: RuntimeError: a mistake of ours"
    session.check()


async def test_secrets_stay_out_of_sight(
    session: SparkProcess, objects: LocalStore, runtime: SystemRuntime, tmp_path: Path, spark_log: Path
) -> None:
    """A local store has no secrets, so every unit fails; what is looked at is what was written about it."""
    store = StoreAddress(f"file:{tmp_path / 'objects'}", {}, {"secret_access_key": "hunter2-hunter2"})
    assert "hunter2" not in repr(store)
    answers = await SparkUnitWriter(session, store, runtime).write(await units(objects, 2))
    assert all(isinstance(answer, UnitFailed) for answer in answers)
    assert "hunter2" not in str(answers)
    assert not any("hunter2" in value for _, value in session.spark.sparkContext.getConf().getAll())
    assert b"hunter2" not in await runtime.in_thread(spark_log.read_bytes)


async def test_workers_open_a_store_that_asks_for_secrets(
    session: SparkProcess, runtime: SystemRuntime, tmp_path: Path, spark_log: Path
) -> None:
    with S3Process(tmp_path) as server:
        address = StoreAddress(f"s3://{BUCKET}/log", server.options(), server.secrets())
        store = await open_store(address.url, address.options, runtime, address.secrets)
        entry = await wal_entry(store, 0, [kafka_batch(records(0, 40))])
        [answer] = await SparkUnitWriter(session, address, runtime).write([unit_of([entry])])
        assert isinstance(answer, WrittenFile), answer
        assert (await store.head(answer.path)).size == answer.file_size
        await store.close()
    assert SECRET_KEY not in repr(address)
    assert SECRET_KEY.encode() not in await runtime.in_thread(spark_log.read_bytes)


async def test_a_jvm_that_dies_is_noticed(
    session: SparkProcess, objects: LocalStore, runtime: SystemRuntime, tmp_path: Path
) -> None:
    """The last of this session."""
    session.check()
    session._process.kill()
    session._process.wait()
    with pytest.raises(SparkDied, match="JVM has ended, with exit code -9"):
        await SparkUnitWriter(session, address(tmp_path), runtime).write(await units(objects, 1))


def test_a_master_that_spark_does_not_know_is_one_line(session: SparkProcess) -> None:
    """After the session above has ended: a process has one at a time."""
    with pytest.raises(SparkDied):
        session.stop()
    with pytest.raises(SparkUnavailable) as caught:
        open_session(SparkSettings(master="nonsense"))
    assert "nonsense" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_dead_session_says_so() -> None:
    class Gone:
        def poll(self) -> int:
            return 137

    with pytest.raises(SparkDied, match="exit code 137"):
        SparkProcess(None, Gone(), 1).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["sc://127.0.0.1:9", "sc://127.0.0.1:9/;token=T0K3N", "sc://127.0.0.1:x"])
def test_a_connect_server_that_is_not_there_is_one_line(address: str) -> None:
    """At once: the library would try for ten minutes."""
    with pytest.raises(SparkUnavailable) as caught:
        open_session(SparkSettings(master=address))
    assert str(caught.value).startswith("no Spark Connect server at sc://127.0.0.1:")
    assert "\n" not in str(caught.value)
    assert "T0K3N" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("no such master\nat org.apache.Spark", "no such master"),
        (
            "\n  An exception was thrown.\nTraceback (most recent call last):\n  File x\nOSError: no\n\n",
            "OSError: no",
        ),
        ("", "PySparkRuntimeError"),
    ],
)
def test_the_one_line_of_an_error(text: str, line: str) -> None:
    from pyspark.errors import PySparkRuntimeError

    assert reason_of(PySparkRuntimeError(text)) == line


def test_the_python_of_the_workers() -> None:
    plain, named = SparkSettings(), SparkSettings(conf={"spark.pyspark.python": "/opt/dray/bin/python"})
    shell = {"PYSPARK_PYTHON": "python2"}
    submitted = {"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_PYTHON": "./environment/bin/python"}
    assert worker_python(plain, shell) == sys.executable, "what this process runs, whatever a shell says"
    assert worker_python(plain, submitted) == "./environment/bin/python", "a place on the executors"
    assert worker_python(plain, {"PYSPARK_GATEWAY_PORT": "1"}) == sys.executable
    assert worker_python(named, shell) == worker_python(named, submitted) == "/opt/dray/bin/python"


# --- Java


def fake_java(folder: Path, says: str) -> Path:
    home = folder / "java home"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return home


def test_java_of_java_home_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path, 'openjdk version "21.0.1" 2023-10-17')
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == str(home / "bin" / "java")
    assert find_java({"PATH": str(home / "bin")}) == str(home / "bin" / "java")


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ('java version "1.8.0_392"', "is Java 8"),
        ('openjdk version "11.0.2"', "is Java 11"),
        ("hm", "its version"),
    ],
)
def test_a_java_that_is_too_old(tmp_path: Path, says: str, told: str) -> None:
    home = fake_java(tmp_path, says)
    with pytest.raises(SparkUnavailable, match=told):
        find_java({"JAVA_HOME": str(home)})


def test_no_java_is_one_line(tmp_path: Path) -> None:
    for environment in ({"PATH": str(tmp_path)}, {"JAVA_HOME": str(tmp_path)}, {}):
        with pytest.raises(SparkUnavailable) as caught:
            find_java(environment)
        assert "Java 17" in str(caught.value)
        assert "\n" not in str(caught.value)


# --- packing


async def test_tiny_units_share_tasks_and_large_ones_do_not(
    objects: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_writer, "UNITS_PER_TASK", 30)
    small = await units(objects, 80)
    large = [
        unit_of([await wal_entry(objects, 0, [kafka_batch(records(0, 10, size=size))])], stream=9000 + size)
        for size in (4_000, 9_000)
    ]
    tasks = tasks_of([*small, *large], 2)
    assert sorted(unit.stream for task in tasks for unit in task) == sorted(
        unit.stream for unit in [*small, *large]
    )
    assert max(map(len, tasks)) <= 30
    sizes = [sum(map(weight_of, task)) for task in tasks]
    assert sizes == sorted(sizes, reverse=True), "the longest first"
    assert len(tasks) < 10


async def test_every_core_has_something_to_do(objects: LocalStore) -> None:
    assert len(tasks_of(await units(objects, 8), 4)) >= 4
    assert len(tasks_of(await units(objects, 1), 4)) == 1
    assert tasks_of([], 4) == []


def test_answers_travel_as_rows() -> None:
    failed = UnitFailed(3, 4, "why", retriable=True)
    assert from_row(to_row(failed)) == failed
