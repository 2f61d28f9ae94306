"""A linked topic at a source that answers with what it was given."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from tests.services.two_builds import MIGRATION

from dray.kafka.client.cluster import ClusterView
from dray.kafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

LINKED = UUID(int=6)
RECORD = replace(MIGRATION, partitions=2, streams=(7, 8), upstream="old", source_topic_id=LINKED, attempt=0)


class SimulatedCluster:
    """Answers with what it was given."""

    def __init__(self, topic_id: UUID = LINKED, leaders: tuple[int, ...] = (1, 1)) -> None:
        self.view = ClusterView()
        self.topic_id = topic_id
        self.leaders = leaders

    async def learn(self, topics: list[str]) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=3)
            for number, leader in enumerate(self.leaders)
        ]
        topic = MetadataResponseTopic(name=topics[0], topic_id=self.topic_id, partitions=partitions)
        answer = MetadataResponse(topics=[topic])
        self.view.learn(answer)
        return answer

    async def close(self) -> None:
        return None
