"""A simulated administrator: topics come and go, and records are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from dray.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from dray.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray_simulation.checks.history import AcknowledgedDeletion, StartRaised
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.client import SimulatedClient, Unanswered
from dray_simulation.cluster.conditions import MAIN, SPARE, SPARE_PARTITIONS

_TIMEOUT_MS = 1500


class Administrator(SimulatedClient):
    async def play(self) -> None:
        while True:
            await asyncio.sleep(self.random.random() * 4 * self.world.conditions.pace)
            chance = self.random.random()
            if chance < 0.6 or not self.world.conditions.deletes_topics:
                await self._delete_records()
            elif SPARE not in self.world.truth.named:
                await self.create(SPARE, SPARE_PARTITIONS)
            elif chance < 0.75:
                await self._delete_spare()

    async def create(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        request = CreateTopicsRequest(
            topics=[topic],
            timeout_ms=_TIMEOUT_MS,
        )
        try:
            answer = await self.ask(self.any_address(), request, patience=3.0)
        except Unanswered:
            return
        [result] = answer.topics
        if result.error_code:
            self.world.expect(
                self.name, "CreateTopics", result.error_code, "TOPIC_ALREADY_EXISTS REQUEST_TIMED_OUT"
            )
        else:
            self.world.counts["topics created"] += 1
            self.world.trace(self.name, "created", name)

    async def _delete_spare(self) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=SPARE)], topic_names=[SPARE], timeout_ms=_TIMEOUT_MS
        )
        before = self.world.truth.named.get(SPARE)
        try:
            answer = await self.ask(self.any_address(), request, patience=3.0)
        except Unanswered:
            return
        [result] = answer.responses
        if result.error_code:
            allowed = "UNKNOWN_TOPIC_OR_PARTITION REQUEST_TIMED_OUT"
            if self.world.conditions.older_brokers:
                allowed += " UNKNOWN_SERVER_ERROR"  # it is there, and cannot be read
            self.world.expect(self.name, "DeleteTopics", result.error_code, allowed)
            return
        self.world.counts["topics deleted"] += 1
        self.world.trace(self.name, "deleted", SPARE)
        if before is not None and before not in self.world.truth.deleted:
            raise Violation(f"{self.name}: {SPARE} was said to be deleted, and was not")

    async def _delete_records(self) -> None:
        places = [place for place in self.world.places if place[0] == MAIN]
        name, partition = place = self.random.choice(places)
        truth = self.world.truth
        bounds = truth.bounds(*place)
        before = self.random.randint(bounds.start, bounds.end)
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name, partitions=[DeleteRecordsPartition(partition_index=partition, offset=before)]
                )
            ],
            timeout_ms=_TIMEOUT_MS,
        )
        stream = truth.stream(*place)
        self.world.history.starts.append(StartRaised(stream, before, self.world.now()))
        try:
            answer = await self.ask(self.address_for(*place), request, patience=3.0)
        except Unanswered:
            return
        [result] = answer.topics[0].partitions
        if result.error_code:
            allowed = (
                "REQUEST_TIMED_OUT NOT_LEADER_OR_FOLLOWER LEADER_NOT_AVAILABLE UNKNOWN_TOPIC_OR_PARTITION"
            )
            self.world.expect(self.name, "DeleteRecords", result.error_code, allowed)
            return
        gone_from = self.world.now() + self.world.conditions.gone_within
        self.world.history.deleted.append(AcknowledgedDeletion(stream, before, gone_from))
        self.world.counts["records deleted"] += 1
        self.world.trace(self.name, "deleted records of", f"{name}-{partition} below", before)
        if not before <= result.low_watermark <= truth.log.start(stream):
            raise Violation(f"{place}: said to start at {result.low_watermark}, not {before}")
