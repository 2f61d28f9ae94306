"""What a broker knows of topics: never wrong for long, and never wrong in a way that matters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from tests.services import room_settings
from tests.simulation.scripted import ScriptedStore
from tests.unit.broker.topics.fakes import QUIET, FakeStreams, eventually, settle

from dray.base.runtime import AT_A_TIME
from dray.broker.topics import (
    Alteration,
    AlterOperation,
    InvalidTopicName,
    NewTopic,
    TopicExists,
    Topics,
    TopicsUnavailable,
    TopicUnreadable,
)
from dray.metadata import keys
from dray.metadata.contract import Delete, Put

MakeTopics = Callable[..., Topics]


# --- knowing


async def test_the_watch_brings_other_brokers_changes(make_topics: MakeTopics) -> None:
    watching, other = make_topics(), make_topics()
    await watching.start()
    try:
        topic = await other.create(NewTopic("orders"))
        await eventually(lambda: watching.cached("orders") == topic)
        await other.alter_config("orders", [Alteration("retention.ms", AlterOperation.SET, "5")])
        await eventually(lambda: (known := watching.cached("orders")) and known.settings.retention_ms == 5)
        await other.delete("orders")
        await eventually(lambda: watching.cached("orders") is None)
    finally:
        await watching.stop()


async def test_every_change_is_counted_and_nothing_else(make_topics: MakeTopics) -> None:
    topics, other = make_topics(), make_topics()
    counts = [topics.changes]
    await topics.create(NewTopic("orders"))
    counts.append(topics.changes)
    await topics.alter_config("orders", [Alteration("retention.ms", AlterOperation.SET, "5")])
    counts.append(topics.changes)
    await other.create(NewTopic("another"))
    await topics.refresh("another")
    counts.append(topics.changes)
    await topics.delete("orders")
    counts.append(topics.changes)
    assert counts == sorted(set(counts)), "each of them moves it on"
    await topics.read_all()
    await topics.refresh("another")
    await topics.refresh("orders")
    assert topics.changes == counts[-1]


async def test_a_silent_watch_is_made_up_for_by_reading_again(
    make_topics: MakeTopics, store: ScriptedStore
) -> None:
    class SilentStore(ScriptedStore):
        async def watch(self, domain: int, endings: tuple[str, ...] = ()) -> Any:
            await asyncio.Event().wait()
            yield None

    store.__class__ = SilentStore
    watching = make_topics(room_settings.topics(reread_interval=0.01, sweep_interval=3600), store=store)
    await watching.start()
    try:
        topic = await make_topics().create(NewTopic("orders"))
        await eventually(lambda: watching.cached("orders") == topic)
    finally:
        await watching.stop()


async def test_a_topic_of_a_newer_build_hides_no_other(topics: Topics, store: ScriptedStore) -> None:
    await store.write(keys.CLUSTER_DOMAIN, [Put(keys.topic("newer"), b"\x03{}")])
    topic = await topics.create(NewTopic("orders"))
    assert await topics.read_all() == [topic]
    with pytest.raises(TopicExists):
        await topics.create(NewTopic("newer"))
    for attempt in (topics.delete("newer"), topics.replace_config("newer", {})):
        with pytest.raises(TopicsUnavailable, match="is stored in format 3"):
            await attempt


async def test_a_slow_read_brings_nothing_back(topics: Topics, store: ScriptedStore) -> None:
    """A read that started before a deletion and ends after it must not revive the topic."""
    topic = await topics.create(NewTopic("orders"))
    gate = asyncio.Event()
    original = ScriptedStore.get

    async def slow_get(self: ScriptedStore, domain: int, key: str) -> object:
        record = await original(self, domain, key)
        await gate.wait()
        return record

    ScriptedStore.get = slow_get  # type: ignore[method-assign, assignment]
    try:
        reading = asyncio.ensure_future(topics.refresh("orders"))
        await settle()
    finally:
        ScriptedStore.get = original  # type: ignore[method-assign]
    await topics.delete("orders")
    gate.set()
    assert await reading is None
    assert topics.cached_by_id(topic.topic_id) is None


async def test_an_unknown_id_is_not_scanned_for_at_every_ask(make_topics: MakeTopics) -> None:
    topics = make_topics(room_settings.topics(unknown_id_pause=3600))
    assert await topics.get_by_id(UUID(int=7)) is None
    topic = await make_topics().create(NewTopic("orders"))
    assert await topics.get_by_id(topic.topic_id) is None, "asked again too soon"
    eager = make_topics(QUIET)
    assert await eager.get_by_id(UUID(int=7)) is None
    assert await eager.get_by_id(topic.topic_id) == topic


async def test_the_end_of_a_scan_wakes_some_of_those_who_wait_in_a_turn(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred requests of many unknown ids wait for it together."""
    gate, found = asyncio.Event(), 0
    whole = ScriptedStore.scan

    async def slow_scan(self: ScriptedStore, *asked: Any) -> Any:
        await gate.wait()
        return await whole(self, *asked)

    async def look(number: int) -> None:
        nonlocal found
        assert await topics.get_by_id(UUID(int=number)) is None
        found += 1

    monkeypatch.setattr(ScriptedStore, "scan", slow_scan)
    looking = asyncio.gather(*(look(number) for number in range(1, 5001)))
    await settle()
    assert found == 0
    gate.set()
    in_a_turn = [0]
    while not looking.done():
        before = found
        await asyncio.sleep(0)
        in_a_turn.append(found - before)
    assert found == 5000
    assert max(in_a_turn) <= 2 * AT_A_TIME


