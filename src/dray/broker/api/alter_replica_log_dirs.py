"""AlterReplicaLogDirs (34), versions 1 and 2: moving replicas between directories, of which there is one.

A move into the one "directory" that DescribeLogDirs names succeeds: the partition is there. Any other
directory is LOG_DIR_NOT_FOUND, as from a Kafka that does not have it.
"""

from __future__ import annotations

from dray.broker.api.shared import Context, find_stream, handles
from dray.broker.api.shared.checks import ALTER_CLUSTER, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@handles(AlterReplicaLogDirsRequest, 1, 2, checks={ALTER_CLUSTER: Denial.PARTITION})
async def handle(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    allowed = context.may(ALTER_CLUSTER)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        is_ours = directory.path == context.services.settings.log_dir
        for topic in directory.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
            for partition in topic.partitions:
                code = ALTER_CLUSTER.refusal
                if allowed:
                    code = (
                        await _move(context, topic.name, partition)
                        if is_ours
                        else ErrorCode.LOG_DIR_NOT_FOUND
                    )
                result.partitions.append(
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
                )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


async def _move(context: Context, name: str, partition: int) -> ErrorCode:
    stream = await find_stream(context, name, partition)
    return stream if isinstance(stream, ErrorCode) else ErrorCode.NONE
