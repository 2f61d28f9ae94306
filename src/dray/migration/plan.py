"""What an attach would do: the segments of each partition, what is lost, what is hidden, and what stands in
the way."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from dray.foreign.aiven import read_index_part, read_manifest
from dray.foreign.kafka_files import ProducerRow, read_producer_snapshot
from dray.foreign.stored_offsets import OffsetPlace, StoredOffset
from dray.migration.found import MigrationRefused, PartitionRefused, naming
from dray.migration.inventory import Inventory, Question, SourceLayout
from dray.migration.lineage import PartitionLineage, choose
from dray.migration.offsets import GroupOffset, offsets_of
from dray.migration.reading import LARGEST_PART, SourceReader
from dray.objects.contract import ObjectError


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    partition: int
    lineage: PartitionLineage
    start: int
    """Where the stream begins: the lineage's start, or above it where records were deleted."""
    producers: tuple[ProducerRow, ...] = ()

    @property
    def end(self) -> int:
        return self.lineage.end

    @property
    def size(self) -> int:
        return sum(each.segment.segment_size for each in self.lineage.chosen)

    @property
    def open_transactions(self) -> list[ProducerRow]:
        return [row for row in self.producers if 0 <= row.transaction_first_offset < self.end]


@dataclass(frozen=True, slots=True)
class AttachPlan:
    topic: str
    layout: SourceLayout
    topic_id: UUID | None
    partitions: tuple[PartitionPlan, ...]
    refused: tuple[PartitionRefused, ...] = ()
    offsets: tuple[GroupOffset, ...] = ()
    notes: tuple[str, ...] = ()
    converted: Mapping[int, bytes] = field(default_factory=dict, repr=False)

    @property
    def epoch(self) -> int:
        """The newest leader epoch of any partition."""
        return max((each.lineage.epoch for each in self.partitions), default=-1)

    @property
    def segments(self) -> int:
        return sum(len(each.lineage.chosen) for each in self.partitions)

    @property
    def size(self) -> int:
        return sum(each.size for each in self.partitions)

    @property
    def digest(self) -> str:
        """Equal for equal plans: the same segments, offsets and producers, in the same places."""
        found = hashlib.sha256(f"{self.topic} {self.topic_id} {self.layout}".encode())
        for partition in self.partitions:
            found.update(
                f"{partition.partition} {partition.start} {partition.end} {partition.producers}".encode()
            )
            for each in partition.lineage.chosen:
                segment = each.segment
                known = segment.segment_id, segment.path, segment.object_size, each.start, each.end
                found.update(str((*known, each.aborted)).encode())
        return found.hexdigest()


async def make_plan(
    source: SourceReader,
    question: Question,
    inventory: Inventory,
    now_ms: int,
    offsets: Mapping[OffsetPlace, StoredOffset] | None = None,
) -> AttachPlan:
    """`offsets`: those of groups that are known from elsewhere; they win over what the source has."""
    refused = [PartitionRefused(number, reason) for number, reason in sorted(inventory.refused.items())]
    plans: list[PartitionPlan] = []
    notes = list(inventory.notes)
    for number, found in sorted(inventory.segments.items()):
        if number in inventory.refused:
            continue
        if not found:
            notes.append(f"partition {number}: no segment of it was finished, so it begins empty")
            plans.append(_empty(number))
            continue
        try:
            lineage = choose(number, found)
            producers = inventory.producers.get(number)
            if producers is None:
                producers = await _snapshot(source, question, lineage)
        except PartitionRefused as refusal:
            refused.append(refusal)
            continue
        except MigrationRefused as refusal:
            refused.append(PartitionRefused(number, str(refusal)))
            continue
        kept = tuple(row for row in producers if row.last_offset < lineage.end)
        start = max(lineage.start, inventory.starts.get(number, lineage.start))
        plans.append(PartitionPlan(number, lineage, min(start, lineage.end), kept))
    numbers = {each.partition for each in plans} | {each.partition for each in refused}
    for number in range(max(numbers, default=-1) + 1):
        if number not in numbers:
            notes.append(f"partition {number}: nothing of it lies there, so it begins empty")
            plans.append(_empty(number))
    plans.sort(key=lambda each: each.partition)
    notes += [
        f"partition {each.partition}: the transaction of producer {row.producer_id} from offset "
        f"{row.transaction_first_offset} was never ended: it counts as aborted"
        for each in plans
        for row in each.open_transactions
    ]
    if inventory.unfinished:
        notes.append(
            f"{len(inventory.unfinished)} segments are left out, as their copies were not finished: "
            f"{min(inventory.unfinished)}{' and others' if len(inventory.unfinished) > 1 else ''}"
        )
    stored = {**inventory.offsets, **(offsets or {})}
    ends = {each.partition: (each.start, each.end) for each in plans}
    return AttachPlan(
        question.topic,
        question.layout,
        inventory.topic_id,
        tuple(plans),
        tuple(refused),
        tuple(offsets_of(question.topic, stored, ends, now_ms)),
        tuple(notes),
        inventory.converted,
    )


def _empty(partition: int) -> PartitionPlan:
    return PartitionPlan(partition, PartitionLineage(0, 0, -1, ()), 0)


async def _snapshot(source: SourceReader, question: Question, lineage: PartitionLineage) -> list[ProducerRow]:
    """The producers at the end of the last segment."""
    path = lineage.chosen[-1].segment.state_path
    if not path:
        return []
    try:
        info = await source.store.head(path)
        data = await source.whole(info)
        with naming(path):
            if question.layout is not SourceLayout.AIVEN:
                return read_producer_snapshot(data)
            manifest = read_manifest(data)
            indexes = path.removesuffix("rsm-manifest") + "indexes"
            parts = await source.whole(await source.store.head(indexes), LARGEST_PART)
            found = read_index_part(manifest, "producerSnapshot", parts, question.keys.data_key(manifest))
            return [] if not found else read_producer_snapshot(found)
    except ObjectError as error:
        raise MigrationRefused(f"the source cannot be read: {error}") from error
