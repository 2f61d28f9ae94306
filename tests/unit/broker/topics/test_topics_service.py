"""Creating topics and changing them: what is refused, in which order things are written, what faults do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

import pytest
from tests.services import room_settings
from tests.simulation.scripted import Fate, ScriptedStore
from tests.unit.broker.topics.fakes import FakeStreams, settle

from dray.broker.topics import (
    Alteration,
    AlterOperation,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    InvalidTopicRequest,
    NewTopic,
    TopicExists,
    Topics,
    TopicsUnavailable,
    UnknownTopic,
)
from dray.metadata.contract import Limits, Operation

MakeTopics = Callable[..., Topics]


# --- creating


async def test_a_created_topic_is_known_here_and_by_others(topics: Topics, make_topics: MakeTopics) -> None:
    created = await topics.create(NewTopic("orders", 3, config={"retention.ms": "5"}))
    assert len(created.streams) == 3
    assert topics.cached("orders") is created
    assert topics.cached_by_id(created.topic_id) is created
    other = make_topics()
    assert other.cached("orders") is None
    assert await other.get("orders") == created
    assert await make_topics().get_by_id(created.topic_id) == created
    assert await make_topics().get("orders2") is None
    assert await make_topics().get_by_id(UUID(int=1)) is None
    assert [topic.name for topic in await make_topics().read_all()] == ["orders"]
    assert created.stream_of(2) == created.streams[2]
    assert created.stream_of(3) is None
    assert created.stream_of(-1) is None


async def test_streams_are_made_before_the_topic_names_them(
    topics: Topics, store: ScriptedStore, streams: FakeStreams
) -> None:
    def check(operations: Sequence[Operation]) -> None:
        assert streams.events, "the topic was written before its streams were made"

    store.on_write = check
    await topics.create(NewTopic("orders"))
    assert streams.open


async def test_defaults(make_topics: MakeTopics) -> None:
    topics = make_topics(room_settings.topics(partitions=4, max_partitions=5, defaults={"retention.ms": "9"}))
    topic = await topics.create(NewTopic("orders"))
    assert len(topic.streams) == 4
    assert topic.settings.retention_ms == 9
    assert topic.config == {}


def test_broker_defaults_are_checked_like_any_config(make_topics: MakeTopics) -> None:
    with pytest.raises(InvalidConfig):
        make_topics(room_settings.topics(defaults={"retention.ms": "x"}))


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewTopic("a b"), InvalidTopicName),
        (NewTopic("x" * 250), InvalidTopicName),
        (NewTopic("taken"), TopicExists),
        (NewTopic("ta.ken"), InvalidTopicName),
        (NewTopic("a", 0), InvalidPartitions),
        (NewTopic("a", -2), InvalidPartitions),
        (NewTopic("a", 10_001), InvalidPartitions),
        (NewTopic("a", 1, 0), InvalidReplicationFactor),
        (NewTopic("a", 1, -2), InvalidReplicationFactor),
        (NewTopic("a", config={"retention.ms": "x"}), InvalidConfig),
        (NewTopic("a", config={"retention.ms": None}), InvalidConfig),
        (NewTopic("a", config={"nonsense": "1"}), InvalidConfig),
        (NewTopic("a", 1, -1, [(0, [1])]), InvalidTopicRequest),
        (NewTopic("a", -1, 1, [(0, [1])]), InvalidTopicRequest),
        (NewTopic("a", assignments=[(0, [1]), (0, [1])]), InvalidReplicaAssignment),
        (NewTopic("a", assignments=[(0, [1]), (2, [1])]), InvalidReplicaAssignment),
        (NewTopic("a", assignments=[(1, [1])]), InvalidReplicaAssignment),
        (NewTopic("a", assignments=[(0, [])]), InvalidReplicaAssignment),
        (NewTopic("a", assignments=[(0, [7])]), InvalidReplicaAssignment),
    ],
)
async def test_refused_creations(
    topics: Topics, streams: FakeStreams, new: NewTopic, error: type[Exception], validate_only: bool
) -> None:
    await topics.create(NewTopic("taken"))
    await topics.create(NewTopic("ta_ken"))
    before = list(streams.events)
    with pytest.raises(error):
        await topics.create(new, known_brokers={1}, validate_only=validate_only)
    assert streams.events == before


async def test_manual_assignments_and_any_replication_factor_are_accepted(topics: Topics) -> None:
    assert len((await topics.create(NewTopic("a", assignments=[(1, [9, 8]), (0, [7, 8])]))).streams) == 2
    assert len((await topics.create(NewTopic("b", 2, 3))).streams) == 2


async def test_validate_only_creates_nothing(topics: Topics, streams: FakeStreams) -> None:
    assert len((await topics.create(NewTopic("orders", 3), validate_only=True)).streams) == 3
    assert streams.events == []
    assert await topics.read_all() == []


async def test_names_that_collide_are_refused_even_when_created_at_once(topics: Topics) -> None:
    results = await asyncio.gather(
        topics.create(NewTopic("a.b")), topics.create(NewTopic("a_b")), return_exceptions=True
    )
    assert sum(isinstance(result, InvalidTopicName) for result in results) == 1
    assert len(await topics.read_all()) == 1


async def test_two_brokers_creating_the_same_name_make_one_topic(
    make_topics: MakeTopics, streams: FakeStreams
) -> None:
    brokers = [make_topics() for _ in range(4)]
    results = await asyncio.gather(
        *(broker.create(NewTopic("orders", 2)) for broker in brokers), return_exceptions=True
    )
    created = [result for result in results if not isinstance(result, BaseException)]
    assert len(created) == 1
    assert sum(isinstance(result, TopicExists) for result in results) == 3
    await settle()
    assert streams.open == set(created[0].streams), "the losers' streams are swept"


async def test_ensure_shares_one_creation(topics: Topics, streams: FakeStreams) -> None:
    found = await asyncio.gather(*(topics.ensure("orders") for _ in range(5)))
    assert all(topic is found[0] for topic in found)
    assert len(streams.events) == 1
    assert await topics.ensure("orders") is found[0]


async def test_ensure_finds_what_another_broker_made(topics: Topics, make_topics: MakeTopics) -> None:
    theirs = await make_topics().create(NewTopic("orders", 3))
    assert await topics.ensure("orders") == theirs


async def test_a_cancelled_caller_does_not_take_the_creation_down(topics: Topics) -> None:
    first = asyncio.ensure_future(topics.ensure("orders"))
    second = asyncio.ensure_future(topics.ensure("orders"))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).name == "orders"


async def test_a_lost_reply_to_a_creation_is_settled_by_reading(
    topics: Topics, store: ScriptedStore, streams: FakeStreams
) -> None:
    store.script(Fate.LOSE_REPLY)
    topic = await topics.create(NewTopic("orders"))
    assert (await topics.refresh("orders")) == topic
    await settle()
    assert streams.open == set(topic.streams)


async def test_a_lost_creation_is_sent_again(
    topics: Topics, store: ScriptedStore, streams: FakeStreams
) -> None:
    store.script(Fate.LOSE, Fate.REFUSE)
    topic = await topics.create(NewTopic("orders"))
    assert (await topics.refresh("orders")) == topic
    assert len(streams.events) == 1


async def test_a_creation_that_is_beaten_by_its_own_first_copy_is_no_failure(
    topics: Topics, store: ScriptedStore, streams: FakeStreams
) -> None:
    late = store.trap(Fate.LATE)

    async def land() -> None:
        late.land()

    store.trap(Fate.PASS, first=land)
    topic = await topics.create(NewTopic("orders"))
    assert (await topics.refresh("orders")) == topic
    await settle()
    assert streams.open == set(topic.streams)


async def test_a_lost_creation_that_another_one_beat_is_told_so(
    topics: Topics, store: ScriptedStore, make_topics: MakeTopics, streams: FakeStreams
) -> None:
    other = make_topics()
    store.script(Fate.LOSE)
    store.trap(Fate.PASS, first=lambda: other.create(NewTopic("orders")))
    with pytest.raises(TopicExists):
        await topics.create(NewTopic("orders"))
    await settle()
    found = await topics.get("orders")
    assert found is not None
    assert streams.open == set(found.streams)


async def test_an_undecided_creation_keeps_its_streams(
    topics: Topics, store: ScriptedStore, streams: FakeStreams
) -> None:
    """It may still land: a topic over closed streams would be unusable."""
    store.script(*[Fate.LOSE] * 20)
    with pytest.raises(TopicsUnavailable):
        await topics.create(NewTopic("orders"))
    await settle()
    assert len(streams.open) == 1


async def test_a_creation_that_certainly_failed_sweeps_its_streams(
    topics: Topics, store: ScriptedStore, streams: FakeStreams
) -> None:
    store.script(*[Fate.REFUSE] * 20)
    with pytest.raises(TopicsUnavailable):
        await topics.create(NewTopic("orders"))
    await settle()
    assert not streams.open
    assert streams.swept


async def test_no_streams_no_topic(topics: Topics, streams: FakeStreams) -> None:
    streams.failing = {"create"}
    with pytest.raises(TopicsUnavailable):
        await topics.create(NewTopic("orders"))
    assert await topics.read_all() == []


# --- partitions


async def test_added_partitions_keep_the_streams_there_are(topics: Topics, make_topics: MakeTopics) -> None:
    topic = await topics.create(NewTopic("orders", 2))
    grown = await make_topics().add_partitions("orders", 5)
    assert grown.streams[:2] == topic.streams
    assert len(set(grown.streams)) == 5
    assert grown.topic_id == topic.topic_id
    assert await topics.refresh("orders") == grown


@pytest.mark.parametrize("validate_only", [True, False])
async def test_refused_partitions(topics: Topics, streams: FakeStreams, validate_only: bool) -> None:
    await topics.create(NewTopic("orders", 2))
    before = list(streams.events)
    for count, assignments, error in [
        (2, None, InvalidPartitions),
        (1, None, InvalidPartitions),
        (-1, None, InvalidPartitions),
        (10_001, None, InvalidPartitions),
        (4, [[1]], InvalidReplicaAssignment),
        (4, [[1], []], InvalidReplicaAssignment),
        (4, [[1], [7]], InvalidReplicaAssignment),
    ]:
        with pytest.raises(error):
            await topics.add_partitions(
                "orders", count, assignments, known_brokers={1}, validate_only=validate_only
            )
    with pytest.raises(UnknownTopic):
        await topics.add_partitions("nothing", 4, validate_only=validate_only)
    assert streams.events == before


async def test_validate_only_adds_nothing(topics: Topics) -> None:
    await topics.create(NewTopic("orders", 2))
    await topics.add_partitions("orders", 4, [[1], [1]], validate_only=True)
    found = await topics.refresh("orders")
    assert found is not None
    assert len(found.streams) == 2


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE, Fate.REFUSE])
async def test_partitions_are_added_once_whatever_becomes_of_the_reply(
    topics: Topics, store: ScriptedStore, streams: FakeStreams, fate: Fate
) -> None:
    await topics.create(NewTopic("orders", 1))
    store.script(fate)
    grown = await topics.add_partitions("orders", 3)
    assert len(grown.streams) == 3
    await settle()
    assert streams.open == set(grown.streams)


async def test_two_brokers_adding_partitions_agree(
    topics: Topics, make_topics: MakeTopics, store: ScriptedStore, streams: FakeStreams
) -> None:
    await topics.create(NewTopic("orders", 1))
    other = make_topics()
    store.trap(Fate.PASS, first=lambda: other.add_partitions("orders", 2))
    grown = await topics.add_partitions("orders", 4)
    assert len(grown.streams) == 4
    theirs = await other.refresh("orders")
    assert theirs == grown
    await settle()
    assert streams.open == set(grown.streams)


async def test_partitions_are_not_added_to_a_topic_recreated_meanwhile(
    topics: Topics, make_topics: MakeTopics, store: ScriptedStore, streams: FakeStreams
) -> None:
    await topics.create(NewTopic("orders", 1))
    other = make_topics()

    async def recreate() -> None:
        await other.delete("orders")
        await other.create(NewTopic("orders", 2))

    store.trap(Fate.PASS, first=recreate)
    with pytest.raises(UnknownTopic):
        await topics.add_partitions("orders", 3)
    await settle()
    found = await other.refresh("orders")
    assert found is not None
    assert streams.open == set(found.streams)


# --- configs


async def test_configs_are_altered_for_everyone(topics: Topics, make_topics: MakeTopics) -> None:
    created = await topics.create(NewTopic("orders", config={"retention.ms": "5", "segment.ms": "6"}))
    changed = await topics.alter_config("orders", [Alteration("retention.ms", AlterOperation.SET, "7")])
    assert changed.config == {"retention.ms": "7", "segment.ms": "6"}
    assert changed.settings.retention_ms == 7
    assert changed.streams == created.streams
    replaced = await make_topics().replace_config("orders", {"max.message.bytes": "10"})
    assert replaced.config == {"max.message.bytes": "10"}
    assert (await topics.refresh("orders")) == replaced


async def test_refused_and_validate_only_alterations_change_nothing(topics: Topics) -> None:
    topic = await topics.create(NewTopic("orders"))
    good, bad = (Alteration("retention.ms", AlterOperation.SET, value) for value in ("5", "x"))
    assert (await topics.alter_config("orders", [good], validate_only=True)).settings.retention_ms == 5
    await topics.replace_config("orders", {"retention.ms": "5"}, validate_only=True)
    for validate_only in (True, False):
        with pytest.raises(InvalidConfig):
            await topics.alter_config("orders", [bad], validate_only=validate_only)
        with pytest.raises(InvalidConfig):
            await topics.replace_config("orders", {"retention.ms": "x"}, validate_only=validate_only)
        with pytest.raises(InvalidConfig):  # no topic could have it
            await topics.alter_config("nothing", [bad], validate_only=validate_only)
        with pytest.raises(InvalidTopicName):
            await topics.alter_config("a b", [bad], validate_only=validate_only)
        with pytest.raises(UnknownTopic):
            await topics.alter_config("nothing", [good], validate_only=validate_only)
        with pytest.raises(UnknownTopic):
            await topics.replace_config("nothing", {}, validate_only=validate_only)
    assert await topics.refresh("orders") == topic


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE, Fate.REFUSE])
async def test_alterations_survive_faults(topics: Topics, store: ScriptedStore, fate: Fate) -> None:
    await topics.create(NewTopic("orders"))
    store.script(fate)
    changed = await topics.alter_config("orders", [Alteration("retention.ms", AlterOperation.SET, "7")])
    assert (await topics.refresh("orders")) == changed


async def test_two_brokers_altering_different_configs_lose_neither(
    topics: Topics, make_topics: MakeTopics, store: ScriptedStore
) -> None:
    await topics.create(NewTopic("orders"))
    other = make_topics()
    theirs = [Alteration("segment.ms", AlterOperation.SET, "6")]
    store.trap(Fate.PASS, first=lambda: other.alter_config("orders", theirs))
    changed = await topics.alter_config("orders", [Alteration("retention.ms", AlterOperation.SET, "7")])
    assert changed.config == {"retention.ms": "7", "segment.ms": "6"}


async def test_what_cannot_be_reached_says_so(topics: Topics, store: ScriptedStore) -> None:
    await topics.create(NewTopic("orders"))
    store.down = True
    good = [Alteration("retention.ms", AlterOperation.SET, "5")]
    for attempt in (
        topics.create(NewTopic("other")),
        topics.alter_config("orders", good),
        topics.add_partitions("orders", 2),
        topics.delete("orders"),
        topics.refresh("orders"),
        topics.get_by_id(UUID(int=5)),
        topics.read_all(),
    ):
        with pytest.raises(TopicsUnavailable):
            await attempt


async def test_a_topic_that_does_not_fit_a_write_is_refused_by_name(
    topics: Topics, store: ScriptedStore, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is one value; and so is its tombstone, later."""
    monkeypatch.setattr(ScriptedStore, "limits", Limits(operations=1000, value_bytes=2_000))
    with pytest.raises(InvalidTopicRequest, match="fewer partitions"):
        await topics.create(NewTopic("orders", 400))
    await settle()
    assert topics.cached("orders") is None
    await topics.create(NewTopic("orders", 4))
    with pytest.raises(InvalidTopicRequest, match="fewer partitions"):
        await topics.add_partitions("orders", 400)
    topic = await topics.get("orders")
    assert topic is not None
    assert len(topic.streams) == 4
    await topics.delete("orders")
