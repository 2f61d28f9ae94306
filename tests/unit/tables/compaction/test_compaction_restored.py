"""After a restore of earlier metadata the log goes on with compacted files, and its table is what it is."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.services import compaction_cluster  # noqa: F401 - its tests run on virtual time: see conftest
from tests.services.compaction_cluster import ALL, Cluster
from tests.unit.tables.compaction.by_key import EAGER, cycle, keyed, offsets

from dray.broker.topics.model import Topic
from dray.daemons.assembly.stores import Stores
from dray.daemons.config import load
from dray.daemons.recovery import lost as lost_command
from dray.daemons.recovery.brought_back import (
    Continuation,
    FoundFile,
    RestoreNote,
    continuations,
    decode_note,
    encode_note,
    read_notes,
)
from dray.daemons.recovery.restored import (
    LostOffsets,
    bring_all_back,
    find_lost,
    plan_bringing_back,
    put_right,
)
from dray.log.life.collector import Collector
from dray.log.life.lost_objects import LostObjects
from dray.metadata.values import ValueCorrupt

VALUES = Path(__file__).parents[3] / "fixtures" / "values"
MERGING = replace(ALL, parquet_max_files=1)


class Moment:
    """The metadata of a cluster, to go back to."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._domains = copy.deepcopy(cluster.state._domains)
        self._at = cluster.runtime.wall_ms()

    async def restore(self, *, as_planned: bool = True) -> list[LostOffsets]:
        cluster = self._cluster
        cluster.state._domains = self._domains
        topics = cluster.topics.topics
        lost, _ = await find_lost(cluster.store, cluster.objects, cluster.streams, topics, self._at)
        await plan_bringing_back(cluster.streams, lost, await read_notes(cluster.objects))
        planned = [each.brought_to for each in lost]
        await bring_all_back(cluster.objects, cluster.streams, cluster.runtime, lost, None)
        assert not as_planned or [each.brought_to for each in lost] == planned, "the look said so"
        await put_right(cluster.store, cluster.streams, cluster.runtime, topics, None)
        cluster.log = cluster.new_log()
        return lost


async def compacted(cluster: Cluster, merging: bool = False) -> None:
    """And what it replaced is deleted."""
    for topic in cluster.topics.topics:
        for stream in topic.streams:
            await cluster.seal(stream)
    assert (await cluster.worker(MERGING if merging else ALL).once()).troubles == []
    collector = Collector(
        cluster.streams, cluster.objects, cluster.runtime, cluster.settings, may_delete=cluster.may_delete
    )
    for _ in range(3):
        await collector.run()
        await asyncio.sleep(cluster.settings.orphan_ttl + 1)
    await cluster.worker().once()
    assert cluster.wal_objects() == set()


async def settled(cluster: Cluster, topic: Topic) -> None:
    """After it went on for a while: the table has what the log has, and no file is left over."""
    for stream in topic.streams:
        await cluster.fill(stream, 2, first=100)
        await cluster.seal(stream)
    await cluster.worker().once()
    await cluster.check_settled()


@pytest.mark.parametrize(
    ("before", "merging"), [("compacted", False), ("compacted", True), ("as it came", True)]
)
async def test_the_table_is_what_the_log_is(before: str, merging: bool) -> None:
    """Where files were merged since, the objects of the backup's entries are gone: the files have their
    rows."""
    cluster = Cluster()
    topic = await cluster.topic("orders", 2)
    first, _ = topic.streams
    await cluster.fill(first, 2)
    if before == "compacted":
        await cluster.fill(topic.streams[1], 1)
        await compacted(cluster)
    moment = Moment(cluster)
    for turn in range(1, 3):
        await cluster.fill(first, 2, first=2 * turn)
        await compacted(cluster, merging)
    lost = await moment.restore()
    assert [each.brought_to - each.end for each in lost] == [8, 0]
    assert not any(each.is_lost for each in lost)
    await cluster.check_log()
    await settled(cluster, topic)
    assert [len(rows) for rows in (await cluster.table_rows(topic)).values()] == [
        len(cluster.written[stream]) for stream in topic.streams
    ]


