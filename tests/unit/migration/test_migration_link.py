"""A link of a live topic, step by step, and its way back; and the decision that depends on the record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.migration.attach_harness import Cluster, Killed
from tests.unit.migration.sources import local_files

from dray.broker.topics import NewTopic, TopicError
from dray.log.origins import CLASSIC
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.migration.attach.found import MigrationRefused
from dray.migration.attach.inventory import SourceLayout
from dray.migration.attach.steps import AttachOrder
from dray.migration.live.link import link_topic
from dray.migration.live.steps import LiveOrigin, request_switch
from dray.migration.live.stragglers import ProducedStragglers
from dray.migration.mirror.switching import boundary_of, forbid_boundary, switch_stream
from dray.migration.record import MigrationLeases, MigrationRecord, MigrationState

TOPIC_ID = UUID(int=77)
ORIGIN = LiveOrigin("old", TOPIC_ID, 4)
LINKING = ("begun", "streams taken", "laid down", "publishing", "published", "attached")
ABORTING = ("aborting", "topic deleted", "closed", "swept")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster(SourceLayout.KAFKA_TIERED, local_files())
    yield made
    made.runtime.close()


async def link(cluster: Cluster, dies_after: str = "", origin: LiveOrigin = ORIGIN) -> MigrationRecord:
    process = cluster.process(dies_after)
    await process.topics.read_all()
    return await link_topic(process, "orders", origin, [5, 0], {"retention.ms": "-1"}, "kafka:9092")


async def abort(cluster: Cluster, dies_after: str = "") -> None:
    process = cluster.process(dies_after)
    await process.topics.read_all()
    await process.abort("orders")


async def check_linked(cluster: Cluster, record: MigrationRecord) -> None:
    assert record.state is MigrationState.MIRRORING
    topic = await cluster.process().topics.refresh("orders")
    assert topic is not None
    assert (topic.topic_id, topic.leader_epoch) == (TOPIC_ID, 65_540)
    for stream, start in zip(topic.streams, (5, 0), strict=True):
        view = await cluster.streams.view(stream)
        assert view is not None
        mark = view.high_watermark.value
        assert (view.start, mark.end) == (start, start)
        assert mark.origin is not None
        assert mark.origin.boundary == CLASSIC


async def test_a_link_makes_a_topic_that_its_source_owns(cluster: Cluster) -> None:
    record = await link(cluster)
    assert tuple(cluster.seen) == LINKING
    await check_linked(cluster, record)
    assert await link(cluster) == record, "nothing is left to do"


@pytest.mark.parametrize("step", LINKING)
async def test_another_process_goes_on_with_a_link(cluster: Cluster, step: str) -> None:
    with pytest.raises(Killed):
        await link(cluster, step)
    await check_linked(cluster, await link(cluster))
    assert len({keys.stream_of(key) for key in await cluster.keys_below(keys.STREAMS)}) == 2


@pytest.mark.parametrize("step", [*LINKING, ""])
@pytest.mark.parametrize("dies_again", ["", *ABORTING])
async def test_a_link_is_taken_back_at_any_point(cluster: Cluster, step: str, dies_again: str) -> None:
    if step:
        with pytest.raises(Killed):
            await link(cluster, step)
    else:
        await link(cluster)
    if dies_again:
        with pytest.raises(Killed):
            await abort(cluster, dies_again)
    await abort(cluster)
    left = await cluster.keys_below(keys.STREAMS, keys.MIGRATIONS, keys.TOPICS)
    assert {key.rpartition("/")[2] for key in left} <= {"hwm"}
    await check_linked(cluster, await link(cluster))


async def test_groups_are_set_free_before_the_record_is_gone(cluster: Cluster) -> None:
    await link(cluster)
    process = cluster.process()
    await process.topics.read_all()
    states: list[str] = []

    async def set_free() -> None:
        found = await process.migrations.read("orders")
        assert found is not None, "a successor would not know of them"
        states.append(found.state)

    process.before_forgotten = set_free
    await process.abort("orders")
    assert states == ["aborting"]


async def test_groups_are_known_before_the_topic_is_seen(cluster: Cluster) -> None:
    process = cluster.process()
    seen: list[object] = []

    async def follow() -> None:
        seen.append(await process.topics.refresh("orders"))

    process.before_seen = follow
    await link_topic(process, "orders", ORIGIN, [0, 0], {}, "kafka:9092")
    assert seen == [None]


@pytest.mark.parametrize("state", MigrationState)
@pytest.mark.parametrize("by_abort", [False, True])
async def test_a_name_is_free_again_when_its_topic_was_deleted(
    cluster: Cluster, state: MigrationState, by_abort: bool
) -> None:
    """A rehearsal on the real cluster does not use it up. What is under way is aborted instead."""
    record = await link(cluster)
    process = cluster.process()
    await process.topics.read_all()
    if state is MigrationState.ATTACHED:
        return  # of a cold one
    ended = state in (MigrationState.SWITCHED, MigrationState.MOVED)
    at_state = replace(record, state=state)
    await process.migrations.step("orders", record, lambda _: at_state)
    assert await process.forget_deleted("orders") is None, "its topic is here"
    await process.topics.delete("orders")
    produced = ProducedStragglers(cluster.store, cluster.runtime, "orders", UUID(int=1))

    async def producer() -> tuple[int, int]:
        return 1, 0

    await produced.begin(producer)
    forgotten: list[str] = []

    async def forget_groups() -> None:
        forgotten.append("groups")

    process.before_forgotten = forget_groups
    if not ended:
        assert await process.forget_deleted("orders") is None
        assert await process.migrations.read("orders") == at_state
        return
    assert await (process.abort if by_abort else process.forget_deleted)("orders") == at_state
    assert forgotten == ["groups"]
    assert await produced.read() is None
    await check_linked(cluster, await link(cluster))


async def test_a_name_that_another_topic_has_by_now_is_not_linked_over(cluster: Cluster) -> None:
    record = await link(cluster)
    process = cluster.process()
    await process.topics.read_all()
    moved = replace(record, state=MigrationState.MOVED)
    await process.migrations.step("orders", record, lambda _: moved)
    await process.topics.delete("orders")
    await process.topics.create(NewTopic("orders", 1))
    assert await process.forget_deleted("orders") == moved
    with pytest.raises(MigrationRefused, match="exists here already"):
        await link(cluster)


async def test_a_topic_that_is_here_is_not_linked_over(cluster: Cluster) -> None:
    await cluster.process().topics.create(NewTopic("orders", 1))
    with pytest.raises(MigrationRefused, match="exists here already"):
        await link(cluster)


async def test_what_could_not_be_published_is_not_begun(cluster: Cluster) -> None:
    process = cluster.process()
    await process.topics.create(NewTopic("a.b", 1))
    for name in ("a_b", "__consumer_offsets", "a b"):
        with pytest.raises(TopicError):
            await link_topic(process, name, ORIGIN, [0], {}, "kafka:9092")
    assert await cluster.keys_below(keys.MIGRATIONS) == []


async def test_a_link_to_another_cluster_is_refused(cluster: Cluster) -> None:
    await link(cluster)
    with pytest.raises(MigrationRefused, match="was begun otherwise"):
        await link(cluster, origin=replace(ORIGIN, upstream="other"))


async def test_a_tier_is_attached_with_its_source_as_the_owner(cluster: Cluster) -> None:
    order = await cluster.order()
    live = replace(order, live=LiveOrigin("old", order.plan.topic_id or TOPIC_ID, 9))
    assert isinstance(live, AttachOrder)
    record = await cluster.process().attach(await cluster.source(), live)
    assert (record.state, record.leader_epoch, record.has_tier) == (MigrationState.MIRRORING, 65_545, True)
    for partition, stream in zip(order.plan.partitions, record.streams, strict=True):
        view = await cluster.streams.view(stream)
        assert view is not None
        mark = view.high_watermark.value
        assert mark.end == partition.end
        assert mark.origin is not None
        assert (mark.origin.boundary, mark.origin.tier_end) == (CLASSIC, partition.end)
        epochs = partition.lineage.chosen[-1].segment.epochs
        last = [each.epoch for each in epochs if each.offset < partition.end][-1]
        assert mark.origin.source_epoch == last, "the mirror asks with it for the source's history"


@pytest.mark.parametrize("step", LINKING[: LINKING.index("publishing")])
async def test_a_link_whose_source_has_deleted_records_since_is_begun_anew(
    cluster: Cluster, step: str
) -> None:
    """A mirror from the old starts on would find nothing there."""
    with pytest.raises(Killed):
        await link_topic(cluster.process(step), "orders", ORIGIN, [3, 0], {}, "kafka:9092")
    await check_linked(cluster, await link(cluster))
    found = await cluster.process().migrations.read("orders")
    assert found is not None
    assert found.bounds == ((5, 5), (0, 0))
    streams = {keys.stream_of(key) for key in await cluster.keys_below(keys.STREAMS) if "/hwm" not in key}
    assert streams == set(found.streams), "nothing is left of the first one"


async def test_a_link_that_clients_see_is_never_begun_anew(cluster: Cluster) -> None:
    with pytest.raises(Killed):
        await link_topic(cluster.process("publishing"), "orders", ORIGIN, [3, 0], {}, "kafka:9092")
    record = await link(cluster)
    assert (record.state, record.bounds) == (MigrationState.MIRRORING, ((3, 3), (0, 0)))


@pytest.mark.parametrize("step", ["begun", "streams taken", "laid down"])
async def test_a_tier_that_has_changed_since_is_attached_anew(cluster: Cluster, step: str) -> None:
    """A live source goes on tiering, and its retention deletes: the plan of a link that was killed is never
    that of the next one."""
    order = await cluster.order()
    live = replace(order, live=LiveOrigin("old", order.plan.topic_id or TOPIC_ID, 0))
    others = tuple(replace(each, start=each.start + 1) for each in order.plan.partitions)
    before = replace(live, plan=replace(order.plan, partitions=others))
    with pytest.raises(Killed):
        await cluster.process(step).attach(await cluster.source(), before)
    record = await cluster.process().attach(await cluster.source(), live)
    assert (record.state, record.plan) == (MigrationState.MIRRORING, order.plan.digest)
    for partition, stream in zip(order.plan.partitions, record.streams, strict=True):
        view = await cluster.streams.view(stream)
        assert view is not None
        assert (view.start, view.high_watermark.value.end) == (partition.start, partition.end)


# --- the decision


async def allowed() -> bool:
    return True


async def test_a_decision_applies_where_the_log_ends(cluster: Cluster) -> None:
    stream = (await link(cluster)).streams[0]
    assert await switch_stream(cluster.streams, cluster.runtime, stream, 4, allowed) is None
    assert await boundary_of(cluster.streams, stream) is None
    assert await switch_stream(cluster.streams, cluster.runtime, stream, 5, allowed) == 5
    assert await boundary_of(cluster.streams, stream) == 5
    assert await switch_stream(cluster.streams, cluster.runtime, stream, 5, allowed) == 5, "asked again"
    assert await forbid_boundary(cluster.streams, cluster.runtime, stream) == 5


async def test_a_decision_that_was_allowed_does_not_apply_once_it_is_forbidden(cluster: Cluster) -> None:
    stream = (await link(cluster)).streams[0]
    answers = [True, False]

    async def looks_then_sleeps() -> bool:
        """While it sleeps, the switch is taken back."""
        answer = answers.pop(0)
        assert await forbid_boundary(cluster.streams, cluster.runtime, stream) is None
        return answer

    decided = await switch_stream(cluster.streams, cluster.runtime, stream, 5, looks_then_sleeps)
    assert decided is None
    assert answers == []
    assert await boundary_of(cluster.streams, stream) is None


async def test_an_abort_does_not_take_back_a_switch_that_was_asked_for_meanwhile(cluster: Cluster) -> None:
    await link(cluster)
    await request_switch(cluster.process().migrations, "orders")
    with pytest.raises(MigrationRefused, match="a switch was asked for meanwhile: run it again"):
        await abort(cluster)


# --- leases


async def test_a_lease_is_held_by_one_process_until_it_is_gone(cluster: Cluster) -> None:
    one, other = (MigrationLeases(cluster.store, cluster.runtime) for _ in range(2))
    assert await one.hold("orders")
    assert await one.hold("orders")
    assert not await other.hold("orders")
    assert await other.hold("bills")
    await one.close()
    assert await other.hold("orders")
    await other.close()


async def test_a_lease_that_cannot_be_read_is_another_processes(cluster: Cluster) -> None:
    leases = MigrationLeases(cluster.store, cluster.runtime)
    assert await leases.hold("orders")
    found = await cluster.store.get(keys.CLUSTER_DOMAIN, keys.migration_lease("orders"))
    assert found is not None
    await leases.close()
    newer = Put(keys.migration_lease("orders"), b"\x63" + found.value[1:])
    await cluster.store.write(keys.CLUSTER_DOMAIN, [newer])
    assert not await leases.hold("orders")
    kept = await cluster.store.get(keys.CLUSTER_DOMAIN, keys.migration_lease("orders"))
    assert kept is not None
    assert kept.value == newer.value, "and it is not written over"
    await leases.close()
