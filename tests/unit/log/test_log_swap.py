"""Producers over compacted entries: a fold never goes over an entry that tells nothing of them."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.simulation.scripted import Fate
from tests.unit.log.harness import World, append, batch_bytes

from dray.log import Log
from dray.log.entries import IndexEntry
from dray.log.jobs.machine import Compaction, IllegalEvent, Input, Job, JobState, SwapImpossible, put_job
from dray.log.jobs.swap import Swap
from dray.log.jobs.values import WrittenFile
from dray.log.parquet.statistics import RowGroup
from dray.log.stream_state import advance_snapshot, load_stream_state
from dray.log.stream_store import StreamStore, Versioned
from dray.log.types import LogUnavailable
from dray.metadata import keys
from dray.metadata.contract import Delete, Put

PARQUET_ID = UUID(int=77)


async def filled(world: World, log: Log) -> tuple[StreamStore, int]:
    """Three entries of one record each by one producer, and a head."""
    [stream] = await log.create_streams(1)
    for number in range(4):
        await append(log, stream, batch_bytes([b"%d" % number], producer=(9, 0, number)))
    return StreamStore(world.store, 2, world.settings.producer_expiry_ms), stream


async def committed_job(store: StreamStore, stream: int) -> Versioned[Job]:
    """A job over the three, as if its file were written and in the table."""
    view = await store.view(stream)
    assert view is not None
    live, _ = view.split()
    group = RowGroup(4, 100, 3, 0, 90, 1000, 1000, 2)
    file = WrittenFile(
        stream=stream,
        job=1,
        path="compaction/file",
        parquet_id=PARQUET_ID,
        file_size=500,
        footer_length=100,
        record_count=3,
        min_timestamp=7,
        max_timestamp=8,
        start=0,
        end=3,
        row_groups=(group,),
        columns=(),
        split_offsets=(4,),
    )
    inputs = tuple(Input.of(entry) for entry in live)
    compaction = Compaction("orders", UUID(int=1), 0, 0, 3, inputs, table=True, written=file.to_json())
    job = await store.job(stream)
    await store.write(
        stream, [put_job(stream, Job(1, JobState.ICEBERG_COMMITTED, compaction=compaction), job.version)]
    )
    return await store.job(stream)


async def test_the_steps_of_a_swap(world: World, log: Log) -> None:
    store, stream = await filled(world, log)
    swap = Swap(store, world.runtime)
    job = await committed_job(store, stream)
    before = await store.entries_above(stream, -1)
    world.store.trap(Fate.LOSE_REPLY, "write", "/producers")
    assert await swap.step(stream, job) is None
    assert (await store.snapshot(stream)).value.upto == 3, "first the producers"
    assert await store.entries_above(stream, -1) == before
    swapped = await swap.step(stream, job)
    [*_, last] = await store.entries_above(stream, -1)
    assert (last.value.start, last.value.end, last.value.object_id) == (0, 3, PARQUET_ID)
    assert (last.value.min_timestamp, last.value.max_timestamp) == (7, 8)
    assert last.value.cumulative_size == before[-1].value.cumulative_size
    assert swapped is not None, "the put says that it was applied"
    assert swapped.value.state is JobState.INDEX_SWAPPED
    done = await swap.step(stream, swapped)
    assert done is not None
    assert done.value == Job(1, JobState.DONE)
    assert [entry.value.object_id for entry in await store.entries_above(stream, -1)] == [PARQUET_ID]
    references = world.keys(keys.REFERENCES)
    assert len(references) == 1, "that of the head"
    state = await load_stream_state(store, stream)
    producer = state.producers.get(9)
    assert producer is not None
    assert [batch.base_offset for batch in producer.batches] == [0, 1, 2, 3]


async def test_a_fold_that_meets_a_compacted_entry_starts_again(world: World, log: Log) -> None:
    """Where the snapshot does not reach past it, the state of the producers is not known."""
    store, stream = await filled(world, log)
    last = (await store.entries_above(stream, -1))[-1]
    entry = IndexEntry.parquet([last.value], PARQUET_ID, "file", 500, 100, [])
    key = keys.index_entry(stream, last.value.end, last.value.cumulative_size)
    await store.write(stream, [Put(key, entry.encode(), last.version)])
    with pytest.raises(LogUnavailable, match="do not meet"):
        await load_stream_state(store, stream)
    assert not await advance_snapshot(store, stream, 3, 0)
    assert (await store.snapshot(stream)).value.upto == 0


async def test_a_swap_has_no_place_in_a_stream_that_was_swept(world: World, log: Log) -> None:
    store, stream = await filled(world, log)
    swap = Swap(store, world.runtime)
    job = await committed_job(store, stream)
    world.store.trap(Fate.LOSE_REPLY, "write", "/producers")
    assert await swap.step(stream, job) is None
    last = job.value.compacted.inputs[-1]
    await store.write(stream, [Delete(keys.index_entry(stream, last.end, last.cumulative_size))])
    with pytest.raises(SwapImpossible, match="no place for compaction/file"):
        await swap.step(stream, job)


async def test_a_swap_whose_reply_is_lost_is_seen_by_the_next_step(world: World, log: Log) -> None:
    store, stream = await filled(world, log)
    job = await committed_job(store, stream)
    swap = Swap(store, world.runtime)
    world.store.trap(Fate.LOSE_REPLY, "write", "/offset-index/")
    with pytest.raises(Exception, match="the reply is lost"):
        await swap.step(stream, job)
    swapped = await swap.step(stream, job)
    assert swapped is not None, "it is seen there"


async def test_a_job_in_another_state_is_refused(world: World, log: Log) -> None:
    store, stream = await filled(world, log)
    with pytest.raises(IllegalEvent, match="job 0 is DONE"):
        await Swap(store, world.runtime).step(stream, await store.job(stream))
