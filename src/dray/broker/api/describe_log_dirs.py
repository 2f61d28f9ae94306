"""DescribeLogDirs (35), versions 1 to 4: what each partition holds, in bytes.

There is one "directory", the object store, named by its URL (which holds no secrets). A broker lists the
partitions that have it among their replicas, as Metadata shows them to this client, so that all brokers
together list each replica once. A size is that of the batches from the partition's start on, as they were
sent: what they take in the store changes when they are compacted. No replica is behind and none moves, and
how much the store could hold is not known (-1). No list of topics means all of them; topics that do not exist
are left out, as Kafka does.
"""

from __future__ import annotations

from typing import Final

from dray.base.runtime import gather_some
from dray.broker.api.shared import Context, Routes, handles, read_error
from dray.broker.api.shared.checks import DESCRIBE_CLUSTER, Denial
from dray.broker.topics import Topic, TopicsUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from dray.log.types import LogError, StreamClosed

_AT_ONCE: Final = 64  # partitions whose sizes are asked for together


@handles(DescribeLogDirsRequest, 1, 4, checks={DESCRIBE_CLUSTER: Denial.REQUEST})
async def handle(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not context.may(DESCRIBE_CLUSTER):
        return DescribeLogDirsResponse(error_code=DESCRIBE_CLUSTER.refusal)
    result = DescribeLogDirsResult(log_dir=context.services.settings.log_dir)
    try:
        for topic, partitions in await _asked(context, request):
            if described := await _describe(context, topic, partitions):
                result.topics.append(DescribeLogDirsTopic(name=topic.name, partitions=described))
    except TopicsUnavailable as error:
        context.logger().warning("a topic could not be looked up", error=str(error))
        result = _failed(result.log_dir, ErrorCode.KAFKA_STORAGE_ERROR)
    except LogError as error:
        context.logger().warning("the size of a partition could not be read", error=str(error))
        result = _failed(result.log_dir, read_error(error))
    return DescribeLogDirsResponse(results=[result])


def _failed(log_dir: str, code: ErrorCode) -> DescribeLogDirsResult:
    """The answer has no sizes at all: some of them would be taken for all."""
    return DescribeLogDirsResult(error_code=code, log_dir=log_dir)


async def _asked(context: Context, request: DescribeLogDirsRequest) -> list[tuple[Topic, list[int]]]:
    """The topics that there are, and the partitions of each that are asked for."""
    topics = context.services.topics
    if request.topics is None:
        return [(topic, list(range(len(topic.streams)))) for topic in topics.all_cached()]
    wanted: dict[str, set[int]] = {}
    for one in request.topics:
        wanted.setdefault(one.topic, set()).update(one.partitions)
    found = []
    for name, partitions in wanted.items():
        topic = await topics.get(name)
        if topic is not None:
            found.append((topic, sorted(index for index in partitions if topic.stream_of(index) is not None)))
    return found


async def _describe(context: Context, topic: Topic, partitions: list[int]) -> list[DescribeLogDirsPartition]:
    own = context.services.membership.me.broker_id
    replicas = Routes(context).replicas(topic)
    here = [index for index in partitions if own in replicas(topic.streams[index])]
    sizes = await gather_some((_size(context, topic.streams[index]) for index in here), _AT_ONCE)
    return [
        DescribeLogDirsPartition(partition_index=index, partition_size=size)
        for index, size in zip(here, sizes, strict=True)
        if size is not None
    ]


async def _size(context: Context, stream: int) -> int | None:
    try:
        return await context.services.log.size(stream)
    except StreamClosed:
        return None  # deleted a moment ago
