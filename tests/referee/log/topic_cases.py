"""Topics: created, refused, grown, deleted, described."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from dray.kafka.protocol import ZERO_UUID
from dray.kafka.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dray.kafka.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.kafka.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.referee.cases import case
from tests.referee.session import Session

SHOWN_CONFIGS = ("retention.ms", "cleanup.policy", "max.message.bytes", "message.timestamp.type")


def create(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    configs: Sequence[tuple[str, str | None]] = (),
    assignments: Sequence[tuple[int, list[int]]] = (),
    validate_only: bool = False,
) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
        assignments=[CreatableReplicaAssignment(partition_index=p, broker_ids=b) for p, b in assignments],
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=validate_only)


async def ask_create(session: Session, label: str, request: CreateTopicsRequest, version: int = 7) -> None:
    """Of the configs that a broker lists with a new topic, only some are everyone's business."""
    await session.ask(label, request, version)
    for topic in session.notes[label]["topics"]:
        topic["topic_id"] = "zero" if topic["topic_id"] == "zero" else "an id"
        if topic.get("configs"):
            shown = [config for config in topic["configs"] if config["name"] in SHOWN_CONFIGS]
            topic["configs"] = sorted(shown, key=lambda config: str(config["name"]))


@case
async def create_topics(session: Session) -> None:
    for version in (2, 4, 5, 7):
        await ask_create(session, f"v{version}", create(f"referee-create-v{version}"), version)
    await ask_create(session, "again", create("referee-create-v7"))
    await ask_create(session, "defaults", create("referee-create-defaults", -1, -1))
    await ask_create(session, "many partitions", create("referee-create-many", 50))
    given = create("referee-create-assigned", -1, -1, assignments=[(0, [session.node]), (1, [session.node])])
    await ask_create(session, "given assignments", given)
    configs = [("retention.ms", "1000"), ("cleanup.policy", "compact,delete")]
    await ask_create(session, "with configs", create("referee-create-configs", configs=configs))


@case
async def create_topics_validate_only(session: Session) -> None:
    name = "referee-validated"
    await ask_create(session, "good", create(name, 3, validate_only=True))
    wanted = [MetadataRequestTopic(name=name)]
    await session.ask("absent", MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 9)
    await ask_create(session, "bad partitions", create(name, 0, validate_only=True))
    bad = create(name, configs=[("retention.ms", "soon")], validate_only=True)
    await ask_create(session, "bad config", bad)
    await ask_create(session, "created", create(name))
    await ask_create(session, "exists", create(name, validate_only=True))


@case
async def create_topics_names(session: Session) -> None:
    names = {
        "empty": "",
        "dot": ".",
        "two dots": "..",
        "three dots": "...",
        "space": "a b",
        "slash": "a/b",
        "umlaut": "größe",
        "249 letters": "n" * 249,
        "250 letters": "n" * 250,
        "dots and underscores": "referee.name_x",
        "collides with it": "referee_name.x",
    }
    for label, name in names.items():
        await ask_create(session, label, create(name))


@case
async def create_topics_numbers(session: Session) -> None:
    name = "referee-numbers"
    for partitions in (0, -2):
        await ask_create(session, f"{partitions} partitions", create(name, partitions))
    for replicas in (0, -2):
        await ask_create(session, f"{replicas} replicas", create(name, 1, replicas))
    await ask_create(session, "2 replicas", create(f"{name}-2", 1, 2))
    node = session.node
    bad = {
        "assignments and count": create(name, 1, -1, assignments=[(0, [node])]),
        "assignments and replicas": create(name, -1, 1, assignments=[(0, [node])]),
        "assignments with a gap": create(name, -1, -1, assignments=[(0, [node]), (2, [node])]),
        "assignment to nobody": create(name, -1, -1, assignments=[(0, [])]),
        "assignment to a stranger": create(name, -1, -1, assignments=[(0, [node + 7])]),
        "assignment twice to one": create(name, -1, -1, assignments=[(0, [node, node])]),
    }
    for label, request in bad.items():
        await ask_create(session, label, request)


@case
async def create_topics_configs(session: Session) -> None:
    name = "referee-configs"
    bad: dict[str, list[tuple[str, str | None]]] = {
        "unknown": [("no.such.config", "1")],
        "no number": [("retention.ms", "soon")],
        "below the minimum": [("retention.ms", "-2")],
        "null": [("retention.ms", None)],
        "empty": [("retention.ms", "")],
        "unknown policy": [("cleanup.policy", "keep")],
        "unknown codec": [("compression.type", "brotli")],
        "unknown timestamp type": [("message.timestamp.type", "Whenever")],
        "negative size": [("max.message.bytes", "-1")],
        "too large a number": [("max.message.bytes", "99999999999")],
        "min.insync.replicas 0": [("min.insync.replicas", "0")],
        "not a boolean": [("preallocate", "perhaps")],
    }
    for label, configs in bad.items():
        await ask_create(session, label, create(name, configs=configs))
    good: dict[str, list[tuple[str, str | None]]] = {
        "min.insync.replicas 2": [("min.insync.replicas", "2")],
        "segment.bytes": [("segment.bytes", "1048576")],
        "compression": [("compression.type", "zstd")],
        "spaces around": [("retention.ms", " 1000 ")],
        "twice": [("retention.ms", "1"), ("retention.ms", "2")],
        "no policy": [("cleanup.policy", "")],
    }
    for number, (label, configs) in enumerate(good.items()):
        await ask_create(session, label, create(f"{name}-{number}", configs=configs))


