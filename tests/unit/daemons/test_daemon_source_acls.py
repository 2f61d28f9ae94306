"""Which ACLs of a source have no equal here, how they come over, and when a link would open a topic."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dray.base.runtime import SystemRuntime
from dray.broker.security.acls.decision import AclIndex
from dray.broker.security.acls.store import Acls
from dray.daemons.config import FlagValue, Settings, load
from dray.daemons.migrator.source_security import SourceAcls, acls_in, carry_over, compare_acls
from dray.kafka.acls import AclBinding, AclFilter, AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.client.cluster import Cluster
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from dray.metadata.memory import MemoryStore
from dray.migration.attach.found import MigrationRefused

TOPIC, GROUP, LITERAL, PREFIXED = (
    *(AclResourceType.TOPIC, AclResourceType.GROUP),
    *(PatternType.LITERAL, PatternType.PREFIXED),
)
READ, WRITE, ALL, ALLOW, DENY = (
    *(AclOperation.READ, AclOperation.WRITE, AclOperation.ALL),
    *(Permission.ALLOW, Permission.DENY),
)
NOBODY_IS_ASKED = {"security.authorization": "none"}
ASKED = {"security.authorization": "acls", "security.super_users": "User:admin"}
OPEN_WITHOUT_ACL = {**ASKED, "security.allow_if_no_acl": "true"}


def settings(flags: dict[str, str]) -> Settings:
    return load(None, {}, [FlagValue("--test", key, text) for key, text in flags.items()]).settings


def acl(
    name: str,
    principal: str = "User:app",
    operation: AclOperation = READ,
    permission: Permission = ALLOW,
    kind: AclResourceType = TOPIC,
    pattern: PatternType = LITERAL,
) -> AclBinding:
    return AclBinding(kind, pattern, name, principal, "*", operation, permission)


class Source:
    """A cluster with ACLs and nothing else."""

    def __init__(self, *acls: AclBinding, code: int = 0) -> None:
        self.acls = acls
        self.code = code

    async def request(self, request: Any) -> DescribeAclsResponse:
        assert isinstance(request, DescribeAclsRequest)
        wanted = AclFilter(
            AclResourceType(request.resource_type_filter),
            PatternType(request.pattern_type_filter),
            request.resource_name_filter,
            request.principal_filter,
            request.host_filter,
            AclOperation(request.operation),
            Permission(request.permission_type),
        )
        return DescribeAclsResponse(
            error_code=self.code,
            resources=[
                DescribeAclsResource(
                    each.resource_type,
                    each.name,
                    each.pattern_type,
                    [AclDescription(each.principal, each.host, each.operation, each.permission)],
                )
                for each in self.acls
                if not self.code and wanted.matches(each)
            ],
        )


async def compared(
    source: Source, *here: AclBinding, groups: tuple[str, ...] = (), flags: dict[str, str] | None = None
) -> SourceAcls:
    wanted = settings(ASKED if flags is None else flags)
    return await compare_acls(wanted, cast(Cluster, source), "orders", groups, AclIndex(here))


async def test_what_applies_to_the_topic_and_its_groups_is_narrowed_to_them() -> None:
    """At the source a prefix also speaks of topics that Dray has for other people."""
    source = Source(
        acl("orders"),
        acl("*", "User:audit"),
        acl("ord", "User:team", pattern=PREFIXED),
        acl("ord", "User:other"),  # of a topic of that name
        acl("payments", "User:other"),
        acl("bill", kind=GROUP, pattern=PREFIXED),
        acl("others", kind=GROUP),
    )
    found = await compared(source, groups=("billing", "reading"))
    assert found.missing == tuple(
        sorted(
            [
                acl("orders"),
                acl("orders", "User:audit"),
                acl("orders", "User:team"),
                acl("billing", kind=GROUP),
            ]
        )
    )


async def test_what_has_an_equal_here_is_not_missing() -> None:
    source = Source(acl("orders"), acl("orders", operation=WRITE), acl("orders", "User:b", permission=DENY))
    found = await compared(source, acl("ord", pattern=PREFIXED), acl("orders", "User:b"))
    assert found.missing == (
        acl("orders", operation=WRITE),
        acl("orders", "User:b", permission=DENY),
    )


@pytest.mark.parametrize("is_up", [True, False])
async def test_a_fence_of_ours_is_none_of_the_sources_acls(is_up: bool) -> None:
    """Dray's own producers would be stopped by it."""
    fence = (
        acl("orders", "User:*", WRITE, DENY),
        acl("orders", "User:*", ALL, ALLOW),
    )
    mark = (acl("dray-fence-orders", "User:*", WRITE, DENY),) if is_up else ()
    found = await compared(Source(acl("orders"), *fence, *mark))
    assert set(found.missing) == {acl("orders"), *(() if is_up else fence)}


async def test_a_source_without_an_authorizer_is_open_already() -> None:
    found = await compared(Source(code=ErrorCode.SECURITY_DISABLED), flags=NOBODY_IS_ASKED)
    assert found == SourceAcls()
    found.check("orders", open_to_all=False, carries=True)


@pytest.mark.parametrize("code", [0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
@pytest.mark.parametrize(
    ("flags", "here", "opens"),
    [
        (NOBODY_IS_ASKED, (), True),
        (ASKED, (), False),
        (OPEN_WITHOUT_ACL, (), True),
        (OPEN_WITHOUT_ACL, (acl("ord", "User:x", pattern=PREFIXED),), False),
    ],
    ids=["none", "acls", "open without", "open without, with one"],
)
async def test_a_link_that_would_open_the_topic_is_refused_unless_said(
    flags: dict[str, str], here: tuple[AclBinding, ...], opens: bool, code: int
) -> None:
    """Also where the source does not show its ACLs: that it has some is known."""
    found = await compared(Source(code=code), *here, flags=flags)
    assert (found.has_authorizer, found.opens) == (True, opens)
    found.check("orders", open_to_all=True, carries=False)
    if opens:
        with pytest.raises(MigrationRefused, match=r"^[^\n]+ or say --open-to-all$"):
            found.check("orders", open_to_all=False, carries=False)
    else:
        found.check("orders", open_to_all=False, carries=False)


async def test_acls_that_are_not_shown_cannot_come_over() -> None:
    found = await compared(Source(code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(MigrationRefused, match="--acls: the source does not show its ACLs"):
        found.check("orders", open_to_all=True, carries=True)


async def test_what_denies_comes_over_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = SystemRuntime(threads=1)
    made: list[list[AclBinding]] = []
    create = Acls.create

    async def noting(self: Acls, bindings: Any) -> None:
        made.append(list(bindings))
        await create(self, bindings)

    monkeypatch.setattr(Acls, "create", noting)
    allowing, denying = acl("orders"), acl("orders", "User:b", permission=DENY)
    async with acls_in(MemoryStore(runtime), runtime) as acls:
        await carry_over(acls, (allowing, denying))
        assert set(acls.index.bindings()) == {allowing, denying}
    assert made == [[denying], [allowing]]
    assert capsys.readouterr().err.count('"logger": "dray.audit"') == 2