async def test_what_is_behind_a_hole_leaves_the_table() -> None:
    """A file that the log does not have: its number is spent, so it is garbage at once."""
    cluster = Cluster()
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 2)
    await compacted(cluster)
    moment = Moment(cluster)
    for turn in range(1, 4):
        await cluster.fill(stream, 2, first=2 * turn)
        await compacted(cluster)
    middle = [entry.value for entry in await cluster.streams.entries_above(stream, -1)][2]
    del cluster.bucket.objects[middle.path]
    [lost] = await moment.restore()
    assert (lost.end, lost.brought_to, lost.known_to) == (4, 8, 16)
    del cluster.written[stream][8:]
    await cluster.check_log()
    assert {path for note in await read_notes(cluster.objects) for path in note.given_up} == set(
        lost.given_up
    )
    assert len(lost.given_up) == 1
    assert (await cluster.streams.job(stream)).value.number == lost.highest_job == 4
    await settled(cluster, topic)


async def test_the_last_of_a_key_is_what_comes_back() -> None:
    """Files that were compacted by key have holes, which are none of the log's. The third record is the only
    one of its key, so the file begins inside of the entry that the backup has."""
    cluster = Cluster()
    log = await keyed(cluster)
    await log.append((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    await cluster.seal(log.stream)
    await cycle(cluster)
    moment = Moment(cluster)
    await log.append((b"a", b"2"), (b"b", b"2"))
    await log.append((b"a", b"3"), (b"b", b"3"))
    await cluster.seal(log.stream)
    await cycle(cluster, EAGER, times=5)
    assert await offsets(log) == [2, 5, 6]
    await log.check()
    [lost] = await moment.restore()
    assert (lost.end, lost.brought_to, lost.known_to) == (3, 7, 7)
    assert await offsets(log) == [2, 5, 6]
    await log.check()
    await cycle(cluster, EAGER, times=5)
    assert [offset for offset, _ in (await cluster.table_rows(log.topic))[0]] == [2, 5, 6]
    await log.append((b"a", b"4"))
    await log.check()


async def test_a_file_with_the_last_copy_of_what_the_log_has_stays_in_the_table() -> None:
    """It was made of the entries of the backup, and does not reach beyond the end: `drayd admin lost` brings
    its rows back from the table."""
    cluster = Cluster()
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 2)
    moment = Moment(cluster)
    await compacted(cluster)
    await cluster.fill(stream, 2, first=2)
    await compacted(cluster)
    [lost] = await moment.restore()
    assert (lost.end, lost.brought_to, len(lost.below)) == (4, 8, 1)
    await cluster.worker().once()
    assert lost.below[0].path in cluster.files()
    assert [offset for offset, _ in (await cluster.table_rows(topic))[0]] == list(range(8))


async def recovered(cluster: Cluster, topic: Topic) -> list[str]:
    """What `drayd admin lost --recover --execute` says of the first partition, where there are no tables."""
    settings = load(environment={"DRAY_ICEBERG__ENABLED": "false"}).settings
    streams, runtime = cluster.streams, cluster.runtime
    objects = LostObjects(streams, lambda _: cluster.objects, cluster.may_delete, runtime)
    stores = Stores(cluster.store, cluster.objects)
    opened = lost_command._Opened(runtime, stores, streams, objects, settings, "a cluster")
    entries = await objects.of(topic.streams[0])
    found = await lost_command._recover(settings, opened, topic, 0, entries, confirmed=True)
    return [each.state for each in found]


async def test_rows_of_objects_that_were_compacted_since_come_back_without_a_table() -> None:
    """The backup's entries name WAL objects. They were compacted into a file that does not reach beyond the
    end, and deleted: that file has all their records."""
    cluster = Cluster()
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    moment = Moment(cluster)
    await compacted(cluster)
    [found] = await moment.restore()
    assert (found.end, found.brought_to, len(found.below)) == (6, 6, 1)
    assert await recovered(cluster, topic) == ["2 of 2 rows are back"] * 3
    await cluster.check_log()


async def test_rows_that_a_restore_gave_up_do_not_come_back() -> None:
    """Their offsets have other records by now."""
    cluster = Cluster()
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 2)
    await compacted(cluster)
    moment = Moment(cluster)
    for turn in range(1, 4):
        await cluster.fill(stream, 2, first=2 * turn)
        await compacted(cluster)
    middle = [entry.value for entry in await cluster.streams.entries_above(stream, -1)][2]
    del cluster.bucket.objects[middle.path]
    [found] = await moment.restore()
    assert (found.brought_to, len(found.given_up)) == (8, 1)
    del cluster.written[stream][8:]
    await cluster.fill(stream, 4, first=100)
    for path in cluster.wal_objects():
        cluster.bucket.delete(path)
    states = await recovered(cluster, topic)
    assert states
    assert {state.partition(" ")[0] for state in states} == {"0"}


