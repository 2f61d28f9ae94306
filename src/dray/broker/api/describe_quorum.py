"""DescribeQuorum (55), versions 0 to 2: there is no KRaft quorum to describe.

Served so that tools say that, and not that the broker is too old: UNSUPPORTED_VERSION.

- v2: with the reason.
"""

from __future__ import annotations

from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import DESCRIBE_CLUSTER, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse


@handles(DescribeQuorumRequest, 0, 2, checks={DESCRIBE_CLUSTER: Denial.REQUEST})
async def handle(context: Context, _request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not context.may(DESCRIBE_CLUSTER):
        return DescribeQuorumResponse(
            error_code=DESCRIBE_CLUSTER.refusal, error_message=DESCRIBE_CLUSTER.reason
        )
    return DescribeQuorumResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="There is no KRaft quorum: the cluster's metadata are in its metadata store.",
    )
