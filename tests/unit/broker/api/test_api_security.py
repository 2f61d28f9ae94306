"""Users and ACLs over the wire. What Kafka answers is compared in `tests/referee/test_referee.py`; here
is what it cannot show, and what must never be shown."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.api.fakes import FakeConnection, Harness, running

from dray.broker.api import delete_acls
from dray.broker.api.shared import RefuseConnection
from dray.kafka.protocol import ErrorCode, Request
from dray.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from dray.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from dray.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from dray.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from dray.kafka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from dray.kafka.sasl.credentials import ScramMechanism, salted_password, verify_password

SALT = b"0123456789abcdef"
ANY = DescribeAclsRequest(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


def upsertion(
    user: str = "alice", mechanism: int = 1, iterations: int = 4096, password: str = "pencil"
) -> ScramCredentialUpsertion:
    salted = salted_password(ScramMechanism.SHA_256, password, SALT, 4096)
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted
    )


async def alter(
    broker: Harness, *upsertions: ScramCredentialUpsertion, deletions: list[tuple[str, int]] | None = None
) -> dict[str, int]:
    gone = [ScramCredentialDeletion(name, mechanism) for name, mechanism in deletions or ()]
    request = AlterUserScramCredentialsRequest(deletions=gone, upsertions=list(upsertions))
    return {result.user: result.error_code for result in (await broker.ask(request, 0)).results}


async def test_a_password_is_set_and_verified_and_never_shown() -> None:
    async with running() as broker:
        assert await alter(broker, upsertion()) == {"alice": ErrorCode.NONE}
        [credential] = broker.users.of("alice").values()
        assert verify_password(ScramMechanism.SHA_256, credential, "pencil")
        described = await broker.ask(DescribeUserScramCredentialsRequest(users=None), 0)
        [result] = described.results
        assert [(info.mechanism, info.iterations) for info in result.credential_infos] == [(1, 4096)]
        assert await alter(broker, deletions=[("alice", 1)]) == {"alice": ErrorCode.NONE}
        assert await alter(broker, deletions=[("alice", 1)]) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
        [result] = (
            await broker.ask(DescribeUserScramCredentialsRequest(users=[UserName("alice")]), 0)
        ).results
        assert result.error_code == ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a\0b"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("\u2168"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=2**31 - 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
async def test_what_is_no_credential(change: ScramCredentialUpsertion, code: ErrorCode) -> None:
    async with running() as broker:
        assert await alter(broker, change, upsertion("bob")) == {change.name: code, "bob": ErrorCode.NONE}
        assert broker.users.names() == ["bob"]


async def test_nobody_is_altered_twice() -> None:
    async with running() as broker:
        await alter(broker, upsertion())
        answer = await alter(broker, upsertion(), upsertion("bob"), deletions=[("alice", 2)])
        assert answer == {"alice": ErrorCode.DUPLICATE_RESOURCE, "bob": ErrorCode.NONE}


async def test_a_store_that_is_away_is_told() -> None:
    async with running() as broker:
        await alter(broker, upsertion())
        broker.store.down = True
        assert await alter(broker, upsertion()) == {"alice": ErrorCode.REQUEST_TIMED_OUT}
        broker.store.down = False
        assert broker.users.names() == ["alice"]


def test_secrets_in_messages_are_not_shown() -> None:
    assert repr(upsertion()) == (
        "ScramCredentialUpsertion(name='alice', mechanism=1, iterations=4096, salt=(hidden), "
        "salted_password=(hidden))"
    )
    assert (
        repr(SaslAuthenticateRequest(auth_bytes=b"\0a\0pencil"))
        == "SaslAuthenticateRequest(auth_bytes=(hidden))"
    )


# --- where nobody authenticates, or is authorized


@pytest.mark.parametrize("version", [0, 1])
async def test_nobody_authenticates_on_a_plain_listener(version: int) -> None:
    async with running() as broker:
        answer = await broker.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        refused = await broker.ask(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version)
        assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE


async def test_without_an_authorizer_there_are_no_acls() -> None:
    async with running() as broker:
        assert (await broker.ask(ANY, 3)).error_code == ErrorCode.SECURITY_DISABLED
        created = await broker.ask(CreateAclsRequest(creations=[creation(), creation()]), 3)
        assert [result.error_code for result in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
        deleted = await broker.ask(DeleteAclsRequest(filters=[everything()]), 3)
        assert [result.error_code for result in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]


# --- ACLs


def creation(
    name: str = "orders", kind: int = 2, pattern: int = 3, principal: str = "User:alice", operation: int = 3
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=3,
    )


def everything(kind: int = 1, name: str | None = None, pattern: int = 1) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


async def listed(broker: Harness, version: int = 3) -> list[tuple[int, str, int, str, int]]:
    answer = await broker.ask(ANY, version)
    assert answer.error_code == ErrorCode.NONE
    return [
        (resource.resource_type, resource.resource_name, resource.pattern_type, acl.principal, acl.operation)
        for resource in answer.resources
        for acl in resource.acls
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("written", [False, True])
async def test_acls_come_and_go(version: int, written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if written:  # as where much is matched
        monkeypatch.setattr(delete_acls, "_AT_ONCE", 0)
    async with running(authorizes=True) as broker:
        wanted = [creation(), creation(operation=4), creation("pay", pattern=4), creation("g", kind=3)]
        created = await broker.ask(CreateAclsRequest(creations=[*wanted, creation()]), version)
        assert [result.error_code for result in created.results] == [ErrorCode.NONE] * 5
        assert await listed(broker, version) == [
            (2, "orders", 3, "User:alice", 3),
            (2, "orders", 3, "User:alice", 4),
            (2, "pay", 4, "User:alice", 3),
            (3, "g", 3, "User:alice", 3),
        ]
        filters = [everything(2, "payments", 2), everything(2, "none"), everything(3)]
        deleted = await broker.ask(DeleteAclsRequest(filters=filters), version)
        assert [[acl.resource_name for acl in result.matching_acls] for result in deleted.filter_results] == [
            ["pay"],
            [],
            ["g"],
        ]
        assert [name for _, name, *_ in await listed(broker)] == ["orders", "orders"]


async def test_a_filter_that_is_repeated_matches_once() -> None:
    """Three thousand of them, with a thousand ACLs, held the loop for 19 s of processor time."""
    async with running(authorizes=True) as broker:
        await broker.ask(CreateAclsRequest(creations=[creation(f"t{number}") for number in range(9)]), 3)
        filters = [everything(2, "t0"), *[everything()] * 2000]
        deleted = await broker.ask(DeleteAclsRequest(filters=filters), 3)
        found = [len(result.matching_acls) for result in deleted.filter_results]
        assert found == [1, 9, *[0] * 1999]
        assert not await listed(broker)


async def test_a_bad_acl_does_not_keep_the_good_ones_out() -> None:
    async with running(authorizes=True) as broker:
        wanted = [
            creation(""),
            creation(kind=4),
            creation(principal="alice"),
            creation(pattern=2),
            creation(operation=99),
            creation(),
        ]
        created = await broker.ask(CreateAclsRequest(creations=wanted), 3)
        codes = [result.error_code for result in created.results]
        assert codes == [ErrorCode.INVALID_REQUEST] * 5 + [ErrorCode.NONE]
        assert len(await listed(broker)) == 1


async def test_a_filter_of_a_newer_kafka_deletes_nothing() -> None:
    async with running(authorizes=True) as broker:
        await broker.ask(CreateAclsRequest(creations=[creation()]), 3)
        deleted = await broker.ask(DeleteAclsRequest(filters=[everything(99)]), 3)
        assert [result.error_code for result in deleted.filter_results] == [ErrorCode.INVALID_REQUEST]
        assert len(await listed(broker)) == 1


async def test_an_unknown_element_is_no_request() -> None:
    async with running(authorizes=True) as broker:
        requests: tuple[Request[Any], ...] = (
            CreateAclsRequest(creations=[creation(kind=0)]),
            DeleteAclsRequest(filters=[everything(0)]),
            DescribeAclsRequest(),
        )
        for request in requests:
            with pytest.raises(RefuseConnection):
                await broker.ask(request, 3, FakeConnection())


async def test_acls_with_the_store_away() -> None:
    async with running(authorizes=True) as broker:
        await broker.ask(CreateAclsRequest(creations=[creation()]), 3)
        broker.store.down = True
        created = await broker.ask(CreateAclsRequest(creations=[creation("b")]), 3)
        assert [result.error_code for result in created.results] == [ErrorCode.REQUEST_TIMED_OUT]
        deleted = await broker.ask(DeleteAclsRequest(filters=[everything()]), 3)
        assert [result.error_code for result in deleted.filter_results] == [ErrorCode.REQUEST_TIMED_OUT]
        assert len(await listed(broker)) == 1, "the last known holds"
        broker.store.down = False
