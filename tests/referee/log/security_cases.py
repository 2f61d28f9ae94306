"""Passwords of users, and what a broker without authentication or authorization says of ACLs and SASL."""

from __future__ import annotations

import asyncio
from typing import Any

from dray.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from dray.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from dray.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from dray.kafka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.referee.cases import case
from tests.referee.session import SECONDS, Session

SHA_256, SHA_512 = 1, 2
FEWEST_ITERATIONS = 4096
MARK = "referee-scram-mark"


def upsertion(
    user: str, mechanism: int = SHA_256, iterations: int = FEWEST_ITERATIONS
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt" * 4, salted_password=b"x" * 32
    )


async def alter(
    session: Session,
    label: str,
    *upsertions: ScramCredentialUpsertion,
    gone: tuple[tuple[str, int], ...] = (),
) -> None:
    """Kafka's results come in the order of a hash map."""
    deletions = [ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in gone]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=list(upsertions))
    await session.ask(label, request, 0)
    session.notes[label]["results"].sort(key=lambda result: result["user"])


async def until_known(session: Session, change: int) -> None:
    """Once the broker knows of all changes that were answered: Kafka's learns of them in their order, and a
    moment later. `change` is another number each time, and stands in the last one."""
    await session.send(AlterUserScramCredentialsRequest(upsertions=[upsertion(MARK, iterations=change)]), 0)
    asked = DescribeUserScramCredentialsRequest(users=[UserName(name=MARK)])
    async with asyncio.timeout(SECONDS):
        while True:
            answer: Any = await session.send(asked, 0)
            if [info.iterations for info in answer.results[0].credential_infos] == [change]:
                return
            await asyncio.sleep(0.02)


async def describe(session: Session, label: str, *names: str) -> None:
    await until_known(session, FEWEST_ITERATIONS + len(session.notes))
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    await session.ask(label, request, 0)
    session.notes[label]["results"].sort(key=lambda result: result["user"])


@case
async def alter_user_scram_credentials(session: Session) -> None:
    user = "referee-scram"
    await alter(session, "nothing")
    await alter(session, "two mechanisms at once", upsertion(user), upsertion(user, SHA_512))
    await describe(session, "not there yet", user)
    await alter(session, "one", upsertion(user, iterations=8192))
    await alter(session, "another", upsertion(user, SHA_512), upsertion(f"{user}-2"))
    await describe(session, "both", user, f"{user}-2", "referee-nobody")
    await describe(session, "twice", user, user)
    await alter(session, "over it", upsertion(user))
    await describe(session, "then", user)
    for label, bad in {
        "no name": upsertion(""),
        "too few": upsertion(f"{user}-3", iterations=4095),
        "too many": upsertion(f"{user}-3", iterations=16385),
        "negative": upsertion(f"{user}-3", iterations=-1),
        "unknown mechanism": upsertion(f"{user}-3", mechanism=0),
        "mechanism 3": upsertion(f"{user}-3", mechanism=3),
        "no name, and no mechanism": upsertion("", mechanism=0),
    }.items():
        await alter(session, label, bad, upsertion(f"{user}-2"))
    await alter(session, "altered and deleted", upsertion(user), gone=((user, SHA_256),))
    await alter(session, "deleted twice", gone=((user, SHA_256), (user, SHA_512)))
    await alter(session, "deleted", gone=((user, SHA_256), (f"{user}-2", SHA_256)))
    await describe(session, "what is left", user, f"{user}-2")
    await alter(session, "deleted again", gone=((user, SHA_256), (f"{user}-4", SHA_512), ("", SHA_256)))
    await alter(session, "deleted by number 9", gone=((user, 9),))
    await alter(session, "all gone", gone=((user, SHA_512),))
    await describe(session, "nobody", user)
    gone = [ScramCredentialDeletion(name=MARK, mechanism=SHA_256)]
    await session.send(AlterUserScramCredentialsRequest(deletions=gone), 0)


@case
async def acls_without_an_authorizer(session: Session) -> None:
    creation = AclCreation(
        resource_type=2,
        resource_name="referee",
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    wanted = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    for version in (1, 2, 3):
        await session.ask(f"create none v{version}", CreateAclsRequest(), version)
        await session.ask(f"create v{version}", CreateAclsRequest(creations=[creation, creation]), version)
        await session.ask(f"delete v{version}", DeleteAclsRequest(filters=[wanted, wanted]), version)
    await session.ask("unknown type", CreateAclsRequest(creations=[AclCreation()]), 3)
    await session.ask("unknown filter", DeleteAclsRequest(filters=[DeleteAclsFilter()]), 3)


@case
async def sasl_on_a_plain_listener(session: Session) -> None:
    for version in (0, 1):
        await session.ask(f"handshake v{version}", SaslHandshakeRequest(mechanism="PLAIN"), version)
    for version in (0, 1, 2):
        await session.ask(f"token v{version}", SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version)
