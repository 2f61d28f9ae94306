"""ElectLeaders (43), versions 0 to 2: the leaders are computed from who is there, so none has to be elected.

Each partition that exists is answered with ELECTION_NOT_NEEDED, which tools take for success. A request for
all partitions gets an answer without any.
"""

from __future__ import annotations

from dray.broker.api.shared import Context, find_stream, handles
from dray.broker.api.shared.checks import ALTER_CLUSTER, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


@handles(ElectLeadersRequest, 0, 2, checks={ALTER_CLUSTER: Denial.REQUEST})
async def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    allowed = context.may(ALTER_CLUSTER)
    response = ElectLeadersResponse(error_code=ErrorCode.NONE if allowed else ALTER_CLUSTER.refusal)
    for topic in request.topic_partitions or ():
        results = [
            await _elect(context, topic.topic, partition)
            if allowed
            else PartitionResult(partition, ALTER_CLUSTER.refusal, ALTER_CLUSTER.reason)
            for partition in topic.partitions
        ]
        response.replica_election_results.append(
            ReplicaElectionResult(topic=topic.topic, partition_result=results)
        )
    return response


async def _elect(context: Context, name: str, partition: int) -> PartitionResult:
    stream = await find_stream(context, name, partition)
    if isinstance(stream, ErrorCode):
        return PartitionResult(partition_id=partition, error_code=stream, error_message=None)
    return PartitionResult(
        partition_id=partition,
        error_code=ErrorCode.ELECTION_NOT_NEEDED,
        error_message="Leaders follow from which brokers are there: the preferred one leads.",
    )
