"""DescribeAcls (29), versions 1 to 3: SECURITY_DISABLED, as from a Kafka without an authorizer."""

from __future__ import annotations

from dray.api.shared import Context, handles
from dray.protocol import ErrorCode
from dray.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@handles(DescribeAclsRequest, 1, 3)
async def handle(_context: Context, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="There are no ACLs here: every client may do everything.",
    )
