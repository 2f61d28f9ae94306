"""What was deleted leaves the table: rows below a start are gone after the next cycle, and never enter it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL, MANY, Cluster, Worker
from tests.simulation.scripted import Fate

from dray.broker.topics.model import Topic
from dray.kafka.records import decode, validate
from dray.log.jobs.machine import StartPlanned, advance
from dray.log.parquet import writer
from dray.log.types import ReadRequest
from dray.metadata.contract import Limits
from dray.tables.compaction.model import UnitFailed
from dray.tables.compaction.summary import CycleSummary

assert compaction_cluster  # its tests run on virtual time: see conftest

# No collector has its turn, and files are not merged: only what a plain cycle does.
PLAIN = replace(ALL, wal_max_age=0.0, collect_seconds=1e9, parquet_max_files=1000)


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


async def cycle(worker: Worker) -> CycleSummary:
    """One plain cycle, as a compactor makes one after the other."""
    summary = await worker.compactor.run_cycle(everything=False)
    assert worker.runtime.failures == []
    assert summary.troubles == []
    return summary


async def compacted(cluster: Cluster, partitions: int = 1, batches: int = 3) -> tuple[Topic, Worker]:
    """A topic whose records are all in one file per partition, and a compactor that has seen that."""
    topic = await cluster.topic("orders", partitions)
    for stream in topic.streams:
        await cluster.fill(stream, batches)
    worker = cluster.worker(PLAIN)
    await worker.once()
    await cycle(worker)
    return topic, worker


async def offsets(cluster: Cluster, topic: Topic, partition: int = 0) -> list[int]:
    return [offset for offset, _ in (await cluster.table_rows(topic))[partition]]


async def test_rows_below_the_start_are_gone_after_the_next_cycle(cluster: Cluster) -> None:
    """In the middle of a file, and of a batch in it."""
    topic, worker = await compacted(cluster)
    [stream] = topic.streams
    assert await cluster.log.delete_records(stream, 3) == 3
    assert await offsets(cluster, topic) == [0, 1, 2, 3, 4, 5]
    await cycle(worker)
    assert await offsets(cluster, topic) == [3, 4, 5]
    assert await cluster.entries(stream) == ["parquet 3-6"]
    await cluster.check_log()
    summary = await cycle(worker)
    assert (summary.units, summary.commits) == (0, 0), "once is enough"
    await cluster.check_settled()
    assert len(cluster.files()) == 1, "the bytes are gone too"


async def test_all_there_is_includes_what_a_brokers_job_was_in_the_way_of(cluster: Cluster) -> None:
    """The cycle ended that job, did no more for the stream, and said that nothing was left."""
    topic, worker = await compacted(cluster)
    [stream] = topic.streams
    job = await cluster.streams.job(stream)
    await cluster.streams.perform(stream, job, advance(stream, job.value, StartPlanned(3, 0)))
    await worker.once()
    assert await offsets(cluster, topic) == [3, 4, 5]


async def test_records_deleted_before_their_first_compaction_never_enter_the_table(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.append(stream, b"0", b"1", b"2", b"3")
    await cluster.append(stream, b"4")
    await cluster.log.delete_records(stream, 2)
    await cluster.seal(stream)
    worker = cluster.worker(PLAIN)
    await cycle(worker)
    assert await offsets(cluster, topic) == [2, 3, 4]
    seen = {offset for snapshot in cluster.catalog.tables["orders"].snapshots for offset in shown(snapshot)}
    assert seen == {2, 3, 4}, "not even for a moment"
    await cluster.check_settled()


def shown(snapshot: object) -> list[int]:
    files = snapshot.files.values()  # type: ignore[attr-defined]
    return [offset for file in files for offset in range(file.first_offset, file.last_offset + 1)]


async def test_whole_files_leave_in_the_same_cycle(cluster: Cluster) -> None:
    """They used to wait for the collectors' turn."""
    topic, worker = await compacted(cluster)
    [stream] = topic.streams
    for turn in (3, 4):
        await cluster.fill(stream, 1, first=turn)
        await cluster.seal(stream)
        await cycle(worker)
    assert await cluster.entries(stream) == ["parquet 0-6", "parquet 6-8", "parquet 8-10"]
    await cluster.log.delete_records(stream, 9)
    summary = await cycle(worker)
    assert not summary.collected
    assert await offsets(cluster, topic) == [9]
    await cluster.check_settled()


async def test_a_start_that_is_seen_before_its_entries_are_gone() -> None:
    """A compactor looks while a broker is between raising the start and deleting what lies below, of which
    there is more than one write can delete."""
    cluster = Cluster(limits=Limits(operations=8, value_bytes=1 << 20))
    topic, worker = await compacted(cluster)
    [stream] = topic.streams
    for turn in range(3, 10):
        await cluster.fill(stream, 1, first=turn)
        await cluster.seal(stream)
        if turn < 9:
            await cycle(worker)
    looking = worker.store.hold("get", "/start")
    cycling = asyncio.ensure_future(cycle(worker))
    await looking.reached()
    raised = cluster.store.hold("write", "/offset-index/")
    deleting = asyncio.ensure_future(cluster.log.delete_records(stream, 18))
    await raised.reached()
    looking.release()
    await cycling
    raised.release()
    await deleting
    await asyncio.sleep(1)  # what lies below is deleted behind the answer
    await cycle(worker)
    assert await offsets(cluster, topic) == [18, 19]