@case
async def create_topics_twice_in_one_request(session: Session) -> None:
    topic = CreatableTopic(name="referee-twice", num_partitions=1, replication_factor=1)
    other = CreatableTopic(name="referee-twice-other", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic, other, topic], timeout_ms=10_000)
    await session.ask("twice", request, 7)
    results = session.notes["twice"]["topics"]
    for result in results:
        result["topic_id"], result["configs"] = result["topic_id"] != "zero", None
    results.sort(key=lambda result: str(result["name"]))


@case
async def delete_topics(session: Session) -> None:
    first, second, third = [await session.create(suffix) for suffix in ("first", "second", "third")]
    first_id = await session.until_known(first)

    def by_state(name: str | None, topic_id: UUID = ZERO_UUID) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=topic_id)], timeout_ms=10_000)

    await session.ask("by name, v5", DeleteTopicsRequest(topic_names=[second], timeout_ms=10_000), 5)
    await session.ask("by name", by_state(third), 6)
    await session.ask("by id", by_state(None, first_id), 6)
    await session.ask("by id again", by_state(None, first_id), 6)
    await session.ask("unknown name", by_state("referee-no-such-topic"), 6)
    await session.ask("unknown id", by_state(None, UUID(int=1234567)), 6)
    await session.ask("name and id", by_state(first, first_id), 6)
    await session.ask("neither", by_state(None), 6)
    await session.ask("illegal name", by_state("a b"), 6)
    fourth = await session.create("fourth")
    state = DeleteTopicState(name=fourth)
    twice = DeleteTopicsRequest(topics=[state, state], timeout_ms=10_000)
    await session.ask("twice", twice, 6)


@case
async def create_partitions(session: Session) -> None:
    topic = await session.create()

    def grow(
        name: str, count: int, assignments: list[list[int]] | None = None, validate_only: bool = False
    ) -> CreatePartitionsRequest:
        given = (
            None if assignments is None else [CreatePartitionsAssignment(broker_ids=a) for a in assignments]
        )
        wanted = CreatePartitionsTopic(name=name, count=count, assignments=given)
        return CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=validate_only)

    await session.ask("validate only", grow(topic, 3, validate_only=True), 3)
    await session.ask("grow", grow(topic, 3), 3)
    await session.until_known(topic, 3)
    await session.ask("the same", grow(topic, 3), 3)
    await session.ask("fewer", grow(topic, 2), 3)
    await session.ask("none", grow(topic, 0), 3)
    await session.ask("negative", grow(topic, -1), 3)
    await session.ask("unknown topic", grow("referee-no-such-topic", 3), 3)
    await session.ask("illegal topic", grow("a b", 3), 3)
    node = session.node
    await session.ask("assigned", grow(topic, 4, [[node]]), 3)
    await session.until_known(topic, 4)
    await session.ask("too many assignments", grow(topic, 5, [[node], [node]]), 3)
    await session.ask("assigned to a stranger", grow(topic, 5, [[node + 7]]), 3)
    await session.ask("assigned to nobody", grow(topic, 5, [[]]), 3)
    entry = CreatePartitionsTopic(name=topic, count=6, assignments=None)
    await session.ask("twice", CreatePartitionsRequest(topics=[entry, entry], timeout_ms=10_000), 3)


@case
async def metadata(session: Session) -> None:
    topic = await session.create(partitions=2)
    topic_id = await session.until_known(topic, 2)

    def ask(*names: str, create: bool = False) -> MetadataRequest:
        topics = [MetadataRequestTopic(name=name) for name in names]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=create)

    def ask_id(wanted: UUID, name: str | None = None) -> MetadataRequest:
        return MetadataRequest(topics=[MetadataRequestTopic(topic_id=wanted, name=name)])

    for version in (1, 4, 5, 7, 8, 9, 10, 12, 13):
        await session.ask(f"v{version}", ask(topic), version)
    await session.ask("nothing asked", ask(), 9)
    await session.ask("unknown", ask("referee-no-such-topic"), 9)
    await session.ask("illegal, to be created", ask("a b", create=True), 9)
    await session.ask("illegal", ask("a b"), 9)
    await session.ask("too long", ask("n" * 250), 9)
    await session.ask("twice", ask(topic, topic), 9)
    await session.ask("by id", ask_id(topic_id), 12)
    await session.ask("by unknown id", ask_id(UUID(int=1234567)), 12)
    await session.ask("by id and name", ask_id(topic_id, topic), 12)
    await session.ask("by zero id and name", ask_id(UUID(int=0), topic), 12)
    await session.ask("good and unknown", ask(topic, "referee-no-such-topic"), 9)


@case
async def describe_topic_partitions(session: Session) -> None:
    first = await session.create("a", 3)
    second = await session.create("b", 3)

    def ask(
        *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> DescribeTopicPartitionsRequest:
        return DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )

    await session.ask("both", ask(first, second), 0)
    await session.ask("in another order", ask(second, first), 0)
    await session.ask("limited", ask(first, second, limit=4), 0)
    await session.ask("with a cursor", ask(first, second, cursor=(first, 2)), 0)
    await session.ask("with a cursor at the second", ask(first, second, cursor=(second, 1)), 0)
    await session.ask("with a cursor beyond", ask(first, second, cursor=(second, 9)), 0)
    await session.ask("unknown", ask("referee-no-such-topic"), 0)
    await session.ask("no limit", ask(first, limit=0), 0)
    await session.ask("cursor with a negative partition", ask(first, cursor=(first, -1)), 0)
