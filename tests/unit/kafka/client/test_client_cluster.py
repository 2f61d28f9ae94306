"""How clients find brokers and leaders, keep their connections, and try again."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.unit.kafka.client.client_fakes import Clock, ScriptedBroker, ScriptedConnection

from dray.kafka.client import ClientError, Cluster, RequestFailed
from dray.kafka.client.cluster import ClusterView, coordinator_in
from dray.kafka.client.errors import check
from dray.kafka.client.records import LATEST, list_offsets
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from dray.kafka.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dray.kafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ONE, TWO, THREE = ("one", 1), ("two", 2), ("three", 3)
TOPIC_ID = UUID(int=7)


class Network:
    """Brokers by address. Those that are missing cannot be reached."""

    def __init__(self, **brokers: ScriptedBroker) -> None:
        self.brokers = brokers
        self.dialled: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def dial(self, host: str, _port: int, /) -> ScriptedConnection:
        self.dialled.append(host)
        await self.gate.wait()
        if host not in self.brokers:
            raise ClientError(f"cannot reach {host}")
        return ScriptedConnection(self.brokers[host])


def described(cluster_id: str) -> ScriptedBroker:
    return ScriptedBroker(DescribeClusterRequest=DescribeClusterResponse(cluster_id=cluster_id))


def topic(leaders: dict[int, int], code: int = 0, topic_id: UUID = TOPIC_ID) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader)
        for index, leader in leaders.items()
    ]
    return MetadataResponseTopic(name="t", error_code=code, topic_id=topic_id, partitions=partitions)


def metadata(*topics: MetadataResponseTopic) -> MetadataResponse:
    brokers = [MetadataResponseBroker(1, *ONE), MetadataResponseBroker(2, *TWO)]
    return MetadataResponse(brokers=brokers, topics=list(topics))


# --- brokers


async def test_the_first_address_that_answers_is_asked() -> None:
    network = Network(two=described("two"), three=described("three"))
    async with Cluster([ONE, TWO, THREE], network.dial, Clock()) as cluster:
        assert (await cluster.request(DescribeClusterRequest())).cluster_id == "two"
    assert network.dialled == ["one", "two"]


async def test_where_none_answers_it_fails_before_anything_is_asked() -> None:
    with pytest.raises(ClientError, match="cannot reach two"):
        async with Cluster([ONE, TWO], Network().dial, Clock()):
            raise AssertionError("unreachable")


async def test_without_an_address_there_is_nobody_to_ask() -> None:
    with pytest.raises(ClientError, match="no broker is named"):
        await Cluster([], Network().dial, Clock()).request(DescribeClusterRequest())


async def test_connections_are_kept_and_closed_at_the_end() -> None:
    broker = described("one")
    network = Network(one=broker)
    async with Cluster([ONE], network.dial, Clock()) as cluster:
        for _ in range(3):
            await cluster.request(DescribeClusterRequest())
        assert (network.dialled, broker.open) == (["one"], 1)
    assert broker.open == 0


async def test_a_connection_that_broke_off_is_dialled_anew() -> None:
    broker = ScriptedBroker(
        DescribeClusterRequest=[ClientError("broke off"), DescribeClusterResponse(cluster_id="x")]
    )
    network = Network(one=broker)
    cluster = Cluster([ONE], network.dial, Clock())
    with pytest.raises(ClientError, match="broke off"):
        await cluster.request(DescribeClusterRequest())
    assert broker.open == 0
    assert (await cluster.request(DescribeClusterRequest())).cluster_id == "x"
    assert (network.dialled, broker.open) == (["one", "one"], 1)


async def test_what_failed_last_is_asked_last() -> None:
    """A broker that stands still takes long to fail."""
    silent = ScriptedBroker(DescribeClusterRequest=ClientError("silent"))
    network = Network(one=silent, two=described("two"))
    cluster = Cluster([ONE, TWO], network.dial, Clock())
    with pytest.raises(ClientError, match="silent"):
        await cluster.request(DescribeClusterRequest())
    assert (await cluster.request(DescribeClusterRequest())).cluster_id == "two"
    await cluster.close()
    assert (await cluster.request(DescribeClusterRequest())).cluster_id == "two"
    assert network.dialled == ["one", "two", "two"]
    del network.brokers["two"]
    network.brokers["one"] = described("one")
    await cluster.close()
    assert (await cluster.request(DescribeClusterRequest())).cluster_id == "one"
    network.brokers["two"] = described("two")
    await cluster.close()
    assert (await cluster.request(DescribeClusterRequest())).cluster_id == "one", "it has answered since"


async def test_brokers_that_were_told_of_are_asked_where_those_that_were_named_are_gone() -> None:
    first = ScriptedBroker(
        MetadataRequest=metadata(topic({0: 2})), DescribeClusterRequest=ClientError("broke off")
    )
    network = Network(one=first, two=described("two"))
    cluster = Cluster([ONE], network.dial, Clock())
    await cluster.learn(["t"])
    with pytest.raises(ClientError, match="broke off"):
        await cluster.request(DescribeClusterRequest())
    del network.brokers["one"]
    assert (await cluster.request(DescribeClusterRequest())).cluster_id == "two"


async def test_requests_at_once_end_up_on_one_connection() -> None:
    broker = described("one")
    network = Network(one=broker)
    network.gate.clear()
    cluster = Cluster([ONE], network.dial, Clock())
    asking = [asyncio.ensure_future(cluster.request(DescribeClusterRequest())) for _ in range(2)]
    await asyncio.sleep(0)
    assert network.dialled == ["one", "one"]
    network.gate.set()
    await asyncio.gather(*asking)
    assert broker.open == 1
    await cluster.close()
    assert broker.open == 0


# --- leaders


async def test_what_the_metadata_says_is_known_until_it_says_otherwise() -> None:
    view = ClusterView()
    view.learn(metadata(topic({1: 2, 0: 1, 2: -1, 3: 9})))
    assert view.partitions("t") == [0, 1, 2, 3]
    assert [view.leader("t", partition) for partition in range(5)] == [ONE, TWO, None, None, None]
    assert view.by_leader([("t", 1), ("t", 0), ("t", 2), ("u", 0)]) == {TWO: {"t": [1]}, ONE: {"t": [0]}}
    view.learn(metadata(topic({0: 2})))
    assert (view.partitions("t"), view.leader("t", 0), view.leader("t", 1)) == ([0], TWO, None)
    view.forget_broker(TWO)
    assert view.leader("t", 0) is None


def test_a_topic_that_is_gone_has_no_id_and_no_partitions() -> None:
    view = ClusterView()
    view.learn(metadata(topic({0: 1})))
    view.learn(metadata(topic({}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    assert (view.topic_ids, view.partitions("t")) == ({}, [])


def test_an_answer_without_ids_does_not_take_away_one_that_is_known() -> None:
    view = ClusterView()
    view.learn(metadata(topic({0: 1}, topic_id=ZERO_UUID)))
    assert view.topic_ids == {"t": ZERO_UUID}
    view.learn(metadata(topic({0: 1})))
    view.learn(metadata(topic({0: 1}, topic_id=ZERO_UUID)))
    assert view.topic_ids == {"t": TOPIC_ID}


def offset_answer(request: Any, offset: int) -> ListOffsetsResponse:
    topics = [
        ListOffsetsTopicResponse(
            name=asked.name,
            partitions=[
                ListOffsetsPartitionResponse(partition_index=item.partition_index, offset=offset)
                for item in asked.partitions
            ],
        )
        for asked in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


async def test_each_leader_is_asked_once_for_all_its_partitions() -> None:
    one = ScriptedBroker(
        MetadataRequest=metadata(topic({0: 1, 1: 2, 2: 1, 3: -1})),
        ListOffsetsRequest=lambda request: offset_answer(request, 10),
    )
    two = ScriptedBroker(ListOffsetsRequest=lambda request: offset_answer(request, 20))
    cluster = Cluster([ONE], Network(one=one, two=two).dial, Clock())
    await cluster.learn(["t"])
    assert one.seen[0].allow_auto_topic_creation is False
    found = await list_offsets(cluster, [("t", partition) for partition in range(4)], LATEST)
    assert {place: answer.offset for place, answer in found.items()} == {
        ("t", 0): 10,
        ("t", 2): 10,
        ("t", 1): 20,
    }
    assert (len(one.seen), len(two.seen)) == (2, 1)


async def test_many_partitions_are_asked_for_in_several_requests() -> None:
    """A broker refuses a request of more than 20,000 elements."""
    broker = ScriptedBroker(
        MetadataRequest=metadata(topic(dict.fromkeys(range(12_000), 1))),
        ListOffsetsRequest=lambda request: offset_answer(request, 10),
    )
    cluster = Cluster([ONE], Network(one=broker).dial, Clock())
    await cluster.learn(["t"])
    found = await list_offsets(cluster, [("t", partition) for partition in range(12_000)], LATEST)
    assert len(found) == 12_000
    assert [len(asked.topics[0].partitions) for asked in broker.seen[1:]] == [5000, 5000, 2000]


def test_a_coordinator_in_either_form_of_the_answer() -> None:
    new = FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=1, host="one", port=1)])
    old = FindCoordinatorResponse(node_id=1, host="one", port=1)
    for answer in (new, old):
        found = coordinator_in(answer, "g")
        assert (found.key, found.node_id, found.host, found.port) == ("g", 1, "one", 1)


# --- trying again


async def test_a_passing_error_is_tried_again_from_the_first_addresses_with_nothing_known() -> None:
    broker = ScriptedBroker(MetadataRequest=metadata(topic({0: 1})))
    network, clock = Network(one=broker), Clock()
    cluster = Cluster([ONE], network.dial, clock)
    codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]

    async def attempt() -> str:
        assert cluster.view.topic_ids == {}
        await cluster.learn(["t"])
        check("cannot read t-0", codes.pop(0))
        return "done"

    assert await cluster.patiently(attempt, 10.0) == "done"
    assert network.dialled == ["one", "one"]
    assert (broker.open, clock.now > 0) == (1, True)


@pytest.mark.parametrize(
    "failure",
    [
        RequestFailed("cannot read t-0: REQUEST_TIMED_OUT", ErrorCode.REQUEST_TIMED_OUT),
        ClientError("cannot reach one"),
    ],
)
async def test_after_the_patience_the_last_failure_is_raised(failure: Exception) -> None:
    clock = Clock()
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        raise failure

    with pytest.raises(type(failure), match=str(failure)):
        await Cluster([ONE], Network().dial, clock).patiently(attempt, 2.0)
    assert (tries > 10, 2.0 <= clock.now < 3.0) == (True, True)


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, 999, None])
async def test_an_error_that_does_not_pass_is_raised_at_once(code: int | None) -> None:
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        raise RequestFailed("no", code)

    with pytest.raises(RequestFailed, match="no"):
        await Cluster([ONE], Network().dial, Clock()).patiently(attempt, 10.0)
    assert tries == 1
