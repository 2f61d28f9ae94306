"""The clients of the topic that is compacted by key: a producer, a reader, and switches of its policy.

Their records have few keys, and many are tombstones. The records that are gone from the log, and whether they
may be, are judged at the store (`checks/cleaned_truth.py`). The reader is held to the rest: over holes of any
size it gets every record that is still there, in order, as it was sent, and its position reaches the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import PartitionData
from dray.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dray.kafka.records import HEADER_SIZE, Record, decode, read_header
from dray.kafka.records.header import CONTROL
from dray.log.types import ReadRequest
from dray_simulation.checks.cleaned_truth import replayed
from dray_simulation.checks.log_truth import TIMES, Violation
from dray_simulation.checks.payload import KEYED, batch_of, values_of
from dray_simulation.cluster.client import SimulatedClient, Unanswered
from dray_simulation.cluster.conditions import COMPACTED, COMPACTED_PLACE
from dray_simulation.cluster.producers import Batch, SimulatedProducer
from dray_simulation.cluster.readers import EARLIEST, LARGEST_TIMESTAMP, LATEST, Consumer

if TYPE_CHECKING:
    from dray.log import Log
    from dray_simulation.cluster.world import ClusterWorld

_TOPIC_RESOURCE: Final = 2
_SET: Final = 0
_POLICIES: Final = ("compact", "compact", "compact,delete", "delete")


class CompactedProducer(SimulatedProducer):
    """Each batch once: what is not acknowledged may be there or not."""

    async def play(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(self.random.random() * 2 * self.world.conditions.pace)
            try:
                if COMPACTED not in self.topic_ids and not await self.look_around(COMPACTED):
                    continue
                number += 1
                count = self.random.randint(1, 4)
                producer = f"{KEYED} {self.name}"
                values = values_of(producer, number, count)
                await self._write(Batch(COMPACTED_PLACE, values, batch_of(producer, number, count)))
            except Unanswered:
                continue

    async def _write(self, batch: Batch) -> None:
        sent = self.sending(batch)
        answer = None
        try:
            response = await self.ask(self.address_for(*COMPACTED_PLACE), self.request_for([batch]))
            answer = response.responses[0].partition_responses[0]
        finally:
            if self.heard(batch, sent, answer) is ErrorCode.UNKNOWN_TOPIC_ID:
                self.topic_ids.pop(COMPACTED, None)


class CompactedReader(Consumer):
    """Reads from the start to the end, again and again, and looks records up by their times."""

    async def play(self) -> None:
        while True:
            await asyncio.sleep(self.random.random() * 4 * self.world.conditions.pace)
            try:
                if COMPACTED in self.topic_ids or await self.look_around(COMPACTED):
                    await self._read_through()
            except Unanswered:
                continue

    async def _read_through(self) -> None:
        found = await self.list_offset(COMPACTED_PLACE, EARLIEST)
        position = None if found is None else found[0]
        end = self.world.truth.bounds(*COMPACTED_PLACE).end
        while position is not None and position < end:
            await asyncio.sleep(self.random.random() * self.world.conditions.pace)
            position = await self._read_on(position)
        await self.list_offset(COMPACTED_PLACE, self.random.choice((LATEST, LARGEST_TIMESTAMP, *TIMES)))

    async def _read_on(self, position: int) -> int | None:
        """One fetch; where to go on, None where one has to seek."""
        world, place = self.world, COMPACTED_PLACE
        before = world.truth.bounds(*place)
        answer = await self.ask(self.address_for(*place), self.fetch_request({place: position}))
        if answer.error_code:
            raise Violation(f"{self.name}: a fetch was refused with {ErrorCode.name_of(answer.error_code)}")
        if not answer.responses:
            return position
        part: PartitionData = answer.responses[0].partitions[0]
        if part.error_code:
            return self.judge_refusal(place, position, before, part)
        records, reached = read_batches(memoryview(cast(bytes, part.records or b"")), position)
        if reached <= position < before.end:
            raise Violation(f"{self.name}: nothing at {place}:{position}, below {before.end}")
        check_over_holes(world, records, position, reached)
        world.counts["read over holes"] += len(records) < reached - position
        return reached


def read_batches(data: memoryview, position: int) -> tuple[list[Record], int]:
    """The records of an answer, and where its reader comes to stand, as clients see it."""
    records: list[Record] = []
    reached = position
    for batch in _batches(data):
        header = read_header(batch)
        if not header.attributes & CONTROL:
            found = decode(batch, sparse=True).records()
            records += [record for record in found if record.offset >= position]
        reached = max(reached, header.base_offset + header.last_offset_delta + 1)
    return records, reached


def _batches(data: memoryview) -> Iterator[memoryview]:
    while len(data) >= HEADER_SIZE:
        size = read_header(data).size
        yield data[:size]
        data = data[size:]


def check_over_holes(world: ClusterWorld, records: list[Record], position: int, reached: int) -> None:
    """In order, as they were sent, and every one of them that is still there."""
    offsets = [record.offset for record in records]
    if offsets != sorted(set(offsets)):
        raise Violation(f"{COMPACTED}: read in the order {offsets}")
    if records:
        world.truth.consumed(*COMPACTED_PLACE, records)
        world.counts["consumed"] += len(records)
    truth = world.truth.log.streams[world.truth.stream(*COMPACTED_PLACE)]
    skipped = set(range(max(position, truth.start), reached)) - set(offsets) - truth.gone
    if skipped:
        raise Violation(f"{COMPACTED}: a reader at {position} skipped {min(skipped)}, which is there")


class PolicySwitcher(SimulatedClient):
    """An administrator who cannot decide whether the topic is compacted by key."""

    async def play(self) -> None:
        while True:
            await asyncio.sleep(0.5 + self.random.random() * 2)
            policy = self.random.choice(_POLICIES)
            config = AlterableConfig(name="cleanup.policy", config_operation=_SET, value=policy)
            resource = AlterConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=COMPACTED, configs=[config]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource])
            try:
                answer = await self.ask(self.any_address(), request, patience=3.0)
            except Unanswered:
                continue
            [result] = answer.responses
            if result.error_code:
                allowed = "UNKNOWN_TOPIC_OR_PARTITION REQUEST_TIMED_OUT UNKNOWN_SERVER_ERROR"
                self.world.expect(self.name, "AlterConfigs", result.error_code, allowed)
            else:
                self.world.counts["policies switched"] += 1
                self.world.trace(self.name, "made", COMPACTED, policy)


async def check_state(world: ClusterWorld, log: Log) -> None:
    """In the end a new reader has the state of all that was ever written, and stands at the end."""
    stream = world.truth.stream(*COMPACTED_PLACE)
    truth = world.truth.log.streams[stream]
    position, offsets = truth.start, set[int]()
    while position < len(truth.records):
        request = ReadRequest(stream, position, 1 << 20)
        [result] = await log.fetch([request], min_bytes=0, max_bytes=1 << 20, max_wait_ms=0)
        if result.error is not None:
            raise result.error
        records, reached = read_batches(memoryview(b"".join(result.buffers)), position)
        check_over_holes(world, records, position, reached)
        if reached == position:
            raise Violation(f"{COMPACTED}: a reader stays at {position}, below {len(truth.records)}")
        offsets |= {record.offset for record in records}
        position = reached
    if back := offsets & truth.gone:
        raise Violation(f"{COMPACTED}: a new reader was given {min(back)}, which was cleaned away")
    if replayed(truth.records, offsets) != replayed(truth.records, range(truth.start, len(truth.records))):
        raise Violation(f"{COMPACTED}: a new reader ends with another state")