async def test_by_key_all_comes_back_or_nothing() -> None:
    """A tombstone of a later file may be gone, and what it deleted be in an entry of the backup."""
    cluster = Cluster()
    log = await keyed(cluster)
    await log.append((b"a", b"1"), (b"b", b"1"))
    moment = Moment(cluster)
    await cluster.seal(log.stream)
    await cycle(cluster)
    await log.append((b"b", b"2"), (b"c", b"2"))
    await cluster.seal(log.stream)
    await cycle(cluster)
    [lost] = await moment.restore()
    assert (lost.end, lost.brought_to, lost.known_to, len(lost.below)) == (2, 2, 4, 1)


async def test_a_damaged_file_is_no_file() -> None:
    cluster = Cluster()
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 2)
    await compacted(cluster)
    moment = Moment(cluster)
    await cluster.fill(stream, 2, first=2)
    await compacted(cluster)
    [path] = [entry.value.path for entry in await cluster.streams.entries_above(stream, 4)]
    held = cluster.bucket.objects[path]
    damaged = bytearray(held.data)
    damaged[60] ^= 255
    cluster.bucket.objects[path] = replace(held, data=bytes(damaged))
    [lost] = await moment.restore(as_planned=False)
    assert (lost.end, lost.brought_to, lost.known_to, lost.given_up) == (4, 4, 8, [path])
    del cluster.written[stream][4:]
    await cluster.check_log()


# --- which files


def file(job: int, first: int, last: int) -> FoundFile:
    return FoundFile(f"job-{job}", UUID(int=job), job, 100, 0, first, last)


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ([file(2, 10, 14), file(3, 15, 19)], [(2, 10), (3, 15)]),
        ([file(3, 15, 19)], []),
        ([file(2, 10, 14), file(3, 16, 19)], [(2, 10)]),
        ([file(2, 10, 14), file(3, 15, 19), file(4, 5, 19)], [(4, 5)]),
        ([file(2, 10, 14), file(4, 10, 14), file(3, 10, 19)], [(4, 10)]),
        ([file(2, 7, 14)], []),  # it begins inside of an entry
        ([file(2, 5, 9)], []),
    ],
    ids=["in order", "a hole at once", "a hole", "merged", "highest job", "inside", "not beyond"],
)
def test_which_files_a_stream_goes_on_with(files: list[FoundFile], wanted: list[tuple[int, int]]) -> None:
    found = continuations([0, 5], 10, files, compacts=False)
    assert [(each.file.job, each.start) for each in found] == wanted


def test_a_file_that_was_compacted_by_key_began_with_an_entry() -> None:
    cleaned = file(2, 7, 14)
    assert continuations([0, 5], 10, [cleaned], compacts=True) == [Continuation(cleaned, 5)]
    assert continuations([0, 5], 10, [file(2, 12, 14)], compacts=True) == [], "or there is a hole"


NOTE = RestoreNote(7, ("compaction/v1/a", "compaction/v1/b"))


def test_a_note_is_stored_like_this() -> None:
    assert (VALUES / "restore-note.v1.bin").read_bytes() == encode_note(NOTE)
    assert decode_note("dray-restores/7", encode_note(NOTE)) == NOTE
    with pytest.raises(ValueCorrupt):
        decode_note("dray-restores/7", encode_note(NOTE)[:-1])
