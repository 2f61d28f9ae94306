"""A tier whose last copies were not finished, by a seed: what is chosen of it is there once Kafka has swept.

The segments are those of a real Kafka's tier. Of some the copy was begun and not finished, as its broker
died: Kafka's own topic says so, or some of the files are not there. Kafka deletes such copies later.
"""

from __future__ import annotations

from random import Random
from uuid import UUID

from tests.unit.migration.sources import in_memory, local_files

from dray.migration.attach.inventory import Question, SourceLayout, take_inventory
from dray.migration.attach.kafka_tiered import REQUIRED
from dray.migration.attach.plan import AttachPlan, make_plan
from dray.migration.formats.remote_segments import RemoteSegment, SegmentName, SegmentState, parse_local
from dray_simulation.checks.log_truth import Violation
from dray_simulation.kernel.loop import run


async def _plan(files: dict[str, bytes], finished: dict[UUID, RemoteSegment] | None) -> AttachPlan:
    source = await in_memory(files.items())
    question = Question("orders", SourceLayout.KAFKA_TIERED, finished=finished)
    return await make_plan(source, question, await take_inventory(source, question), now_ms=1)


async def _simulate(seed: int) -> list[str]:
    random = Random(seed)
    files = local_files()
    whole = await _plan(files, None)
    assert whole.topic_id is not None
    said: dict[UUID, RemoteSegment] = {}
    unfinished: set[UUID] = set()
    for partition in whole.partitions:
        chosen = [each.segment for each in partition.lineage.chosen]
        left = random.randint(1, len(chosen))  # the newest of them are not finished
        unfinished |= {each.segment_id for each in chosen[left:]}
        for each in chosen[:left]:
            name = SegmentName("orders", whole.topic_id, partition.partition, each.segment_id)
            said[each.segment_id] = RemoteSegment(
                name,
                each.start,
                each.end - 1,
                each.max_timestamp,
                (),
                each.segment_size,
                SegmentState.COPY_FINISHED,
                None,
            )
    can_ask = random.random() < 0.5
    if not can_ask:
        unfinished = _without_some_files(files, unfinished, random)
    plan = await _plan(files, said if can_ask else None)
    if plan.refused:
        raise Violation(f"partition {plan.refused[0].partition} was refused: {plan.refused[0]}")
    swept = {path for path in files if _segment_of(path) in unfinished}
    for planned in plan.partitions:
        for taken in planned.lineage.chosen:
            if taken.segment.path in swept:
                raise Violation(f"{taken.segment.path} was chosen, and its copy was never finished")
    return [taken.segment.path for planned in plan.partitions for taken in planned.lineage.chosen]


def _without_some_files(files: dict[str, bytes], unfinished: set[UUID], random: Random) -> set[UUID]:
    """One file at least of each is not there."""
    for segment in sorted(unfinished):
        gone = random.sample(REQUIRED, random.randint(1, 3))
        for path in [path for path in files if _segment_of(path) == segment]:
            if path.rpartition(".")[2] in gone:
                del files[path]
    return unfinished


def _segment_of(path: str) -> UUID | None:
    found = parse_local(path)
    return None if found is None else found.segment_id


def simulate_unfinished(seed: int) -> list[str]:
    """The paths that were chosen. Raises what it found."""
    return run(_simulate(seed))
