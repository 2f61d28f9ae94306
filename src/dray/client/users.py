"""Users and their passwords, through Kafka's API: a password leaves this process salted and hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from dray.client.connection import Caller
from dray.client.errors import check
from dray.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from dray.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

MECHANISMS: Mapping[str, tuple[int, str]] = {
    "SCRAM-SHA-256": (1, "sha256"),
    "SCRAM-SHA-512": (2, "sha512"),
}


async def list_users(caller: Caller) -> dict[str, dict[str, int]]:
    """Iterations, by user and mechanism."""
    response = await caller.request(DescribeUserScramCredentialsRequest(users=None))
    check("list users", response.error_code, response.error_message)
    names = {number: name for name, (number, _) in MECHANISMS.items()}
    return {
        result.user: {
            names.get(info.mechanism, str(info.mechanism)): info.iterations
            for info in result.credential_infos
        }
        for result in sorted(response.results, key=lambda result: result.user)
    }


async def put_user(
    caller: Caller, user: str, password: str, salts: Mapping[str, bytes], iterations: int
) -> None:
    """One request per mechanism: in one, a user may be named once only."""
    for mechanism, salt in salts.items():
        number, hash_name = MECHANISMS[mechanism]
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
        upsertion = ScramCredentialUpsertion(
            name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
        )
        await _alter(caller, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


async def delete_user(caller: Caller, user: str, mechanisms: Sequence[str]) -> None:
    for mechanism in mechanisms:
        deletion = ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism][0])
        await _alter(caller, AlterUserScramCredentialsRequest(deletions=[deletion]))


async def _alter(caller: Caller, request: AlterUserScramCredentialsRequest) -> None:
    response = await caller.request(request)
    for result in response.results:
        check(f"user {result.user}", result.error_code, result.error_message)