async def test_what_a_catalog_that_is_down_delays_is_done_by_the_next_cycle(cluster: Cluster) -> None:
    topic, worker = await compacted(cluster)
    [stream] = topic.streams
    await cluster.fill(stream, 1, first=3)
    await cluster.seal(stream)
    await cycle(worker)
    await cluster.log.delete_records(stream, 6)
    worker.tables.down = True
    assert (await worker.compactor.run_cycle(everything=False)).troubles
    worker.tables.down = False
    await cycle(worker)
    assert await offsets(cluster, topic) == [6, 7]


async def test_several_partitions_are_one_commit(cluster: Cluster) -> None:
    topic, worker = await compacted(cluster, partitions=3)
    for partition, stream in enumerate(topic.streams):
        await cluster.log.delete_records(stream, partition + 1)
    before = cluster.catalog.commits
    await cycle(worker)
    assert cluster.catalog.commits == before + 1
    for partition in range(3):
        assert await offsets(cluster, topic, partition) == list(range(partition + 1, 6))
    await cluster.check_settled()


async def test_only_what_is_left_is_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups below the start, and other files, are known by the index: nothing of them is asked for."""
    monkeypatch.setattr(writer, "GROUP_BYTES", 1)
    monkeypatch.setattr(
        "dray.tables.compaction.writing.sources.PIECE_BYTES", 1
    )  # so each batch is a row group
    topic, worker = await compacted(cluster, batches=6)
    [stream] = topic.streams
    await cluster.fill(stream, 2, first=6)
    await cluster.seal(stream)
    await cycle(worker)
    entry, other = [each.value for each in await cluster.streams.entries_above(stream, -1)]
    groups = entry.row_groups()
    assert [group.first_offset for group in groups] == [0, 2, 4, 6, 8, 10]
    asked: list[tuple[str, int]] = []
    kept = worker.objects.get_ranges

    async def get_ranges(path, ranges):
        asked.extend((path, first) for first, _ in ranges)
        return await kept(path, ranges)

    monkeypatch.setattr(worker.objects, "get_ranges", get_ranges)
    await cluster.log.delete_records(stream, 9)
    await cycle(worker)
    footer = entry.file_size - entry.footer_length
    assert sorted(asked) == [
        (entry.path, groups[4].position),
        (entry.path, groups[5].position),
        (entry.path, footer),
    ]
    assert other.path in cluster.catalog.tables["orders"].newest.files
    assert await offsets(cluster, topic) == list(range(9, 16))


async def test_sequence_numbers_stay_those_of_the_producer(cluster: Cluster) -> None:
    """Of a batch that is cut when it is first compacted, and once more when its file is trimmed."""
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    last = 2**31 - 1
    await cluster.append(stream, b"0", b"1", b"2", b"3", b"4", producer=(7, 1, last - 1))
    await cluster.append(stream, b"5", b"6", producer=(7, 1, 3))
    await cluster.log.delete_records(stream, 1)
    worker = cluster.worker(PLAIN)
    await worker.once()
    assert await sequences(cluster, stream) == [(1, last, 4), (5, 3, 2)]
    await cluster.log.delete_records(stream, 3)
    await cycle(worker)
    assert await cluster.entries(stream) == ["parquet 3-7"]
    assert await sequences(cluster, stream) == [(3, 1, 2), (5, 3, 2)]
    # And the producer goes on: what is known of it does not depend on what was deleted.
    await cluster.append(stream, b"7", producer=(7, 1, 5))
    await cluster.check_settled()


async def sequences(cluster: Cluster, stream: int) -> list[tuple[int, int, int]]:
    """Of each batch that a consumer is given: base offset, base sequence, records."""
    log = cluster.new_log()
    request = ReadRequest(stream, (await log.bounds(stream)).start, MANY)
    [result] = await log.fetch([request], min_bytes=0, max_bytes=MANY, max_wait_ms=0)
    data = b"".join(result.buffers)
    found = []
    for batch in validate(data, max_batch_bytes=MANY, max_decompressed_bytes=MANY):
        part = data[batch.position : batch.position + batch.length]
        base = next(iter(decode(part).records())).offset
        found.append((base, batch.base_sequence, batch.record_count))
    return found


async def test_a_consumer_reads_on_while_its_file_is_replaced(cluster: Cluster) -> None:
    topic, worker = await compacted(cluster)
    [stream] = topic.streams
    log = cluster.new_log()
    request = ReadRequest(stream, 4, 1)
    [before] = await log.fetch([request], min_bytes=0, max_bytes=1, max_wait_ms=0)
    await cluster.log.delete_records(stream, 3)
    await cycle(worker)
    await cluster.check_settled()  # the old file is gone
    [after] = await log.fetch([ReadRequest(stream, 5, MANY)], min_bytes=0, max_bytes=MANY, max_wait_ms=0)
    assert before.error is None
    assert after.error is None
    assert [record.value for buffer in after.buffers for record in decode(buffer).records()][-1:] == [
        cluster.written[stream][5]
    ]


async def test_what_was_deleted_does_not_come_back_with_a_table_that_is_made_again(cluster: Cluster) -> None:
    """A file is missing in the table, and reaches below the start: it comes as what is left of it."""
    topic, worker = await compacted(cluster)
    [stream] = topic.streams
    await cluster.log.delete_records(stream, 3)
    worker.writer.failing[stream] = UnitFailed(0, 0, "told to", retriable=False)
    cluster.catalog.tables.clear()
    await worker.compactor.run_cycle(everything=True)
    assert cluster.catalog.tables["orders"].newest.files == {}
    worker.writer.failing.clear()
    await asyncio.sleep(PLAIN.failed_pause_seconds)
    await worker.once()
    assert await offsets(cluster, topic) == [3, 4, 5]
    await cluster.check_settled()


async def test_without_a_table_a_file_is_not_written_again(cluster: Cluster) -> None:
    """Nobody sees its first records, and it goes with its last: there is no reason to copy the others."""
    topic = await cluster.topic("plain", config={"dray.iceberg.enabled": "false"})
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    worker = cluster.worker(PLAIN)
    await worker.once()
    await cluster.log.delete_records(stream, 3)
    assert (await cycle(worker)).units == 0
    assert await cluster.entries(stream) == ["parquet 0-6"]
    await cluster.check_log()


async def test_the_table_of_a_topic_that_is_to_have_none_is_left_alone(cluster: Cluster) -> None:
    """It is neither dropped nor written; compaction goes on. What the log loses leaves it all the same."""
    topic, worker = await compacted(cluster)
    [stream] = topic.streams
    cluster.topics.topics[0] = replace(topic, settings=replace(topic.settings, iceberg_enabled=False))
    await cluster.fill(stream, 1, first=3)
    summary = await worker.once()
    assert (summary.files, summary.commits, summary.tables_dropped) == (1, 0, 0)
    assert await cluster.entries(stream) == ["parquet 0-6", "parquet 6-8"]
    assert await offsets(cluster, topic) == [0, 1, 2, 3, 4, 5]
    await cluster.log.delete_records(stream, 6)
    await worker.once()
    assert await offsets(cluster, topic) == []
    assert "orders" in cluster.catalog.tables


async def test_a_file_that_cannot_be_trimmed_does_not_keep_new_records_waiting(cluster: Cluster) -> None:
    topic, worker = await compacted(cluster)
    [stream] = topic.streams
    await cluster.log.delete_records(stream, 3)
    worker.writer.failing[stream] = UnitFailed(0, 0, "its bytes are damaged", retriable=False)
    [trouble] = (await worker.compactor.run_cycle(everything=False)).troubles
    assert "damaged" in trouble.reason
    worker.writer.failing.clear()
    await cluster.fill(stream, 1, first=3)
    await cluster.seal(stream)
    await cycle(worker)
    assert await offsets(cluster, topic) == [0, 1, 2, 3, 4, 5, 6, 7], "the new ones are there"
    await asyncio.sleep(PLAIN.failed_pause_seconds + PLAIN.reread_seconds)
    await cycle(worker)
    assert await offsets(cluster, topic) == [3, 4, 5, 6, 7]


async def test_a_trim_that_has_to_wait_for_its_turn_is_not_forgotten(cluster: Cluster) -> None:
    """A file that is large is never planned for again, as a rule: this one is."""
    topic, _ = await compacted(cluster, partitions=2)
    worker = cluster.worker(replace(PLAIN, target_file_bytes=2, cycle_bytes=1))
    await cycle(worker)
    for stream in topic.streams:
        await cluster.log.delete_records(stream, 3)
    await cycle(worker)
    shown = [await offsets(cluster, topic, partition) for partition in (0, 1)]
    assert sorted(map(len, shown)) == [3, 6], "one of them was enough for a cycle"
    await cycle(worker)
    assert [await offsets(cluster, topic, partition) for partition in (0, 1)] == [[3, 4, 5]] * 2


async def test_an_entry_that_a_late_write_brings_back_is_not_data_again(cluster: Cluster) -> None:
    """The append that filed it arrives once more, after a file from the start on has replaced it."""
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.append(stream, b"0", b"1", b"2")
    late = cluster.store.trap(Fate.COPY, "write", "/offset-index/")
    await cluster.append(stream, b"3")
    await cluster.log.delete_records(stream, 2)
    await asyncio.sleep(1)
    await cluster.worker(PLAIN).once()
    assert await cluster.entries(stream) == ["parquet 2-4"]
    before = len(cluster.keys("/"))
    late.land()
    assert len(cluster.keys("/")) == before + 1, "the entry is back"
    assert await cluster.entries(stream) == ["parquet 2-4"]
    await cluster.check_log()
    await cluster.check_settled()
