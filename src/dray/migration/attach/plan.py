"""The plan of an attach: the segments of each partition, what is lost, what is hidden, and what stands in the
way."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from dray.migration.attach.found import MigrationRefused, PartitionRefused, naming
from dray.migration.attach.inventory import Inventory, Question, SourceLayout
from dray.migration.attach.lineage import PartitionLineage, choose
from dray.migration.attach.offsets import GroupOffset, offsets_of
from dray.migration.attach.reading import LARGEST_PART, SourceReader
from dray.migration.formats.aiven import read_index_part, read_manifest
from dray.migration.formats.kafka_files import OffsetPlace, ProducerRow, StoredOffset, read_producer_snapshot
from dray.objects.contract import ObjectError

_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    partition: int
    lineage: PartitionLineage
    start: int
    """The start of the stream: the lineage's start, or above it if records were deleted."""
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
    seen = max(numbers, default=-1) + 1
    if question.partitions is not None and seen > question.partitions:
        raise MigrationRefused(
            f"partition {seen - 1} lies there, so the topic had more than {question.partitions}"
        )
    for number in range(question.partitions or seen):
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
    if question.partitions is None:
        notes.append(
            f"{seen} partitions lie there: if the topic had more, say so with --partitions, or producers "
            "send keys to other partitions than before"
        )
    stored = {**inventory.offsets, **(offsets or {})}
    ends = {each.partition: (each.start, each.end) for each in plans}
    notes += _offsets_notes({place for place in stored if place.topic == question.topic}, ends)
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


def _offsets_notes(places: Collection[OffsetPlace], ends: Collection[int]) -> list[str]:
    if not places:
        return ["no offsets of groups were found: give them with --offsets, or groups begin anew"]
    left = sorted({place.group for place in places if place.partition not in ends})
    if not left:
        return []
    more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
    return [
        "groups had committed offsets in partitions that do not lie there, which are left out: "
        f"{', '.join(left[:_MOST_NAMED])}{more}"
    ]


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
