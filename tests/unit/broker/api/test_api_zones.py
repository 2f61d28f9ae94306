"""Clients stay in their zone: what they are told by it, where their rack sends them, and what is enforced."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from typing import Any

import pytest
from tests.services import room_settings
from tests.unit.broker.api.fakes import FakeConnection, Harness, batch, running, sees_brokers
from tests.unit.broker.topics.fakes import eventually

from dray.broker.api import ApiSettings
from dray.broker.api.shared import RefuseConnection
from dray.broker.cluster import ALL_ZONES, owner_of, owners, way_out
from dray.broker.topics import NewTopic, Topic
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from dray.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from dray.kafka.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from dray.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from dray.log.types import LogUnavailable

ZONES = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}
PARTITIONS = 8
DOMAINS = 4


@dataclass
class Fleet:
    brokers: dict[int, Harness]
    topic: Topic

    def owner(self, partition: int, zone: str = ALL_ZONES) -> int:
        ids = tuple(number for number in self.brokers if zone in (ALL_ZONES, ZONES[number]))
        return owner_of(owners(zone, ids, DOMAINS), self.topic.streams[partition])

    def ways_out(self, zone: str) -> list[int]:
        """One broker of each other zone."""
        others = {home for home in ZONES.values() if home != zone}
        return [
            way_out(zone, tuple(number for number, home in ZONES.items() if home == other))
            for other in others
        ]

    async def metadata(self, at: int, client_id: str) -> MetadataResponse:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
        return await self.brokers[at].ask(request, 12, client_id=client_id)

    async def produce(self, at: int, partition: int, client_id: str = "p") -> PartitionProduceResponse:
        records = batch(b"value", now_ms=self.brokers[at].runtime.wall_ms())
        data = [TopicProduceData(name="orders", partition_data=[PartitionProduceData(partition, records)])]
        response = await self.brokers[at].ask(
            ProduceRequest(acks=-1, topic_data=data), 9, client_id=client_id
        )
        return response.responses[0].partition_responses[0]

    async def fetch(self, at: int, partition: int, version: int = 11, **fields: Any) -> PartitionData:
        client_id = fields.pop("client_id", "c")
        part = FetchPartition(
            partition=partition,
            fetch_offset=0,
            partition_max_bytes=1 << 20,
            current_leader_epoch=fields.pop("epoch", -1),
        )
        request = FetchRequest(topics=[FetchTopic(topic="orders", partitions=[part])], **fields)
        response = await self.brokers[at].ask(request, version, client_id=client_id)
        return response.responses[0].partitions[0]


async def start(settings: ApiSettings | None, stack: AsyncExitStack) -> Fleet:
    brokers: dict[int, Harness] = {}
    for number, zone in ZONES.items():
        beside = brokers[0] if brokers else None
        brokers[number] = await stack.enter_async_context(
            running(settings, beside=beside, broker_id=number, zone=zone)
        )
    for broker in brokers.values():
        await eventually(partial(sees_brokers, broker, len(ZONES)))
    topic = await brokers[0].topics.create(NewTopic("orders", PARTITIONS))
    for broker in brokers.values():
        await broker.topics.refresh("orders")
    return Fleet(brokers, topic)


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        yield await start(None, stack)


@pytest.fixture
async def strict() -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        yield await start(room_settings.api(enforce_owner=True), stack)


@pytest.fixture
async def strictly_zoned() -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        yield await start(room_settings.api(strict_zones=True), stack)


# --- what is told


@pytest.mark.parametrize("at", ZONES)
@pytest.mark.parametrize("zone", ["a", "b", "c"])
async def test_a_client_sees_the_brokers_of_its_zone(fleet: Fleet, at: int, zone: str) -> None:
    told = await fleet.metadata(at, f"zone_id={zone},app=x")
    inside = [number for number, home in ZONES.items() if home == zone]
    assert [node.node_id for node in told.brokers] == sorted([*inside, *fleet.ways_out(zone)])
    for partition in told.topics[0].partitions:
        assert partition.leader_id == partition.replica_nodes[0]
        # its own first, and those that the clients of the other zones are sent to
        homes = sorted({*ZONES.values()}, key=lambda home: (home != zone, home))
        nodes = [fleet.owner(partition.partition_index, home) for home in homes]
        assert partition.replica_nodes == partition.isr_nodes == nodes
    # every broker of the zone has something to do, and the controller can be found
    assert {partition.leader_id for partition in told.topics[0].partitions} == set(inside)
    assert told.controller_id == (at if at in inside else inside[0])


@pytest.mark.parametrize("client_id", ["app", "zone_id=nowhere", "zone_id="])
async def test_others_see_all_brokers(fleet: Fleet, client_id: str) -> None:
    told = await fleet.metadata(3, client_id)
    assert [node.node_id for node in told.brokers] == list(ZONES)
    assert told.controller_id == 3
    for partition in told.topics[0].partitions:
        index = partition.partition_index
        leader = fleet.owner(index)
        others = [fleet.owner(index, zone) for zone in ("a", "b", "c") if zone != ZONES[leader]]
        assert partition.leader_id == leader
        assert partition.replica_nodes == [leader, *others]
        assert partition.isr_nodes == partition.replica_nodes


async def test_a_zone_that_loses_its_brokers_falls_back_to_all(fleet: Fleet) -> None:
    await fleet.brokers[4].membership.stop()
    await eventually(lambda: len(fleet.brokers[0].membership.brokers()) == 4)
    told = await fleet.metadata(0, "zone_id=c")
    assert [node.node_id for node in told.brokers] == [0, 1, 2, 3]


async def test_a_client_of_a_zone_can_ask_elsewhere_when_its_zone_is_dark(fleet: Fleet) -> None:
    """Its brokers are dead, and still named for as long as their sessions last: a client that knew nobody
    else would never hear that they are gone."""
    shown = {node.node_id for node in (await fleet.metadata(0, "zone_id=a")).brokers}
    assert {ZONES[number] for number in shown - {0, 1}} == {"b", "c"}
    assert len(shown) == 4
    for number in (0, 1):
        await fleet.brokers[number].membership.stop()
    elsewhere = (shown - {0, 1}).pop()
    await eventually(lambda: len(fleet.brokers[elsewhere].membership.brokers()) == 3)
    told = await fleet.metadata(elsewhere, "zone_id=a")
    assert [node.node_id for node in told.brokers] == [2, 3, 4]
    assert {partition.leader_id for partition in told.topics[0].partitions} == {2, 3, 4}


@pytest.mark.parametrize("client_id", ["app", "zone_id=c", "zone_id=a"])
async def test_a_broker_that_is_not_registered_leads_nothing(fleet: Fleet, client_id: str) -> None:
    """As the others say. Cut off from the metadata store, it would keep clients that it cannot serve."""
    await fleet.brokers[4].membership.stop()
    await eventually(lambda: len(fleet.brokers[0].membership.brokers()) == 4)
    for at in (0, 4):
        told = await fleet.metadata(at, client_id)
        leaders = {partition.leader_id for partition in told.topics[0].partitions}
        assert leaders == ({0, 1} if client_id == "zone_id=a" else {0, 1, 2, 3})
        assert told.controller_id != 4
    kept = 4 in {node.node_id for node in told.brokers}
    assert kept == (client_id != "zone_id=a")  # nobody who is connected to it is cut off by this


async def test_a_broker_that_knows_no_other_leads_registered_or_not() -> None:
    async with running(zone="a") as alone:
        await alone.topics.create(NewTopic("orders", 1))
        await alone.membership.stop()
        request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
        told = await alone.ask(request, 12)
        [partition] = told.topics[0].partitions
        assert [node.node_id for node in told.brokers] == [partition.leader_id]


async def test_topics_are_described_by_zone_too(fleet: Fleet) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest("orders")], response_partition_limit=2000)
    told = await fleet.brokers[0].ask(request, 0, client_id="zone_id=b")
    for partition in told.topics[0].partitions:
        leader = fleet.owner(partition.partition_index, "b")
        assert (partition.leader_id, partition.replica_nodes[0]) == (leader, leader)


async def test_an_operator_sees_every_broker_from_any_zone(fleet: Fleet) -> None:
    told = await fleet.brokers[0].ask(DescribeClusterRequest(), 0, client_id="zone_id=b")
    assert [broker.broker_id for broker in told.brokers] == list(ZONES)


async def coordinator(fleet: Fleet, group: str, at: int, client_id: str) -> int:
    told = await fleet.brokers[at].ask(
        FindCoordinatorRequest(coordinator_keys=[group]), 4, client_id=client_id
    )
    return told.coordinators[0].node_id


@pytest.mark.parametrize("zone", ["a", "b", "c"])
async def test_a_group_that_nobody_holds_is_led_in_the_zone_that_asks(fleet: Fleet, zone: str) -> None:
    inside = {number for number, home in ZONES.items() if home == zone}
    groups = [f"group-{number}" for number in range(40)]
    for at in ZONES:  # whoever is asked
        found = {await coordinator(fleet, group, at, f"zone_id={zone}") for group in groups}
        assert found == inside
    anywhere = {await coordinator(fleet, group, 0, "zone_id=nowhere") for group in groups}
    assert anywhere == {await coordinator(fleet, group, 0, "app") for group in groups} == set(ZONES)


async def test_a_group_has_one_coordinator_whatever_the_zone(fleet: Fleet) -> None:
    """Two coordinators of one group would be two groups."""
    first = await coordinator(fleet, "readers", 0, "zone_id=b")
    beat = ConsumerGroupHeartbeatRequest(
        group_id="readers",
        member_id="one",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    assert (await fleet.brokers[first].ask(beat, 1)).error_code == 0
    for at, zone in ZONES.items():
        assert await coordinator(fleet, "readers", at, f"zone_id={zone}") == first


async def test_in_a_single_zone_its_name_makes_no_difference() -> None:
    """Or two clients of one partition would be sent to two brokers, for no gain."""
    async with AsyncExitStack() as stack:
        brokers: list[Harness] = []
        for number in range(3):
            beside = brokers[0] if brokers else None
            brokers.append(
                await stack.enter_async_context(running(beside=beside, broker_id=number, zone="only"))
            )
        await eventually(lambda: len(brokers[0].membership.brokers()) == 3)
        await brokers[0].topics.create(NewTopic("orders", 12))
        request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
        told = [await brokers[0].ask(request, 12, client_id=name) for name in ("app", "zone_id=only")]
        assert told[0] == told[1]
        leaders = Counter(partition.leader_id for partition in told[0].topics[0].partitions)
        assert len(leaders) == 3
        assert max(leaders.values()) <= 5


# --- a consumer's rack


@pytest.mark.parametrize("rack", ["b", "rack-2"])  # the zone, or the rack of a broker in it
async def test_a_consumer_is_sent_to_its_rack_s_zone(fleet: Fleet, rack: str) -> None:
    assert (await fleet.produce(0, 1)).error_code == 0
    told = await fleet.fetch(0, 1, rack_id=rack)
    replicas = (await fleet.metadata(0, "c")).topics[0].partitions[1].replica_nodes
    [near] = [node for node in replicas if ZONES[node] == "b"]  # clients go to a replica or nowhere
    assert (told.error_code, told.preferred_read_replica) == (0, near)
    assert (told.high_watermark, told.log_start_offset, told.records) == (1, 0, b"")
    for there in (2, 3):  # once there, it is not sent about any more
        read = await fleet.fetch(there, 1, rack_id=rack)
        assert (read.error_code, read.preferred_read_replica) == (0, -1)
        assert read.records


async def test_a_topic_with_a_replica_less_than_zones_is_read_where_it_has_one(fleet: Fleet) -> None:
    """Sent to a broker that it does not know as a replica, a consumer would ask here again for ever."""
    topic = await fleet.brokers[0].topics.create(NewTopic("single", PARTITIONS, replication_factor=1))
    request = MetadataRequest(topics=[MetadataRequestTopic(name="single")])
    [told] = (await fleet.brokers[0].ask(request, 12)).topics
    far = [part.partition_index for part in told.partitions if ZONES[part.leader_id] != "b"]
    near = [part.partition_index for part in told.partitions if ZONES[part.leader_id] == "b"]
    assert far
    assert near

    async def preferred(*partitions: int) -> dict[int, int]:
        parts = [FetchPartition(partition=number, partition_max_bytes=1 << 20) for number in partitions]
        asked = FetchRequest(topics=[FetchTopic(topic="single", partitions=parts)], rack_id="b")
        [row] = (await fleet.brokers[0].ask(asked, 11)).responses
        return {part.partition_index: part.preferred_read_replica for part in row.partitions}

    assert await preferred(*far) == dict.fromkeys(far, -1)
    expected = dict.fromkeys(far, -1) | {number: told.partitions[number].leader_id for number in near}
    assert await preferred(*far, *near) == expected
    assert topic.replication_factor == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"rack_id": "a"},  # this broker's own zone
        {"rack_id": "nowhere"},
        {"rack_id": ""},
        {"rack_id": "b", "client_id": "zone_id=a"},  # its client.id decides: it does not know b's brokers
        {"rack_id": "b", "version": 10},  # which cannot say so
    ],
)
async def test_others_are_served_where_they_ask(fleet: Fleet, fields: dict[str, Any]) -> None:
    assert (await fleet.produce(0, 1)).error_code == 0
    read = await fleet.fetch(0, 1, **fields)
    assert (read.error_code, read.preferred_read_replica) == (0, -1)
    assert read.records


async def test_errors_are_told_before_anyone_is_sent_away(fleet: Fleet) -> None:
    told = await fleet.fetch(0, 99, rack_id="b")
    assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    told = await fleet.fetch(0, 1, rack_id="b", epoch=5)
    assert (told.error_code, told.preferred_read_replica) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
    fleet.brokers[0].log.fail[fleet.topic.streams[1]] = LogUnavailable("away")
    told = await fleet.fetch(0, 1, rack_id="b")
    assert told.error_code != 0
    assert told.preferred_read_replica == -1


# --- routing.strict_zones


@pytest.mark.parametrize("at", ZONES)
@pytest.mark.parametrize("zone", ["a", "b", "c"])
async def test_strictly_no_broker_of_another_zone_is_named(strictly_zoned: Fleet, at: int, zone: str) -> None:
    told = await strictly_zoned.metadata(at, f"zone_id={zone},app=x")
    inside = [number for number, home in ZONES.items() if home == zone]
    assert [node.node_id for node in told.brokers] == inside
    assert told.controller_id in inside
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest("orders")], response_partition_limit=2000)
    described = await strictly_zoned.brokers[at].ask(request, 0, client_id=f"zone_id={zone}")
    for topic in (told.topics[0], described.topics[0]):
        for partition in topic.partitions:
            leader = strictly_zoned.owner(partition.partition_index, zone)
            assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (
                leader,
                [leader],
                [leader],
            )


async def test_strictly_replicas_are_as_many_as_were_asked_for_and_the_zone_has(
    strictly_zoned: Fleet,
) -> None:
    await strictly_zoned.brokers[0].topics.create(NewTopic("asked", 4, replication_factor=3))
    request = MetadataRequest(topics=[MetadataRequestTopic(name="asked")])
    for zone in ("a", "b", "c"):
        inside = {number for number, home in ZONES.items() if home == zone}
        told = await strictly_zoned.brokers[0].ask(request, 12, client_id=f"zone_id={zone}")
        for partition in told.topics[0].partitions:
            assert set(partition.replica_nodes) == inside
            assert len(partition.replica_nodes) == len(inside)


@pytest.mark.parametrize("client_id", ["app", "zone_id=nowhere"])
async def test_strictly_others_see_all_brokers(strictly_zoned: Fleet, client_id: str) -> None:
    """A zone without brokers falls back to all, as ever: there is nobody else to go to."""
    told = await strictly_zoned.metadata(3, client_id)
    assert [node.node_id for node in told.brokers] == list(ZONES)
    await strictly_zoned.brokers[4].membership.stop()
    await eventually(lambda: len(strictly_zoned.brokers[0].membership.brokers()) == 4)
    told = await strictly_zoned.metadata(0, "zone_id=c")
    assert [node.node_id for node in told.brokers] == [0, 1, 2, 3]


# --- routing.enforce_owner


async def test_without_enforcement_any_broker_serves_anything(fleet: Fleet) -> None:
    for at, zone in ZONES.items():
        assert (await fleet.produce(at, 0, f"zone_id={zone}")).error_code == 0
        assert (await fleet.fetch(at, 0)).error_code == 0


@pytest.mark.parametrize("client_id", ["plain", "zone_id=a", "zone_id=b", "zone_id=nowhere"])
async def test_only_the_leader_that_metadata_names_serves(strict: Fleet, client_id: str) -> None:
    """Clients converge: whoever does as the metadata says is served."""
    told = await strict.metadata(0, client_id)
    for partition in told.topics[0].partitions[:4]:
        index = partition.partition_index
        for at in ZONES:
            wanted = 0 if at == partition.leader_id else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await strict.produce(at, index, client_id)).error_code == wanted
            assert (await strict.fetch(at, index, client_id=client_id)).error_code == wanted


async def test_a_rack_does_not_overrule_a_zone(strict: Fleet) -> None:
    told = await strict.fetch(strict.owner(1, "b"), 1, rack_id="b", client_id="zone_id=a")
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_what_is_not_there_is_not_somebody_else_s(strict: Fleet) -> None:
    for at in ZONES:
        assert (await strict.fetch(at, 99)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await strict.produce(at, 99)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_a_broker_has_to_look_up_is_checked_as_well(strict: Fleet) -> None:
    """Such a produce goes another way than one whose topic is known."""
    strict.topic = await strict.brokers[0].topics.create(NewTopic("late", 1))
    for at in ZONES:
        records = batch(b"value", now_ms=strict.brokers[at].runtime.wall_ms())
        data = [TopicProduceData(name="late", partition_data=[PartitionProduceData(0, records)])]
        response = await strict.brokers[at].ask(ProduceRequest(acks=-1, topic_data=data), 9)
        wanted = 0 if at == strict.owner(0) else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert response.responses[0].partition_responses[0].error_code == wanted


async def test_a_refused_produce_stores_nothing_and_names_the_leader(strict: Fleet) -> None:
    stranger = next(number for number in ZONES if number != strict.owner(0))
    answer = await strict.produce(stranger, 0)
    assert answer.error_message == f"Broker {strict.owner(0)} leads."
    assert strict.brokers[0].log.appended == []


async def test_a_consumer_may_read_where_its_rack_sent_it(strict: Fleet) -> None:
    checked = 0
    for partition in range(PARTITIONS):
        leader, near = strict.owner(partition), strict.owner(partition, "b")
        if ZONES[leader] == "b":
            continue
        checked += 1
        assert (await strict.fetch(leader, partition, rack_id="b")).preferred_read_replica == near
        assert (await strict.fetch(near, partition, rack_id="b")).error_code == 0
        neighbour = {2: 3, 3: 2}[near]
        refused = await strict.fetch(neighbour, partition, rack_id="b")
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert checked


async def test_acks_0_at_a_stranger_closes_the_connection(strict: Fleet) -> None:
    """The only way to tell a client that listens to nothing."""
    stranger = next(number for number in ZONES if number != strict.owner(0))
    records = batch(b"value", now_ms=strict.brokers[0].runtime.wall_ms())
    data = [TopicProduceData(name="orders", partition_data=[PartitionProduceData(0, records)])]
    with pytest.raises(RefuseConnection, match="NOT_LEADER_OR_FOLLOWER"):
        await strict.brokers[stranger].ask(ProduceRequest(acks=0, topic_data=data), 9)


# --- clients that do not say their zone


@pytest.fixture
async def placing() -> AsyncIterator[Fleet]:
    ranges = {"b": (ip_network("10.1.0.0/16"), ip_network("fd00::/64")), "c": (ip_network("10.1.9.0/24"),)}
    settings = room_settings.api(listener_zones={"ZONE_A": "a"}, zones=ranges)
    async with AsyncExitStack() as stack:
        yield await start(settings, stack)


@pytest.mark.parametrize(
    ("client_id", "listener", "peer", "zone"),
    [
        ("app", "ZONE_A", "192.0.2.1:1", "a"),
        ("app", "ZONE_A", "10.1.2.3:1", "a"),
        ("zone_id=c", "ZONE_A", "10.1.2.3:1", "c"),
        ("zone_id=c", "PLAINTEXT", "10.1.2.3:1", "c"),
        ("app", "PLAINTEXT", "10.1.2.3:1", "b"),
        ("app", "PLAINTEXT", "10.1.9.3:1", "c"),
        ("app", "PLAINTEXT", "::ffff:10.1.2.3:1", "b"),
        ("app", "PLAINTEXT", "fd00::7:1", "b"),
        ("app", "PLAINTEXT", "10.2.0.1:1", None),
        ("app", "PLAINTEXT", "/run/dray.sock", None),
    ],
)
async def test_a_client_is_placed_by_its_name_then_its_listener_then_its_address(
    placing: Fleet, client_id: str, listener: str, peer: str, zone: str | None
) -> None:
    connection = FakeConnection(listener)
    connection.peer = peer
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    for _ in range(2):
        told = await placing.brokers[3].ask(request, 12, connection, client_id)
        leaders = {partition.leader_id for partition in told.topics[0].partitions}
        if zone is None:
            assert [node.node_id for node in told.brokers] == list(ZONES)
        else:
            assert leaders == {number for number, home in ZONES.items() if home == zone}


async def test_a_rack_says_nothing_where_the_listener_has_a_zone(placing: Fleet) -> None:
    partition = next(number for number in range(PARTITIONS) if placing.owner(number, "b") == 2)
    wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        topics=[FetchTopic(topic_id=placing.topic.topic_id, partitions=[wanted])], rack_id="c", max_wait_ms=0
    )
    for listener, sent_to in (("ZONE_A", -1), ("PLAINTEXT", 4)):
        told = await placing.brokers[2].ask(request, 13, FakeConnection(listener))
        assert told.responses[0].partitions[0].preferred_read_replica == sent_to
