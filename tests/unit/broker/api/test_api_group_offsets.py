"""OffsetCommit, OffsetFetch and OffsetDelete, byte for byte."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.unit.broker.api.fakes import Harness, beat, running, stable

from dray.broker.topics import NewTopic, Topic
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from dray.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

UNKNOWN_ID = UUID(int=99)


@pytest.fixture
async def topic(broker: Harness) -> Topic:
    return await broker.topics.create(NewTopic("t", 3))


def commit(
    topic: Topic, version: int, offsets: dict[int, int], metadata: str | None = "why", **fields: object
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(index, offset, 4 if version >= 6 else -1, metadata)
        for index, offset in offsets.items()
    ]
    by_id = version >= 10
    named = OffsetCommitRequestTopic(
        topic.topic_id if by_id else ZERO_UUID, "" if by_id else topic.name, partitions
    )
    request = OffsetCommitRequest("g", topics=[named])
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def errors(response: OffsetCommitResponse) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


async def fetched(broker: Harness, group_id: str = "g", name: str = "t", count: int = 3) -> list[int]:
    topics = [OffsetFetchRequestTopics(ZERO_UUID, name, list(range(count)))]
    request = OffsetFetchRequest([OffsetFetchRequestGroup(group_id, topics=topics)])
    [group] = (await broker.ask(request, 9)).groups
    assert group.error_code == 0
    return [partition.committed_offset for topic in group.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", range(2, 11))
async def test_a_topic_made_anew_has_no_offsets(broker: Harness, topic: Topic, version: int) -> None:
    """Even before anybody has looked for offsets to delete."""
    await broker.ask(commit(topic, version, {0: 5, 2: 7}), version)
    await broker.topics.delete(topic.name)
    anew = await broker.topics.create(NewTopic("t", 3))
    assert await fetched(broker) == [-1, -1, -1]
    everything = OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=None)])
    assert (await broker.ask(everything, 9)).groups[0].topics == []
    assert (await broker.ask(everything, 10)).groups[0].topics == []
    await broker.ask(commit(anew, version, {0: 1}), version)
    assert await fetched(broker) == [1, -1, -1]
    [named] = (await broker.ask(everything, 9)).groups[0].topics
    assert [one.partition_index for one in named.partitions] == [0]
    [by_id] = (await broker.ask(everything, 10)).groups[0].topics
    assert by_id.topic_id == anew.topic_id


@pytest.mark.parametrize("version", range(2, 11))
async def test_commit(broker: Harness, topic: Topic, version: int) -> None:
    answer = await broker.ask(commit(topic, version, {0: 5, 2: 7}), version)
    assert errors(answer) == [0, 0]
    assert answer.topics[0].name == ("" if version >= 10 else "t")
    assert answer.topics[0].topic_id == (topic.topic_id if version >= 10 else ZERO_UUID)
    assert await fetched(broker) == [5, -1, 7]
    answer = await broker.ask(commit(topic, version, {0: 6}, metadata=None), version)
    assert errors(answer) == [0]
    assert await fetched(broker) == [6, -1, 7]


@pytest.mark.parametrize("version", range(2, 11))
async def test_commit_refused_partition_by_partition(broker: Harness, topic: Topic, version: int) -> None:
    request = commit(topic, version, {0: 5, 3: 1, -1: 1})
    request.topics[0].partitions.append(OffsetCommitRequestPartition(1, 1, -1, "x" * 5000))
    by_id = version >= 10
    unknown = OffsetCommitRequestTopic(
        UNKNOWN_ID if by_id else ZERO_UUID, "" if by_id else "none", [OffsetCommitRequestPartition(0, 1)]
    )
    request.topics.append(unknown)
    answer = await broker.ask(request, version)
    assert errors(answer) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await fetched(broker) == [5, -1, -1]


async def test_a_commit_without_anything_to_commit_makes_no_group(broker: Harness, topic: Topic) -> None:
    answer = await broker.ask(commit(topic, 9, {7: 5}), 9)
    assert errors(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await broker.groups.state("g") is None


async def test_commit_refused_as_a_whole(broker: Harness, topic: Topic) -> None:
    member = (await stable(broker)).member_id
    for version, fields, error in (
        (9, {"generation_id_or_member_epoch": 1, "member_id": member}, ErrorCode.NONE),
        (9, {"generation_id_or_member_epoch": 2, "member_id": member}, ErrorCode.ILLEGAL_GENERATION),
        (9, {"generation_id_or_member_epoch": 1, "member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (9, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        (
            9,
            {"generation_id_or_member_epoch": 1, "member_id": member, "group_instance_id": "x"},
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
        (
            8,
            {"group_id": "none", "generation_id_or_member_epoch": 1, "member_id": "x"},
            ErrorCode.ILLEGAL_GENERATION,
        ),
        (
            9,
            {"group_id": "none", "generation_id_or_member_epoch": 1, "member_id": "x"},
            ErrorCode.GROUP_ID_NOT_FOUND,
        ),
    ):
        answer = await broker.ask(commit(topic, version, {0: 5, 9: 5}, **fields), version)  # type: ignore[arg-type]
        assert errors(answer) == [error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], fields


async def test_commit_and_fetch_of_a_consumer_group(broker: Harness, topic: Topic) -> None:
    await broker.ask(beat(), 1)
    for version, fields, error in (
        (9, {"generation_id_or_member_epoch": 1, "member_id": "m"}, ErrorCode.NONE),
        (10, {"generation_id_or_member_epoch": 1, "member_id": "m"}, ErrorCode.NONE),
        (9, {"generation_id_or_member_epoch": 0, "member_id": "m"}, ErrorCode.STALE_MEMBER_EPOCH),
        (9, {"generation_id_or_member_epoch": 1, "member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (8, {"generation_id_or_member_epoch": 1, "member_id": "m"}, ErrorCode.UNSUPPORTED_VERSION),
    ):
        answer = await broker.ask(commit(topic, version, {0: version}, **fields), version)  # type: ignore[arg-type]
        assert errors(answer) == [error], fields
    assert await fetched(broker) == [10, -1, -1]
    asked = [OffsetFetchRequestTopics(ZERO_UUID, "t", [0])]
    for member_id, epoch, error in (
        ("m", 1, ErrorCode.NONE),
        (None, -1, ErrorCode.NONE),
        ("m", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        request = OffsetFetchRequest([OffsetFetchRequestGroup("g", member_id, epoch, asked)])
        [group] = (await broker.ask(request, 9)).groups
        assert group.error_code == error
        assert (group.topics != []) is (error is ErrorCode.NONE)


@pytest.mark.parametrize("version", range(1, 8))
async def test_fetch_of_one_group(broker: Harness, topic: Topic, version: int) -> None:
    await broker.ask(commit(topic, 9, {0: 5, 2: 7}), 9)
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0, 1, 2])])
    answer = await broker.ask(request, version)
    assert answer.error_code == 0
    [one] = answer.topics
    assert one.name == "t"
    epoch = 4 if version >= 5 else -1
    assert [
        (part.partition_index, part.committed_offset, part.committed_leader_epoch, part.metadata)
        for part in one.partitions
    ] == [(0, 5, epoch, "why"), (1, -1, -1, ""), (2, 7, epoch, "why")]
    assert {part.error_code for part in one.partitions} == {0}
    unknown = OffsetFetchRequest(group_id="none", topics=[OffsetFetchRequestTopic("x", [0])])
    answer = await broker.ask(unknown, version)
    assert (answer.error_code, answer.topics[0].partitions[0].committed_offset) == (0, -1)
    if version >= 2:
        everything = await broker.ask(OffsetFetchRequest(group_id="g", topics=None), version)
        assert [
            (topic.name, [part.partition_index for part in topic.partitions]) for topic in everything.topics
        ] == [("t", [0, 2])]


@pytest.mark.parametrize("version", range(8, 11))
async def test_fetch_of_many_groups(broker: Harness, topic: Topic, version: int) -> None:
    await broker.ask(commit(topic, 9, {0: 5, 2: 7}), 9)
    by_id = version >= 10

    def asked(topic_id: UUID, name: str) -> OffsetFetchRequestTopics:
        return OffsetFetchRequestTopics(topic_id if by_id else ZERO_UUID, "" if by_id else name, [0, 1])

    request = OffsetFetchRequest(
        [
            OffsetFetchRequestGroup("g", topics=[asked(topic.topic_id, "t"), asked(UNKNOWN_ID, "none")]),
            OffsetFetchRequestGroup("g", topics=None),
            OffsetFetchRequestGroup("none", topics=[asked(topic.topic_id, "t")]),
            OffsetFetchRequestGroup("none", topics=None),
        ]
    )
    some, everything, nobody, nothing = (await broker.ask(request, version)).groups
    assert [group.error_code for group in (some, everything, nobody, nothing)] == [0] * 4
    known, unknown = some.topics
    assert (known.topic_id, known.name) == ((topic.topic_id, "") if by_id else (ZERO_UUID, "t"))
    assert [(part.committed_offset, part.committed_leader_epoch) for part in known.partitions] == [
        (5, 4),
        (-1, -1),
    ]
    assert {part.error_code for part in unknown.partitions} == {ErrorCode.UNKNOWN_TOPIC_ID if by_id else 0}
    assert {part.committed_offset for part in unknown.partitions} == {-1}
    [all_of_it] = everything.topics
    assert (all_of_it.topic_id, all_of_it.name) == (known.topic_id, known.name)
    assert [part.partition_index for part in all_of_it.partitions] == [0, 2]
    assert [part.committed_offset for part in nobody.topics[0].partitions] == [-1, -1]
    assert nothing.topics == []


async def test_another_brokers_group(broker: Harness, topic: Topic) -> None:
    await broker.ask(commit(topic, 9, {0: 5}), 9)
    async with running(beside=broker, broker_id=1) as other:
        wrong = int(ErrorCode.NOT_COORDINATOR)
        assert errors(await other.ask(commit(topic, 9, {0: 6}), 9)) == [wrong]
        one = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0])])
        answer = await other.ask(one, 1)
        assert [part.error_code for part in answer.topics[0].partitions] == [wrong]
        assert answer.topics[0].partitions[0].committed_offset == -1
        answer = await other.ask(one, 2)
        assert (answer.error_code, answer.topics) == (wrong, [])
        many = await other.ask(OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=None)]), 8)
        assert [(group.error_code, group.topics) for group in many.groups] == [(wrong, [])]
        topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
        deletion = OffsetDeleteRequest("g", topics)
        assert (await other.ask(deletion, 0)).error_code == wrong


@pytest.mark.parametrize("version", [2, 4, 5])
async def test_retention_of_old_clients(broker: Harness, topic: Topic, version: int) -> None:
    before = broker.runtime.wall_ms()
    await broker.ask(commit(topic, version, {0: 5}, retention_time_ms=1000), version)
    ledger = await broker.groups.offsets("g", None, -1)
    assert ledger is not None
    offset = ledger.find("t", 0)
    assert offset is not None
    if version <= 4:
        assert before + 1000 <= offset.expire_ms <= broker.runtime.wall_ms() + 1000
    else:
        assert offset.expire_ms == -1


async def test_a_topic_that_another_broker_made_a_moment_ago(broker: Harness) -> None:
    async with running(beside=broker, broker_id=1) as other:
        fresh = await other.topics.create(NewTopic("fresh", 1))
    assert errors(await broker.ask(commit(fresh, 9, {0: 1}), 9)) == [0]


async def test_topics_that_cannot_be_asked_for(broker: Harness, topic: Topic) -> None:
    broker.store.down = True
    request = commit(topic, 9, {0: 1})
    request.topics[0].name = "other"
    assert errors(await broker.ask(request, 9)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    unknown = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics(UNKNOWN_ID, "", [0])])
    [group] = (await broker.ask(OffsetFetchRequest([unknown]), 10)).groups
    assert group.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    deletion = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("x", [OffsetDeleteRequestPartition(0)])])
    assert (await broker.ask(deletion, 0)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_delete(broker: Harness, topic: Topic) -> None:
    await broker.topics.create(NewTopic("free", 3))

    def deletion(group_id: str = "g") -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id,
            [
                OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in (0, 1, 9)])
                for name in ("t", "free", "none")
            ],
        )

    assert (await broker.ask(deletion(), 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await broker.ask(deletion(""), 0)).error_code == ErrorCode.INVALID_GROUP_ID
    free = OffsetCommitRequest(
        "g", topics=[OffsetCommitRequestTopic(name="free", partitions=[OffsetCommitRequestPartition(0, 3)])]
    )
    await broker.ask(free, 9)
    await broker.ask(commit(topic, 9, {0: 5}), 9)
    await broker.ask(beat(), 1)
    answer = await broker.ask(deletion(), 0)
    subscribed, gone = int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert answer.error_code == 0
    assert [[part.error_code for part in one.partitions] for one in answer.topics] == [
        [subscribed, subscribed, gone],
        [0, 0, gone],
        [gone, gone, gone],
    ]
    assert await fetched(broker, name="free") == [-1, -1, -1]
    assert await fetched(broker) == [5, -1, -1]


async def test_the_empty_group_id_commits_for_old_clients(broker: Harness, topic: Topic) -> None:
    assert errors(await broker.ask(commit(topic, 9, {0: 5}, group_id=""), 9)) == [0]
    assert await fetched(broker, group_id="") == [5, -1, -1]
