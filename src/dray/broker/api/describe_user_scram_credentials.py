"""DescribeUserScramCredentials (50), version 0: who has a password for which mechanism, and never what it
is."""

from __future__ import annotations

from collections import Counter

from dray.base.runtime import cut
from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import DESCRIBE_CLUSTER, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handles(DescribeUserScramCredentialsRequest, 0, 0, checks={DESCRIBE_CLUSTER: Denial.REQUEST})
async def handle(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not context.may(DESCRIBE_CLUSTER):
        code, reason = DESCRIBE_CLUSTER.refusal, DESCRIBE_CLUSTER.reason
        refused = [DescribeUserScramCredentialsResult("", code, reason) for _ in request.users or ()]
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=reason, results=refused)
    users = context.services.users
    response = DescribeUserScramCredentialsResponse(error_message=None)
    named = Counter(one.name for one in request.users or ()) or Counter(users.names())
    for user, times in named.items():
        result = DescribeUserScramCredentialsResult(user=user, error_message=None)
        if times > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {cut(user)}"
            )
        elif not (found := users.of(user)):
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {cut(user)}"
        else:
            result.credential_infos = [
                CredentialInfo(mechanism, credential.iterations)
                for mechanism, credential in sorted(found.items())
            ]
        response.results.append(result)
    return response