async def test_a_topic_that_cannot_be_read_is_neither_served_nor_created_nor_gone(
    make_topics: MakeTopics, store: ScriptedStore, streams: FakeStreams
) -> None:
    topics = make_topics(store=store)
    before = await topics.create(NewTopic("orders.new"))
    changes = topics.changes
    record = await store.get(keys.CLUSTER_DOMAIN, keys.topic("orders.new"))
    assert record is not None
    await store.write(keys.CLUSTER_DOMAIN, [Put(record.key, b"\x03" + record.value[1:])])
    await topics.read_all()
    assert topics.changes != changes
    assert (topics.cached("orders.new"), topics.cached_by_id(before.topic_id)) == (None, None)
    assert list(topics.unreadable()) == ["orders.new"]
    made = len(streams.events)
    for attempt in (
        topics.get("orders.new"),
        topics.get_by_id(before.topic_id),
        topics.ensure("orders.new"),
        topics.delete("orders.new"),
        topics.delete_by_id(before.topic_id),
    ):
        with pytest.raises(
            TopicUnreadable, match="is stored in format 3, and this build reads formats up to 2"
        ):
            await attempt
    with pytest.raises(TopicExists):
        await topics.create(NewTopic("orders.new"))
    with pytest.raises(InvalidTopicName, match="collides"):
        await topics.create(NewTopic("orders_new"))
    assert len(streams.events) == made, "no stream was made for it, or taken from it"
    await store.write(keys.CLUSTER_DOMAIN, [Put(record.key, record.value)])
    assert await topics.get("orders.new") == before
    assert list(topics.unreadable()) == []


async def test_a_topic_that_could_not_be_read_may_go(make_topics: MakeTopics, store: ScriptedStore) -> None:
    topics = make_topics(store=store)
    await store.write(keys.CLUSTER_DOMAIN, [Put(keys.topic("newer"), b"\x03{}")])
    await topics.read_all()
    await store.write(keys.CLUSTER_DOMAIN, [Delete(keys.topic("newer"))])
    assert await topics.get("newer") is None
    assert list(topics.unreadable()) == []
    assert await topics.get_by_id(UUID(int=1)) is None
    await topics.create(NewTopic("newer"))


async def test_following_goes_on_past_a_topic_that_cannot_be_read(
    make_topics: MakeTopics, store: ScriptedStore
) -> None:
    watching = make_topics(store=store)
    await watching.start()
    try:
        await eventually(lambda: watching._cache._scans >= 2)  # the watch is in place
        await store.write(keys.CLUSTER_DOMAIN, [Put(keys.topic("newer"), b"\x03{}")])
        await eventually(lambda: list(watching.unreadable()) == ["newer"])
        scans = watching._cache._scans
        topic = await make_topics().create(NewTopic("orders"))
        await eventually(lambda: watching.cached("orders") == topic)
        assert watching._cache._scans == scans, "the watch was not interrupted"
    finally:
        await watching.stop()
