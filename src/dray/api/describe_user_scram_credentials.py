"""DescribeUserScramCredentials (50), version 0: nobody has any, so whoever is named is not found."""

from __future__ import annotations

from collections import Counter

from dray.api.shared import Context, handles
from dray.protocol import ErrorCode
from dray.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handles(DescribeUserScramCredentialsRequest, 0, 0)
async def handle(
    _context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for user, times in Counter(one.name for one in request.users or ()).items():
        result = DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
        if times > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = f"Cannot describe SCRAM credentials for the same user twice: {user}"
        response.results.append(result)
    return response
