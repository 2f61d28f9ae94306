"""`diskless.enable`, row by row: what is shown of it, and what setting it does in each state."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.broker.api.fakes import FakeConnection, Harness, running

from dray.broker.api import Dispatcher
from dray.broker.topics import InvalidConfig, NewTopic
from dray.broker.topics.alterations import AlterOperation
from dray.daemons.broker.linked_topics import StoredLinks
from dray.kafka.acls import AclBinding, AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages import alter_configs, create_partitions, describe_configs
from dray.kafka.protocol.messages import incremental_alter_configs as incremental
from dray.metadata.contract import Unavailable
from dray.migration.record import MigrationRecord, Migrations, MigrationState
from dray.migration.source.forwarding import Link
from dray.migration.source.shared_looks import NotAnswered

TOPIC_ID = UUID(int=7)
TOPIC = 2
DISKLESS = "diskless.enable"
ASKED = [MigrationState.PENDING, MigrationState.SWITCHED, MigrationState.MOVED]


class Linked:
    def __init__(self, broker: Harness, migrations: Migrations, links: StoredLinks) -> None:
        self.broker = broker
        self.migrations = migrations
        self.links = links
        self.connection = FakeConnection()

    async def to(self, state: MigrationState, **changes: object) -> None:
        record = await self.migrations.read("old")
        assert record is not None
        await self.migrations.step(
            "old",
            record,
            lambda current: replace(current, state=state, **changes),  # type: ignore[arg-type]
        )

    async def state(self) -> MigrationState:
        record = await self.migrations.read("old")
        assert record is not None
        return record.state

    async def shown(self, topic: str = "old") -> describe_configs.DescribeConfigsResourceResult | None:
        asked = describe_configs.DescribeConfigsResource(TOPIC, topic, None)
        request = describe_configs.DescribeConfigsRequest([asked], include_synonyms=True)
        [result] = (await self.broker.ask(request, 4)).results
        assert result.error_code == 0
        names = [each.name for each in result.configs]
        assert names == sorted(names)
        return next((each for each in result.configs if each.name == DISKLESS), None)

    async def set(
        self,
        value: str | None,
        topic: str = "old",
        operation: int = AlterOperation.SET,
        *,
        validate_only: bool = False,
        **others: str,
    ) -> tuple[int, str | None]:
        configs = [incremental.AlterableConfig(DISKLESS, operation, value)]
        configs += [
            incremental.AlterableConfig(name.replace("_", "."), AlterOperation.SET, given)
            for name, given in others.items()
        ]
        resource = incremental.AlterConfigsResource(TOPIC, topic, configs)
        request = incremental.IncrementalAlterConfigsRequest([resource], validate_only)
        [result] = (await self.broker.ask(request, 1, self.connection)).responses
        return result.error_code, result.error_message

    async def replace(self, *, validate_only: bool = False, **configs: str) -> tuple[int, str | None]:
        named = [
            alter_configs.AlterableConfig(name.replace("_", "."), given) for name, given in configs.items()
        ]
        resource = alter_configs.AlterConfigsResource(TOPIC, "old", named)
        request = alter_configs.AlterConfigsRequest([resource], validate_only)
        [result] = (await self.broker.ask(request, 2, self.connection)).responses
        return result.error_code, result.error_message


@pytest.fixture
async def linked(broker: Harness) -> Linked:
    return await linked_in(broker)


async def linked_in(broker: Harness) -> Linked:
    streams = await broker.log.create_streams(1)
    await broker.topics.attach("old", TOPIC_ID, streams, {"retention.ms": "-1"}, leader_epoch=65_536)
    await broker.topics.create(NewTopic("own", 1))
    migrations = Migrations(broker.store, broker.runtime)
    record = MigrationRecord(
        state=MigrationState.MIRRORING,
        migration_id=UUID(int=1),
        topic_id=TOPIC_ID,
        layout="mirror",
        source="kafka:9092",
        store="",
        plan="",
        leader_epoch=65_536,
        partitions=1,
        streams=tuple(streams),
        bounds=((0, 0),),
        config={},
        created_ms=0,
        upstream="old",
        source_topic_id=TOPIC_ID,
        attempt=0,
    )
    await migrations.begin("old", record)
    links = StoredLinks(broker.store, broker.runtime, broker.log)  # type: ignore[arg-type]
    broker.services = replace(broker.services, linked=links)
    broker.dispatcher = Dispatcher(broker.services)
    return Linked(broker, migrations, links)


# --- what is shown


async def test_a_topic_that_was_born_here_has_it_from_the_first_on(linked: Linked) -> None:
    shown = await linked.shown("own")
    assert shown is not None
    assert (shown.value, shown.config_source) == ("true", 5)


async def test_a_topic_that_was_attached_cold_has_it(linked: Linked) -> None:
    await linked.to(MigrationState.ATTACHED, upstream=None, source_topic_id=None, attempt=None)
    shown = await linked.shown()
    assert shown is not None
    assert shown.value == "true"


async def test_while_it_is_mirrored_it_is_false_and_can_be_set(linked: Linked) -> None:
    shown = await linked.shown()
    assert shown is not None
    assert (shown.value, shown.read_only, shown.config_source, shown.config_type) == ("false", False, 5, 1)


@pytest.mark.parametrize("state", ASKED)
async def test_from_the_switch_on_it_is_true_for_good(linked: Linked, state: MigrationState) -> None:
    await linked.to(state)
    shown = await linked.shown()
    assert shown is not None
    assert (shown.value, shown.read_only, shown.config_source) == ("true", True, 1)
    assert [(each.name, each.value, each.source) for each in shown.synonyms] == [(DISKLESS, "true", 1)]


# --- what setting it does


async def test_true_asks_for_the_switch(linked: Linked) -> None:
    assert await linked.set(" TRUE ") == (0, None)
    record = await linked.migrations.read("old")
    assert record is not None
    assert (record.state, record.fence, record.attempt) == (MigrationState.PENDING, "acl", 1)


async def test_true_by_the_older_request_too_and_other_configs_with_it(linked: Linked) -> None:
    assert await linked.replace(diskless_enable="true", retention_ms="5000") == (0, None)
    assert await linked.state() is MigrationState.PENDING
    topic = await linked.broker.topics.get("old")
    assert topic is not None
    assert topic.config == {"retention.ms": "5000"}, "it is no override: nothing of it is stored"


async def test_a_full_replacement_that_does_not_name_it_leaves_it(linked: Linked) -> None:
    await linked.to(MigrationState.SWITCHED)
    assert await linked.replace(retention_ms="5000") == (0, None)
    assert await linked.state() is MigrationState.SWITCHED


@pytest.mark.parametrize("state", ASKED)
async def test_true_where_it_is_true_changes_nothing(linked: Linked, state: MigrationState) -> None:
    await linked.to(state)
    assert await linked.set("true") == (0, None)
    assert await linked.state() is state


@pytest.mark.parametrize("state", ASKED)
@pytest.mark.parametrize("operation", [AlterOperation.SET, AlterOperation.DELETE])
async def test_there_is_no_way_back(linked: Linked, state: MigrationState, operation: int) -> None:
    await linked.to(state)
    value = None if operation == AlterOperation.DELETE else "false"
    code, message = await linked.set(value, operation=operation)
    assert code == ErrorCode.INVALID_CONFIG
    assert message == "diskless.enable of old cannot be set back to false: its migration goes forward only"
    assert await linked.state() is state


@pytest.mark.parametrize("operation", [AlterOperation.SET, AlterOperation.DELETE])
async def test_false_where_it_is_false_changes_nothing(linked: Linked, operation: int) -> None:
    value = None if operation == AlterOperation.DELETE else "false"
    assert await linked.set(value, operation=operation) == (0, None)
    assert await linked.state() is MigrationState.MIRRORING


async def test_a_topic_that_is_not_linked_is_diskless_and_stays_so(linked: Linked) -> None:
    """As scripts for a Kafka with diskless topics write it: also when a topic is created."""
    assert await linked.set("true", "own") == (0, None)
    code, message = await linked.set("false", "own")
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None
    assert "records of topics are in object storage, and go nowhere else" in message
    topic = await linked.broker.topics.create(NewTopic("new", 1, 1, config={DISKLESS: "true"}))
    assert topic.config == {DISKLESS: "true"}
    with pytest.raises(InvalidConfig, match="go nowhere else"):
        await linked.broker.topics.create(NewTopic("other", 1, 1, config={DISKLESS: "false"}))


async def test_only_looking_changes_nothing_and_says_what_is_wrong(linked: Linked) -> None:
    assert await linked.set("true", validate_only=True) == (0, None)
    assert await linked.replace(diskless_enable="true", validate_only=True) == (0, None)
    assert await linked.state() is MigrationState.MIRRORING
    await linked.to(MigrationState.MIRRORING, stopped={0: "an unclean election"})
    for validate_only in (True, False):
        code, message = await linked.set("true", validate_only=validate_only)
        assert code == ErrorCode.INVALID_CONFIG
        assert "partition 0 is not mirrored any more" in (message or "")
    assert await linked.state() is MigrationState.MIRRORING


@pytest.mark.parametrize("value", ["yes", ""])
async def test_a_value_that_is_none_is_refused(linked: Linked, value: str) -> None:
    code, _ = await linked.set(value)
    assert code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("operation", [AlterOperation.APPEND, AlterOperation.SUBTRACT])
async def test_it_is_no_list(linked: Linked, operation: int) -> None:
    code, _ = await linked.set("true", operation=operation)
    assert code == ErrorCode.INVALID_CONFIG
    assert await linked.state() is MigrationState.MIRRORING


async def test_beside_a_config_that_is_refused_nothing_is_switched(linked: Linked) -> None:
    code, _ = await linked.set("true", retention_ms="soon")
    assert code == ErrorCode.INVALID_CONFIG
    assert await linked.state() is MigrationState.MIRRORING


@pytest.mark.parametrize("validate_only", [True, False])
async def test_the_switch_takes_a_right_of_the_cluster(validate_only: bool) -> None:
    """Who may alter a topic's configs is many a tool and owner; nobody can undo a switch."""
    async with running(authorizes=True) as broker:
        linked = await linked_in(broker)
        linked.connection = FakeConnection(principal="User:alice")
        assert broker.acls is not None
        broker.acls.index.add(right(AclResourceType.TOPIC, "old", AclOperation.ALTER_CONFIGS))
        refused = (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "diskless.enable switches old for good: it takes ALTER of the cluster, too",
        )
        assert await linked.set("true", validate_only=validate_only, retention_ms="5000") == refused
        assert await linked.replace(validate_only=validate_only, diskless_enable="true") == refused
        topic = await broker.topics.get("old")
        assert topic is not None
        assert topic.config == {"retention.ms": "-1"}
        assert await linked.state() is MigrationState.MIRRORING
        assert await linked.set("false") == (0, None)
        assert await linked.set(None, operation=AlterOperation.DELETE) == (0, None)
        broker.acls.index.add(right(AclResourceType.CLUSTER, "kafka-cluster", AclOperation.ALTER))
        assert await linked.set("true", validate_only=validate_only) == (0, None)
        assert await linked.state() is (MigrationState.MIRRORING if validate_only else MigrationState.PENDING)


