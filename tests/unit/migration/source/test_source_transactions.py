"""Transactions at the source, as a user sees them who may not DESCRIBE transactional ids; and old sources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from dray.kafka.client.cluster import Cluster, ClusterView
from dray.kafka.client.errors import ClientError
from dray.kafka.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from dray.kafka.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from dray.kafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.migration.live.link import SourceUnsuitable, plan_link
from dray.migration.source.fences import FenceRefused, SizeFence
from dray.migration.source.source import SourceTopic

PLAIN = ProducerState(1, 0, 5, coordinator_epoch=-1)
IN_ONE = ProducerState(2, 0, 5, coordinator_epoch=-1, current_txn_start_offset=7)
HAS_ENDED = ProducerState(3, 0, 5, coordinator_epoch=0)


class TransactionalCluster:
    """One broker with one partition, and a user who is shown some of the transactions."""

    def __init__(self, producers: list[ProducerState], shown: list[TransactionState]) -> None:
        self.view = ClusterView()
        self._producers = producers
        self._shown = shown
        self.is_old = False

    async def learn(self, topics: list[str]) -> MetadataResponse:
        partition = MetadataResponsePartition(leader_id=1, leader_epoch=0)
        answer = MetadataResponse(
            brokers=[MetadataResponseBroker(1, "h", 1)],
            topics=[MetadataResponseTopic(name=topics[0], partitions=[partition])],
        )
        self.view.learn(answer)
        return answer

    @asynccontextmanager
    async def broker(self, _: object) -> AsyncIterator[TransactionalCluster]:
        yield self

    def version_for(self, api_key: int) -> int:
        if self.is_old and api_key == ListTransactionsRequest.API_KEY:
            raise ClientError("h:1 serves no version of ListTransactions that is known here")
        return 0

    async def request(self, request: object) -> Any:
        if isinstance(request, ListTransactionsRequest):
            return ListTransactionsResponse(transaction_states=self._shown)
        assert isinstance(request, DescribeProducersRequest)
        answer = PartitionResponse(active_producers=self._producers)
        return DescribeProducersResponse(topics=[TopicResponse(partitions=[answer])])


async def topic_of(
    producers: list[ProducerState], shown: list[TransactionState]
) -> tuple[SourceTopic, SizeFence]:
    cluster = cast(Cluster, TransactionalCluster(producers, shown))
    topic = SourceTopic(cluster, "orders")
    await topic.learn()
    return topic, SizeFence(cluster, "orders", None)


async def test_transactions_whose_names_are_not_shown_are_seen() -> None:
    topic, fence = await topic_of([PLAIN, IN_ONE, HAS_ENDED], [])
    unnamed = "(its transactional id is not shown to us)"
    assert await topic.open_transactions() == [f"producer 2 {unnamed}"]
    assert await topic.transactional() == [f"producer 2 {unnamed}", f"producer 3 {unnamed}"]
    with pytest.raises(FenceRefused, match=r"transactions are open at the source .producer 2 "):
        await fence.check(topic)


async def test_transactions_are_named_where_their_names_are_shown() -> None:
    shown = [TransactionState("payments", 2, "Ongoing"), TransactionState("elsewhere", 9, "Ongoing")]
    topic, fence = await topic_of([PLAIN, IN_ONE], shown)
    assert await topic.open_transactions() == ["elsewhere", "payments"]
    assert await topic.transactional() == ["payments"]
    with pytest.raises(FenceRefused, match=r"are open at the source .elsewhere, payments"):
        await fence.check(topic)


async def test_a_fence_by_size_is_refused_where_the_next_transaction_may_begin_at_once() -> None:
    topic, fence = await topic_of([PLAIN, HAS_ENDED], [])
    assert await topic.open_transactions() == []
    with pytest.raises(FenceRefused, match=r"are written to the topic .producer 3 .*--fence acl"):
        await fence.check(topic)


async def test_a_topic_without_transactions_may_be_fenced_by_size() -> None:
    topic, fence = await topic_of([PLAIN], [TransactionState("elsewhere", 9, "CompleteCommit")])
    assert await topic.transactional() == []
    await fence.check(topic)


async def test_a_source_that_is_too_old_is_refused_in_one_line() -> None:
    cluster = TransactionalCluster([], [])
    cluster.is_old = True
    with pytest.raises(SourceUnsuitable) as refused:
        await plan_link(cast(Cluster, cluster), "orders")
    assert str(refused.value) == (
        "the source is too old: h:1 serves no version of ListTransactions that is known here; Kafka has it "
        "since 3.0, and a switch needs it"
    )
