"""A topic that is compacted by key on a small cluster, and histories of it: for merges and for rounds."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from tests.services.compaction_cluster import ALL, Cluster
from tests.services.keyed_log import KeyedLog, read_keyed
from tests.unit.tables.compaction.faults import Fault, count_calls

from dray.broker.topics.model import TopicSettings
from dray.log.entries import IndexEntry
from dray.log.parquet.writer import FileWriter
from dray.metadata import keys
from dray.metadata.contract import MetadataError, Put
from dray.objects.contract import ObjectError
from dray.tables.compaction.model import Unit
from dray.tables.compaction.paths import file_path, unit_prefix
from dray.tables.compaction.writing.sources import rows_of
from dray.tables.contract import TablesUnavailable

RETENTION_MS = 100_000
EAGER = replace(ALL, wal_max_age=0.0, parquet_max_files=1)
# Old entries become files, and files are merged only by key.
LAZY = replace(ALL, wal_max_age=0.0, parquet_max_files=1000)


async def keyed(cluster: Cluster, policy: str = "compact", **config: str) -> KeyedLog:
    overrides = {"cleanup.policy": policy, "delete.retention.ms": str(RETENTION_MS)}
    overrides |= {name.replace("_", "."): value for name, value in config.items()}
    return KeyedLog(cluster, await cluster.topic("orders", config=overrides), RETENTION_MS)


async def offsets(log: KeyedLog) -> list[int]:
    return [row[0] for row in (await read_keyed(log.cluster, log.stream))[0]]


async def cycle(cluster: Cluster, worker_settings: Any = LAZY, times: int = 3) -> None:
    worker = cluster.worker(worker_settings)
    for _ in range(times):
        await worker.compactor.run_cycle(everything=False)
    if worker.runtime.failures:
        raise worker.runtime.failures[0]


def altered(log: KeyedLog, **config: str) -> None:
    changed = {**log.topic.config, **{name.replace("_", "."): value for name, value in config.items()}}
    log.topic = replace(log.topic, config=changed, settings=TopicSettings.of(changed, {}))
    log.cluster.topics.topics[:] = [log.topic]


async def without_rows_from(log: KeyedLog, offset: int) -> None:
    """Of the stream's one file, the rows from there on are gone: no merge here leaves such a tail."""
    cluster = log.cluster
    [entry] = await cluster.streams.entries_above(log.stream, -1)
    unit = Unit(
        "orders",
        log.topic.topic_id,
        0,
        log.stream,
        1,
        (entry.value.encode(),),
        0,
        entry.value.end,
        unit_prefix("orders", log.topic.topic_id, 0, log.stream),
    )
    writer, pieces = FileWriter(), []
    async with aclosing(rows_of(unit, cluster.objects, cluster.runtime)) as batches:
        async for rows in batches:
            pieces += writer.add(rows.slice(0, offset))
    last, counted = writer.finish()
    parquet_id = cluster.runtime.uuid()
    path = file_path(unit.prefix, 1, parquet_id)
    await cluster.objects.put(path, [*pieces, *last])
    thinned = IndexEntry.parquet(
        [entry.value], parquet_id, path, counted.file_size, counted.footer_length, counted.row_groups
    )
    key = keys.index_entry(log.stream, thinned.end, thinned.cumulative_size)
    await cluster.streams.write(log.stream, [Put(key, thinned.encode(), entry.version)])


ACTIONS = st.one_of(
    st.tuples(
        st.just("append"),
        st.lists(
            st.tuples(st.sampled_from([b"", b"a", b"b", b"c"]), st.sampled_from([None, None, b"1", b"2"])),
            min_size=1,
            max_size=4,
        ),
    ),
    st.tuples(st.just("sleep"), st.sampled_from([1, 30, 101, 250])),
    st.tuples(st.just("compact"), st.sampled_from(["eager", "lazy", "all"])),
    st.tuples(st.just("fault"), st.tuples(st.sampled_from(["crash", "lost reply"]), st.integers(0, 60))),
)


async def history(actions: list[tuple[str, Any]], ratio: str, **bounds: Any) -> None:
    """`bounds`: of bottom merges and cleaning rounds."""
    eager, lazy = replace(EAGER, **bounds), replace(LAZY, **bounds)
    cluster = Cluster()
    log = await keyed(cluster, min_cleanable_dirty_ratio=ratio)
    for what, how in actions:
        if what == "append":
            await log.append(*how)
        elif what == "sleep":
            await asyncio.sleep(how)
        elif what == "fault":
            worker = cluster.worker(eager)
            task = worker.runtime.spawn(_work(worker), "compactor")
            count_calls(worker, Fault(how[1], how[0]), worker.runtime.kill)
            await asyncio.wait([task], timeout=3600)
        elif how == "all":
            await cluster.worker(eager).once()
        else:
            await cycle(cluster, eager if how == "eager" else lazy, 1)
        await log.check()
    await cluster.worker(eager).once()
    await cluster.worker(eager).once()
    await log.check()
    found, _ = await read_keyed(cluster, log.stream)
    end = (await cluster.streams.cleaned(log.stream)).value.end
    assert end == len(log.rows)
    assert len(found) == len({row[1] for row in found}), "one record per key below the clean point"
    rows = await cluster.table_rows(log.topic)
    assert [row[0] for row in rows[0]] == [row[0] for row in found], "the table shows another state"


async def _work(worker: Any) -> None:
    try:
        await worker.compactor.run_cycle(everything=True)
    except (MetadataError, ObjectError, TablesUnavailable):
        return
