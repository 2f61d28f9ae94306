"""AlterUserScramCredentials (51), version 0: passwords of users, which arrive salted and hashed.

A user may be named once. An error of one user does not stop the changes of the others.
"""

from __future__ import annotations

from collections import Counter

from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import ALTER_CLUSTER, Denial
from dray.broker.security.key_follower import SecurityUnavailable
from dray.broker.security.users import (
    NoSuchCredential,
    UnacceptableCredential,
    Upsertion,
    Users,
    check_upsertion,
)
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from dray.kafka.sasl.credentials import ScramMechanism, credential_from_salted

_TWICE = ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"

Fault = tuple[ErrorCode, str]


@handles(AlterUserScramCredentialsRequest, 0, 0, checks={ALTER_CLUSTER: Denial.RESOURCE}, most_elements=1000)
async def handle(
    context: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    users = context.services.users
    response = AlterUserScramCredentialsResponse()
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [
        *request.deletions,
        *request.upsertions,
    ]
    times = Counter(change.name for change in changes)
    if not context.may_change(ALTER_CLUSTER, map(_about, changes)):
        code, reason = ALTER_CLUSTER.refusal, ALTER_CLUSTER.reason
        refused = [AlterUserScramCredentialsResult(name, code, reason) for name in sorted(times)]
        return AlterUserScramCredentialsResponse(results=refused)
    by_name = {change.name: change for change in changes}
    for name, change in by_name.items():
        fault = _TWICE if times[name] > 1 else await _change(users, change)
        error, message = fault or (ErrorCode.NONE, None)
        response.results.append(AlterUserScramCredentialsResult(name, error, message))
    return response


def _about(change: ScramCredentialDeletion | ScramCredentialUpsertion) -> str:
    verb = "delete" if isinstance(change, ScramCredentialDeletion) else "set"
    return f"{verb} the password of user {change.name}"


async def _change(users: Users, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> Fault | None:
    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    try:
        mechanism = ScramMechanism(change.mechanism)
    except ValueError:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    try:
        if isinstance(change, ScramCredentialDeletion):
            await users.delete(change.name, mechanism)
            return None
        check_upsertion(change.name, change.iterations)
        credential = credential_from_salted(
            mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
        )
        await users.put(Upsertion(change.name, mechanism, credential))
    except NoSuchCredential as error:
        return ErrorCode.RESOURCE_NOT_FOUND, str(error)
    except UnacceptableCredential as error:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)
    except SecurityUnavailable as error:
        return ErrorCode.REQUEST_TIMED_OUT, str(error)
    return None
