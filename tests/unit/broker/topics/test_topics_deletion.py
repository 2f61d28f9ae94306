"""Deleting topics: the order of the writes, faults, crashes, and what the sweep makes good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import process_time
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.services import room_settings
from tests.simulation.scripted import Fate, ScriptedStore
from tests.unit.broker.topics.fakes import FakeStreams

from dray.broker.topics import NewTopic, Topic, Topics, TopicsUnavailable, UnknownTopic, UnknownTopicId
from dray.broker.topics.model import Tombstone, encode_tombstone
from dray.metadata import keys
from dray.metadata.contract import Delete, Operation, Put

MakeTopics = Callable[..., Topics]


# --- deleting


async def test_the_order_of_a_deletion(topics: Topics, store: ScriptedStore, streams: FakeStreams) -> None:
    topic = await topics.create(NewTopic("orders", 2))
    writes: list[str] = []

    def note(operations: Sequence[Operation]) -> None:
        assert topic.streams[0] in streams.open, "the streams were closed before the record was gone"
        [operation] = operations
        assert isinstance(operation, Put | Delete)
        if isinstance(operation, Delete):
            assert operation.expect != "any"
        writes.append(operation.key)

    store.on_write = note
    with capture_logs() as logs:
        await topics.delete("orders")
    assert [(line["event"], line["topic"], line["partitions"]) for line in logs] == [
        ("topic deleted", "orders", 2)
    ]
    assert writes == [keys.deleted_topic(topic.topic_id), keys.topic("orders")]
    assert streams.closed == set(topic.streams)
    assert topics.cached("orders") is None
    assert topics.cached_by_id(topic.topic_id) is None


async def test_a_deletion_costs_what_the_topic_has_of_partitions(topics: Topics) -> None:
    """A set made anew for each of 8,000 partitions would take a second of one turn of the loop."""
    await topics.create(NewTopic("wide", 8_000))
    begun = process_time()
    await topics.delete("wide")
    assert process_time() - begun < 0.4


async def test_deleting_by_id_and_what_is_not_there(topics: Topics, make_topics: MakeTopics) -> None:
    topic = await topics.create(NewTopic("orders"))
    other = make_topics()
    assert (await other.delete_by_id(topic.topic_id)).name == "orders"
    with pytest.raises(UnknownTopicId):
        await topics.delete_by_id(topic.topic_id)  # still cached here
    with pytest.raises(UnknownTopicId):
        await topics.delete_by_id(UUID(int=4))
    with pytest.raises(UnknownTopic):
        await topics.delete("orders")


async def test_deleting_by_an_old_id_spares_the_topic_that_took_the_name(
    topics: Topics, make_topics: MakeTopics
) -> None:
    old = await topics.create(NewTopic("orders"))
    other = make_topics()
    await other.delete("orders")
    fresh = await other.create(NewTopic("orders"))
    with pytest.raises(UnknownTopicId):
        await topics.delete_by_id(old.topic_id)
    assert await other.refresh("orders") == fresh


@pytest.mark.parametrize(
    "plan",
    [
        [Fate.LOSE_REPLY],
        [Fate.LOSE],
        [Fate.PASS, Fate.LOSE_REPLY],
        [Fate.PASS, Fate.LOSE],
        [Fate.REFUSE] * 3,
    ],
)
async def test_a_deletion_is_driven_through_faults(
    topics: Topics, store: ScriptedStore, streams: FakeStreams, plan: list[Fate]
) -> None:
    topic = await topics.create(NewTopic("orders"))
    store.script(*plan)
    await topics.delete("orders")
    assert streams.closed == set(topic.streams)
    assert await topics.refresh("orders") is None


async def test_partitions_added_during_a_deletion_are_closed_too(
    topics: Topics, make_topics: MakeTopics, store: ScriptedStore, streams: FakeStreams
) -> None:
    await topics.create(NewTopic("orders"))
    other = make_topics()
    store.script(Fate.PASS)
    store.trap(Fate.PASS, first=lambda: other.add_partitions("orders", 3))
    await topics.delete("orders")
    assert len(streams.closed) == 3
    assert not streams.open
    await topics.sweep_deleted()
    await topics.sweep_deleted()
    assert len(streams.swept) == 3


async def test_a_topic_recreated_at_once_is_another_one(
    topics: Topics, make_topics: MakeTopics, streams: FakeStreams
) -> None:
    stale = make_topics()
    old = await topics.create(NewTopic("orders"))
    assert await stale.get("orders") == old
    await topics.delete("orders")
    fresh = await topics.create(NewTopic("orders"))
    assert fresh.topic_id != old.topic_id
    # The stale broker still aims at a stream that is closed, so it can acknowledge nothing there.
    aimed = stale.cached("orders")
    assert aimed is not None
    assert aimed.streams[0] in streams.closed
    assert await stale.refresh("orders") == fresh
    assert stale.cached_by_id(old.topic_id) is None
    assert stale.cached_by_id(fresh.topic_id) == fresh


# --- sweeping


async def test_the_sweep_removes_streams_and_tombstone(
    topics: Topics, store: ScriptedStore, streams: FakeStreams
) -> None:
    topic = await topics.create(NewTopic("orders"))
    await topics.delete("orders")
    await topics.sweep_deleted()
    assert not streams.swept, "seen for the first time: nothing is swept yet"
    await topics.sweep_deleted()
    assert streams.swept == set(topic.streams)
    assert await store.get(keys.CLUSTER_DOMAIN, keys.deleted_topic(topic.topic_id)) is None
    await topics.sweep_deleted()


async def test_nothing_is_swept_before_its_time(make_topics: MakeTopics, streams: FakeStreams) -> None:
    topics = make_topics(room_settings.topics(sweep_grace=3600))
    await topics.create(NewTopic("orders"))
    await topics.delete("orders")
    for _ in range(3):
        await topics.sweep_deleted()
    assert not streams.swept


@pytest.mark.parametrize("crash_after", [1, 2])
async def test_another_broker_finishes_what_a_crashed_one_began(
    topics: Topics,
    make_topics: MakeTopics,
    store: ScriptedStore,
    streams: FakeStreams,
    crash_after: int,
) -> None:
    """After the tombstone; after the record is gone, with the streams still open."""
    topic = await topics.create(NewTopic("orders", 2))

    async def crash() -> None:
        raise KeyboardInterrupt

    store.script(Fate.PASS)
    if crash_after == 1:
        store.trap(Fate.PASS, first=crash)
    streams.failing = {"close"}
    with pytest.raises((KeyboardInterrupt, TopicsUnavailable)):
        await topics.delete("orders")
    assert streams.open == set(topic.streams)
    streams.failing = set()
    other = make_topics()
    await other.sweep_deleted()
    assert await other.refresh("orders") is None
    assert streams.closed == set(topic.streams)
    await other.sweep_deleted()
    assert streams.swept == set(topic.streams)


async def test_a_creation_that_lands_after_its_deletion_is_taken_away(
    topics: Topics, store: ScriptedStore, streams: FakeStreams
) -> None:
    """A copy of a put that travelled long: the tombstone knows its topic id."""
    topic = await topics.create(NewTopic("orders"))
    record = await store.get(keys.CLUSTER_DOMAIN, keys.topic("orders"))
    await topics.delete("orders")
    await topics.sweep_deleted()
    assert record is not None
    await store.write(keys.CLUSTER_DOMAIN, [Put(keys.topic("orders"), record.value)])
    await topics.sweep_deleted()
    assert await topics.refresh("orders") is None
    assert streams.swept == set(topic.streams)


async def test_a_topic_that_came_back_with_its_id_is_spared(
    topics: Topics, make_topics: MakeTopics, streams: FakeStreams, store: ScriptedStore
) -> None:
    """One that is attached or linked has the id of its source: also when that is done again."""

    async def attach(by: Topics) -> Topic:
        return await by.attach("orders", UUID(int=7), await streams.create_streams(2), {}, 65_536)

    first = await attach(topics)
    await topics.delete("orders")
    again = await attach(topics)
    other = make_topics()
    await other.sweep_deleted()
    await other.sweep_deleted()
    assert await other.refresh("orders") == again
    assert streams.open == set(again.streams)
    assert streams.swept == set(first.streams)


async def test_two_deletions_of_one_id_are_swept_both(
    topics: Topics, streams: FakeStreams, store: ScriptedStore
) -> None:
    taken: set[int] = set()
    for _ in range(2):
        found = await topics.attach("orders", UUID(int=7), await streams.create_streams(2), {}, 65_536)
        taken |= set(found.streams)
        await topics.delete("orders")
    await topics.sweep_deleted()
    await topics.sweep_deleted()
    assert await topics.refresh("orders") is None
    assert streams.swept == taken
    assert await store.get(keys.CLUSTER_DOMAIN, keys.deleted_topic(UUID(int=7))) is None


async def test_a_tombstone_that_another_deletion_wrote_meanwhile_keeps_its_streams(
    topics: Topics, streams: FakeStreams, store: ScriptedStore
) -> None:
    """It is read, then written: what came in between names streams that nothing else would sweep."""
    here = await topics.attach("orders", UUID(int=7), await streams.create_streams(2), {}, 65_536)
    elsewhere = tuple(await streams.create_streams(2))
    key = keys.deleted_topic(UUID(int=7))

    async def bury() -> None:
        other = Tombstone("orders", UUID(int=7), elsewhere, 0)
        await store.write(keys.CLUSTER_DOMAIN, [Put(key, encode_tombstone(other))])

    store.trap(Fate.PASS, first=bury)
    await topics.delete("orders")
    await topics.sweep_deleted()
    await topics.sweep_deleted()
    assert streams.swept == {*here.streams, *elsewhere}
    assert await store.get(keys.CLUSTER_DOMAIN, key) is None


async def test_a_sweep_that_fails_is_tried_again(topics: Topics, streams: FakeStreams) -> None:
    await topics.create(NewTopic("orders"))
    await topics.delete("orders")
    streams.failing = {"sweep"}
    await topics.sweep_deleted()
    await topics.sweep_deleted()
    assert not streams.swept
    streams.failing = set()
    await topics.sweep_deleted()
    assert streams.swept


async def test_an_unreadable_tombstone_does_not_stop_the_others(
    topics: Topics, store: ScriptedStore, streams: FakeStreams
) -> None:
    await store.write(keys.CLUSTER_DOMAIN, [Put(keys.deleted_topic(UUID(int=0)), b"\x09newer")])
    topic = await topics.create(NewTopic("orders"))
    await topics.delete("orders")
    await topics.sweep_deleted()
    await topics.sweep_deleted()
    assert streams.swept == set(topic.streams)
    assert await store.get(keys.CLUSTER_DOMAIN, keys.deleted_topic(UUID(int=0))) is not None


async def test_a_topic_that_another_broker_deleted_can_be_created_at_once(
    topics: Topics, make_topics: MakeTopics
) -> None:
    """Nothing has told this broker of it yet."""
    old = await topics.create(NewTopic("orders"))
    await make_topics().delete("orders")
    assert topics.cached("orders") == old
    assert (await topics.create(NewTopic("orders"))).topic_id != old.topic_id
