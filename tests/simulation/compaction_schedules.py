"""Schedules for the rules of compaction that chance tests too rarely, on scripted stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from tests.services.compaction_cluster import ALL, Cluster, Worker
from tests.simulation.deletion_schedules import DELETION_SCHEDULES
from tests.simulation.left_table_schedules import LEFT_TABLE_SCHEDULES
from tests.simulation.scripted import Fate, Trap

PATIENT = replace(ALL, takeover_seconds=1000.0, wal_max_age=0.0)  # leaves others' jobs alone
MERGING = replace(ALL, parquet_max_files=1)


async def hold(client: object, kind: str, part: str, number: int, *, answered: bool = False) -> Trap:
    """Stop at the call of that number: the earlier ones pass."""
    for _ in range(number - 1):
        passing = client.hold(kind, part)  # type: ignore[attr-defined]
        await passing.reached()
        passing.release()
    held: Trap = client.hold(kind, part, answered=answered)  # type: ignore[attr-defined]
    await held.reached()
    return held


async def filled(batches: int = 2, **config: str) -> tuple[Cluster, int]:
    """One sealed stream of a topic."""
    cluster = Cluster()
    topic = await cluster.topic(
        "orders", config={key.replace("_", "."): text for key, text in config.items()}
    )
    [stream] = topic.streams
    await cluster.fill(stream, batches)
    await cluster.seal(stream)
    await asyncio.sleep(1)
    return cluster, stream


async def others_finish_and_merge(cluster: Cluster, stream: int) -> None:
    """The job that a compactor stands still over is finished, and its file is merged with another."""
    await cluster.worker().once()
    await cluster.fill(stream, 1, first=len(cluster.written[stream]))
    await cluster.worker().once()
    await cluster.worker(MERGING).once()
    await asyncio.sleep(1)
    await cluster.worker().once()  # old snapshots go
    assert len(await cluster.entries(stream)) == 1


# --- starting


async def a_plan_from_an_older_view() -> None:
    cluster, stream = await filled()
    slow = cluster.worker()
    task = slow.start()
    view = await hold(slow.store, "scan", f"/streams/{stream:020d}/", 1, answered=True)
    await cluster.worker().once()
    view.release()
    await task
    await cluster.check_log()
    await cluster.check_settled()


# --- the swap


async def a_swap_that_is_lost() -> None:
    cluster, _ = await filled()
    worker = cluster.worker()
    worker.store.trap(Fate.LOSE, "write", "/offset-index/")
    await worker.once()
    await cluster.check_log()
    await cluster.check_settled()


async def a_compactor_that_reads_from_behind() -> None:
    """By what it reads, its job is not yet where it has just moved it. It reads, since a reply is lost."""
    cluster, stream = await filled()
    worker = cluster.worker()
    worker.store.trap(Fate.LOSE_REPLY, "write", "/producers")
    task = worker.start()
    committed = await hold(worker.store, "write", "/job", 3)
    worker.store.fall_behind(cluster.streams.domain(stream))
    committed.release()
    await task
    await cluster.check_settled()


async def deletes_that_are_lost() -> None:
    cluster, _ = await filled()
    worker = cluster.worker()
    worker.store.trap(Fate.LOSE, "write", "/wal/refs/")
    await worker.once()
    await cluster.check_settled()


async def a_crash_among_the_deletes() -> None:
    cluster, _ = await filled(3)
    worker = cluster.worker()
    task = worker.start()
    held = worker.store.hold("write", "/wal/refs/")
    await held.reached()
    worker.runtime.kill()
    await asyncio.wait([task])
    await cluster.check_settled()


async def a_stream_deleted_after_its_swap() -> None:
    cluster, _ = await filled()
    worker = cluster.worker()
    task = worker.start()
    held = worker.store.hold("write", "/offset-index/", answered=True)
    await held.reached()
    worker.runtime.kill()
    await asyncio.wait([task])
    await cluster.delete(cluster.topics.topics[0])
    await cluster.check_settled()


# --- tables


async def a_commit_after_all_is_over() -> None:
    """Before it loads the table, the others finish its job, merge the file away, and forget the commit."""
    cluster, stream = await filled()
    await cluster.worker().once()  # so that the table is there
    await cluster.fill(stream, 1, first=2)
    await cluster.seal(stream)
    slow = cluster.worker()
    task = slow.start()
    load = await hold(slow.tables, "load", "orders", 1)
    await others_finish_and_merge(cluster, stream)
    load.release()
    await task
    await cluster.check_settled()


async def a_commit_whose_replies_are_lost() -> None:
    cluster, _ = await filled()
    worker = cluster.worker()
    worker.tables.trap(Fate.LOSE_REPLY, "commit", "orders")
    commit = worker.tables.hold("commit", "orders")  # the one after it, if there is one
    task = worker.start()
    await asyncio.wait([task, asyncio.ensure_future(commit.reached())], timeout=60)
    commit.release()
    await task
    worker = cluster.worker()
    await worker.once()
    await cluster.check_settled()


async def _unclear_commit(cluster: Cluster) -> Worker:
    """It is in the table, and its compactor does not know."""
    worker = cluster.worker()
    task = worker.start()
    held = worker.tables.hold("commit", "orders", answered=True)
    await held.reached()
    worker.runtime.kill()
    await asyncio.wait([task])
    return worker


async def expiry_while_a_job_does_not_know() -> None:
    cluster = Cluster()
    topic = await cluster.topic("orders", 2)
    first, second = topic.streams
    await cluster.fill(first, 2)
    await _unclear_commit(cluster)
    await cluster.fill(second, 2)
    await asyncio.sleep(1)
    patient = cluster.worker(PATIENT)
    summary = await patient.compactor.run_cycle(everything=False)
    assert (summary.left_to_others, summary.finished) == (1, 1)
    await asyncio.sleep(1)
    await patient.compactor.run_cycle(everything=False)  # old snapshots go
    await cluster.worker().once()
    await cluster.check_settled()


async def a_slow_commit_for_a_deleted_stream() -> None:
    cluster, _ = await filled()
    keeping = replace(ALL, drop_tables=False)
    slow = cluster.worker(keeping)
    task = slow.start()
    commit = slow.tables.hold("commit", "orders")
    await commit.reached()
    await cluster.delete(cluster.topics.topics[0])
    await cluster.worker(keeping).once()
    commit.release()
    await asyncio.wait([task])
    await asyncio.sleep(1)
    for _ in range(2):
        await cluster.worker(keeping).once()
    assert cluster.catalog.tables["orders"].newest.files == {}, "rows of a deleted topic"
    assert cluster.files() == set()


async def _merge_before_its_swap(cluster: Cluster, stream: int) -> tuple[Worker, Trap, asyncio.Task[object]]:
    await cluster.worker().once()
    await cluster.fill(stream, 1, first=2)
    await cluster.worker().once()
    merging = cluster.worker(MERGING)
    task: asyncio.Task[object] = merging.runtime.spawn(merging.once(), "compactor")
    swap = merging.store.hold("write", "/offset-index/")
    await swap.reached()
    return merging, swap, task


async def a_table_held_against_the_log_during_a_merge() -> None:
    """What the merge took out of the table is not restored, and what it added is not let go of."""
    cluster, stream = await filled()
    _, swap, task = await _merge_before_its_swap(cluster, stream)
    topic = cluster.topics.topics[0]
    merged = await cluster.table_rows(topic)
    await cluster.worker(PATIENT).compactor.run_cycle(everything=False)
    assert await cluster.table_rows(topic) == merged
    swap.release()
    await task
    await cluster.check_settled()


# --- the collector


async def a_file_that_arrives_while_the_collector_looks() -> None:
    cluster, _ = await filled(dray_iceberg_enabled="false")
    worker, collecting = cluster.worker(), cluster.worker()
    task = worker.start()
    swap = worker.store.hold("write", "/offset-index/")
    await swap.reached()
    looked = collecting.store.hold("scan", "/offset-index/", answered=True)
    collection = asyncio.ensure_future(collecting.compactor.upkeep.files.run())
    await asyncio.wait([collection, asyncio.ensure_future(looked.reached())], return_when="FIRST_COMPLETED")
    swap.release()
    await task
    looked.release()
    await collection
    await cluster.check_log()
    await cluster.check_settled()


async def an_older_snapshot_that_shows_what_was_merged() -> None:
    cluster, stream = await filled()
    keeping = replace(ALL, snapshot_keep_ms=3_600_000)
    await cluster.worker(keeping).once()
    await cluster.fill(stream, 1, first=2)
    await cluster.worker(keeping).once()
    await cluster.worker(replace(keeping, parquet_max_files=1)).once()
    await cluster.worker(keeping).once()
    for snapshot in cluster.catalog.tables["orders"].snapshots:
        assert snapshot.files.keys() <= cluster.files(), "a query of the last hour would fail"
    await cluster.check_settled()


Schedule = Callable[[], Coroutine[Any, Any, None]]

SCHEDULES: dict[Schedule, list[str]] = {
    a_plan_from_an_older_view: ["plan over a later job"],
    a_swap_that_is_lost: ["swap unseen"],
    a_compactor_that_reads_from_behind: ["finish by an older read"],
    deletes_that_are_lost: ["done before the deletes are confirmed"],
    a_crash_among_the_deletes: ["references apart from the index"],
    a_stream_deleted_after_its_swap: ["give up and keep the references"],
    a_commit_after_all_is_over: [
        "commit without asking whether the job is ours",
        "ask before the table is loaded",
    ],
    a_commit_whose_replies_are_lost: ["commit without looking for the job"],
    expiry_while_a_job_does_not_know: ["forget the commits of unfinished jobs"],
    a_slow_commit_for_a_deleted_stream: ["take out only what is there"],
    a_table_held_against_the_log_during_a_merge: [
        "restore what a merge took out",
        "let go of files under way",
    ],
    an_older_snapshot_that_shows_what_was_merged: ["collect without asking the table"],
    a_file_that_arrives_while_the_collector_looks: ["collect by the index before the job"],
    **DELETION_SCHEDULES,
    **LEFT_TABLE_SCHEDULES,
}
