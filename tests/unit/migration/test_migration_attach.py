"""An attach, step by step: it may die after any of them, and another process goes on or takes it back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.migration.attach_harness import Cluster, Killed
from tests.unit.migration.sources import aiven_files, local_files, log_dir_files

from dray.broker.topics import NewTopic
from dray.metadata import keys
from dray.migration.attach.found import MigrationRefused
from dray.migration.attach.inventory import SourceLayout
from dray.migration.attach.steps import FAILPOINTS
from dray.migration.record import MigrationLost, MigrationState


@pytest.fixture(params=[SourceLayout.KAFKA_TIERED, SourceLayout.LOG_DIR])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    files = local_files() if request.param is SourceLayout.KAFKA_TIERED else log_dir_files()
    made = Cluster(request.param, files)
    yield made
    made.runtime.close()


@pytest.fixture
async def uploading() -> AsyncIterator[Cluster]:
    """What is uploaded leaves more behind than what is borrowed."""
    made = Cluster(SourceLayout.LOG_DIR, log_dir_files())
    yield made
    made.runtime.close()


ATTACHING = FAILPOINTS[: FAILPOINTS.index("aborting")]
ABORTING = FAILPOINTS[FAILPOINTS.index("aborting") :]
UNSEEN = ATTACHING[: ATTACHING.index("publishing")]


async def test_an_attach_makes_a_topic(cluster: Cluster) -> None:
    order = await cluster.order()
    record = await cluster.process().attach(await cluster.source(), order)
    assert record.state is MigrationState.ATTACHED
    assert tuple(cluster.seen) == ATTACHING
    await cluster.check_attached(order.plan)
    uploaded = cluster.layout is SourceLayout.LOG_DIR
    assert bool(await cluster.uploads()) == uploaded
    # What is ours is known to the collector; what is borrowed is not, so that it is never deleted.
    assert len(await cluster.keys_below(keys.OBJECTS)) == (4 if uploaded else 0)
    assert len(await cluster.keys_below(keys.REFERENCES)) == (4 if uploaded else 0)


async def test_encrypted_segments_are_attached_where_they_lie() -> None:
    cluster = Cluster(SourceLayout.AIVEN, aiven_files())
    order = await cluster.order()
    await cluster.process().attach(await cluster.source(), order)
    await cluster.check_attached(order.plan)
    assert await cluster.uploads() == []
    cluster.runtime.close()


@pytest.mark.parametrize("step", ATTACHING)
async def test_another_process_goes_on_after_any_step(cluster: Cluster, step: str) -> None:
    order = await cluster.order()
    with pytest.raises(Killed):
        await cluster.process(step).attach(await cluster.source(), order)
    if step in UNSEEN:
        assert await cluster.process().topics.refresh("orders") is None
    record = await cluster.process().attach(await cluster.source(), await cluster.order())
    assert record.state is MigrationState.ATTACHED
    await cluster.check_attached(order.plan)
    streams = {keys.stream_of(key) for key in await cluster.keys_below(keys.STREAMS)}
    assert len(streams) == 2


@pytest.mark.parametrize("step", UNSEEN)
@pytest.mark.parametrize("dies_again", ["", *ABORTING])
async def test_an_abort_leaves_nothing_behind(uploading: Cluster, step: str, dies_again: str) -> None:
    order = await uploading.order()
    with pytest.raises(Killed):
        await uploading.process(step).attach(await uploading.source(), order)
    if dies_again:
        with pytest.raises(Killed):
            await uploading.process(dies_again).abort("orders")
    await uploading.process().abort("orders")
    left = await uploading.keys_below(
        keys.STREAMS, keys.MIGRATIONS, keys.TOPICS, keys.GROUP_OFFSETS, keys.REFERENCES
    )
    # The mark of a closed stream stays for some weeks, as after the deletion of a topic.
    assert {key.rpartition("/")[2] for key in left} <= {"hwm"}
    assert await uploading.uploads() == []
    await uploading.process().attach(await uploading.source(), order)
    await uploading.check_attached(order.plan)


@pytest.mark.parametrize("begun_again", [False, True])
@pytest.mark.parametrize("sleeps_before", ["take_ids", "_stream"])
async def test_a_process_that_was_aborted_lays_nothing_down(
    cluster: Cluster, sleeps_before: str, begun_again: bool
) -> None:
    """It sleeps while another one aborts, and wakes up. Were its streams laid down, it would die with
    them."""
    order = await cluster.order()
    source = await cluster.source()
    slow = cluster.process("laid down")
    sleeper: Any = slow._lifecycle if sleeps_before == "take_ids" else slow
    real = getattr(sleeper, sleeps_before)
    asleep = True

    async def woken(*arguments: Any) -> Any:
        nonlocal asleep
        if asleep:
            asleep = False
            await cluster.process().abort("orders")
            if begun_again:
                with pytest.raises(Killed):
                    await cluster.process("begun").attach(source, order)
        return await real(*arguments)

    setattr(sleeper, sleeps_before, woken)
    with pytest.raises(MigrationLost):
        await slow.attach(source, order)
    assert await cluster.process().topics.refresh("orders") is None
    left = await cluster.keys_below(keys.STREAMS)
    assert {key.rpartition("/")[2] for key in left} <= {"hwm"}
    assert await cluster.uploads() == []
    record = await cluster.process().migrations.read("orders")
    assert (record is not None) == begun_again
    assert record is None or record.streams == ()


async def test_what_has_no_way_back_is_finished_without_the_source(cluster: Cluster) -> None:
    order = await cluster.order()
    assert await cluster.process().finish("orders") is None
    with pytest.raises(Killed):
        await cluster.process("publishing").attach(await cluster.source(), order)
    record = await cluster.process().finish("orders")
    assert record is not None
    assert record.state is MigrationState.ATTACHED
    await cluster.check_attached(order.plan)


async def test_a_topic_that_is_published_is_not_aborted(cluster: Cluster) -> None:
    with pytest.raises(Killed):
        await cluster.process("publishing").attach(await cluster.source(), await cluster.order())
    with pytest.raises(MigrationRefused, match="no way back but to delete it"):
        await cluster.process().abort("orders")
    assert await cluster.process().abort("payments") is None


async def test_another_plan_is_another_migration(cluster: Cluster) -> None:
    with pytest.raises(Killed):
        await cluster.process("laid down").attach(await cluster.source(), await cluster.order())
    order = await cluster.order()
    changed = replace(order.plan, topic_id=UUID(int=9))
    with pytest.raises(MigrationRefused, match="with another plan"):
        await cluster.process().attach(await cluster.source(), replace(order, plan=changed))


async def test_a_refused_partition_refuses_the_attach_and_nothing_is_written(cluster: Cluster) -> None:
    path = next(path for path in sorted(cluster.files) if path.endswith(".log"))
    cluster.files[path] = cluster.files[path][:-5]
    with pytest.raises(MigrationRefused, match="partition 0"):
        await cluster.process().attach(await cluster.source(), await cluster.order())
    assert await cluster.keys_below(keys.MIGRATIONS, keys.STREAMS) == []


async def test_a_topic_that_was_born_here_is_not_attached_over(cluster: Cluster) -> None:
    process = cluster.process()
    await process.topics.create(NewTopic("orders", 1))
    with pytest.raises(MigrationRefused, match="exists already, and was not attached"):
        await process.attach(await cluster.source(), await cluster.order())


async def test_a_topic_that_was_deleted_is_attached_again(cluster: Cluster) -> None:
    order = await cluster.order()
    first = await cluster.process().attach(await cluster.source(), order)
    process = cluster.process()
    await process.topics.read_all()
    await process.topics.delete("orders")
    second = await cluster.process().attach(await cluster.source(), order)
    assert second.migration_id != first.migration_id
    await cluster.check_attached(order.plan)


async def test_the_source_keeps_every_byte(cluster: Cluster) -> None:
    source = await cluster.source()
    await cluster.process().attach(source, await cluster.order())
    found = {info.path: bytes(await source.store.get(info.path)) for info in await source.listed()}
    assert found == cluster.files