def right(kind: AclResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(kind, PatternType.LITERAL, name, "User:alice", "*", operation, Permission.ALLOW)


# --- what the forwarder is told


@pytest.mark.parametrize(
    ("state", "changes", "expected"),
    [
        (MigrationState.MIRRORING, {}, Link("old", is_pending=False)),
        (MigrationState.MIRRORING, {"undo": {}}, Link("old", is_pending=True)),
        (MigrationState.PENDING, {"fence": "acl"}, Link("old", is_pending=True)),
        (MigrationState.PENDING, {"fence": "stopped"}, Link("old", True, True)),
        (MigrationState.MIRRORING, {"fence": "stopped"}, Link("old", is_pending=False)),
        (MigrationState.MIRRORING, {"fence": "stopped", "undo": {}}, Link("old", True, True)),
        (MigrationState.SWITCHED, {}, None),
        (MigrationState.MOVED, {}, None),
        (MigrationState.ABORTING, {}, None),
    ],
)
async def test_the_link_as_the_record_says_it(
    linked: Linked, state: MigrationState, changes: dict[str, object], expected: Link | None
) -> None:
    await linked.to(state, **changes)
    assert await linked.links.link("old") == expected


async def test_a_store_that_is_away_says_nothing(linked: Linked) -> None:
    async def fail(*_: object) -> None:
        raise Unavailable("away")

    linked.broker.store.get = fail  # type: ignore[method-assign,assignment]
    with pytest.raises(NotAnswered, match="away"):
        await linked.links.link("old")


async def test_a_linked_topic_gets_no_partitions_that_its_source_lacks(linked: Linked) -> None:
    async def grow(topic: str) -> int:
        wanted = create_partitions.CreatePartitionsTopic(name=topic, count=2, assignments=None)
        request = create_partitions.CreatePartitionsRequest(topics=[wanted], timeout_ms=1000)
        return (await linked.broker.ask(request, 3)).results[0].error_code

    assert await grow("old") == ErrorCode.INVALID_PARTITIONS
    assert await grow("own") == ErrorCode.NONE
    for state in (MigrationState.PENDING, MigrationState.PUBLISHING, MigrationState.ABORTING):
        await linked.to(state)
        assert await grow("old") == ErrorCode.INVALID_PARTITIONS
    await linked.to(MigrationState.MOVED)
    assert await grow("old") == ErrorCode.NONE
