"""ACLs at the source of a linked topic, beside those here. Dray asks its own, also of what it passes on to
the source: so nobody's rights come with a topic by themselves, and none must be missing by oversight.

One that comes over is of the very topic or group, whatever its pattern was: at the source `*` and prefixes
also speak of topics that Dray has for other people.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dray.base.runtime import Runtime
from dray.broker.security.acls.decision import AclIndex
from dray.broker.security.acls.store import Acls
from dray.broker.security.key_follower import SecurityUnavailable
from dray.broker.security.quotas.store import Quotas
from dray.broker.security.users import Users
from dray.daemons.assembly.stores import open_metadata
from dray.daemons.config import Settings
from dray.daemons.direct import note_changes
from dray.kafka.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    fault_of,
    text_of,
)
from dray.kafka.client.access import WireAcl, bindings_of, list_acls, list_quotas, list_users
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.errors import ClientError, RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.kafka.quotas import QuotaEntity, entity_of, fault_of_value, text_of_change
from dray.kafka.quotas import fault_of as fault_of_entity
from dray.metadata.contract import MetadataStore
from dray.migration.attach.found import MigrationRefused
from dray.migration.source.fences import is_fenced_by_acl

# --- ACLs


_EVERYBODY: Final = "User:*"
_OF_A_FENCE: Final = ((AclOperation.WRITE, Permission.DENY), (AclOperation.ALL, Permission.ALLOW))


@dataclass(frozen=True, slots=True)
class SourceAcls:
    has_authorizer: bool = False
    missing: tuple[AclBinding, ...] = ()
    """Those on the topic and on its groups that have no equal here."""
    unseen: str = ""
    """Why they are not known."""
    opens: bool = False
    """The source asks who may use the topic, and Dray asks nobody."""

    def check(self, topic: str, *, open_to_all: bool, carries: bool) -> None:
        """Raises `MigrationRefused` where a link would open the topic, or its ACLs cannot come over."""
        if carries and self.unseen:
            raise MigrationRefused(f"--acls: {self.unseen}")
        if self.opens and not open_to_all:
            raise MigrationRefused(
                f"the source asks who may use {topic}, and Dray asks nobody: whoever reaches Dray would read "
                "it, and write into the source. Set security.authorization: acls (docs/security.md), or say "
                "--open-to-all"
            )


async def compare_acls(
    settings: Settings, cluster: Cluster, topic: str, groups: Iterable[str], here: AclIndex
) -> SourceAcls:
    try:
        found = await _acls_of(cluster, topic, groups)
    except RequestFailed as failure:
        if failure.code == ErrorCode.SECURITY_DISABLED:
            return SourceAcls()
        if failure.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        unseen = "the source does not show its ACLs: the migrator's user needs DESCRIBE on its cluster"
        return SourceAcls(True, unseen=unseen, opens=_is_open(settings, topic, here))
    missing = tuple(each for each in found if not _has_equal(here, each))
    return SourceAcls(True, missing, opens=_is_open(settings, topic, here))


async def _acls_of(cluster: Cluster, topic: str, groups: Iterable[str]) -> list[AclBinding]:
    """On the very names. An ACL that a fence of ours has put up is none of the source's."""
    of_topic = await list_acls(cluster, WireAcl(*_applying(AclResourceType.TOPIC, topic)))
    of_groups = bindings_of(await list_acls(cluster, WireAcl(*AclFilter(AclResourceType.GROUP))))
    found = {each._replace(name=topic) for each in bindings_of(of_topic)}
    for group in groups:
        applying = _applying(AclResourceType.GROUP, group)
        found |= {each._replace(name=group) for each in of_groups if applying.matches(each)}
    if await is_fenced_by_acl(cluster, topic):
        found = {each for each in found if not _is_of_fence(each)}
    exact = {each._replace(pattern_type=PatternType.LITERAL) for each in found}
    return sorted(each for each in exact if fault_of(each) is None)


def _applying(kind: AclResourceType, name: str) -> AclFilter:
    return AclFilter(kind, PatternType.MATCH, name)


def _is_of_fence(each: AclBinding) -> bool:
    is_one = each.resource_type is AclResourceType.TOPIC and each.principal == _EVERYBODY
    return is_one and (each.operation, each.permission) in _OF_A_FENCE


def _has_equal(here: AclIndex, each: AclBinding) -> bool:
    return bool(here.matching(AclFilter(*each)._replace(pattern_type=PatternType.MATCH)))


def _is_open(settings: Settings, topic: str, here: AclIndex) -> bool:
    security = settings.security
    if security.authorization == "none":
        return True
    return security.allow_if_no_acl and not here.matching(_applying(AclResourceType.TOPIC, topic))


# --- those of Dray


@asynccontextmanager
async def acls_in(store: MetadataStore, runtime: Runtime) -> AsyncIterator[Acls]:
    acls = Acls(store, runtime)
    try:
        await acls.start()
        yield acls
    except SecurityUnavailable as error:
        raise MigrationRefused(f"the metadata store: {error}") from error
    finally:
        await acls.stop()


@asynccontextmanager
async def acls_here(settings: Settings, runtime: Runtime) -> AsyncIterator[AclIndex]:
    """For those who only look. None are here where there is no store yet."""
    if settings.metadata.engine == "sqlite" and not settings.metadata_path.exists():
        yield AclIndex()
        return
    store = await open_metadata(settings, runtime)
    try:
        async with acls_in(store, runtime) as acls:
            yield acls.index
    finally:
        await store.close()


async def carry_over(acls: Acls, missing: Sequence[AclBinding]) -> None:
    """ACLs that deny come first: a process that is stopped in the middle has let nobody in."""
    for permission in (Permission.DENY, Permission.ALLOW):
        made = [each for each in missing if each.permission is permission]
        if made:
            await acls.create(made)
            note_changes(f"add {text_of(each)}" for each in made)


# --- users and quotas
# Neither is of a topic: they are of whoever uses it. Passwords never come over: Kafka does not give them out.


_REFUSED = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION})


class SourceQuota(NamedTuple):
    parts: dict[str, str | None]
    values: dict[str, float]

    @property
    def text(self) -> str:
        return text_of_change(self.parts, self.values)


@dataclass(frozen=True, slots=True)
class SourceUsers:
    quotas: tuple[SourceQuota, ...] = ()
    """Those that nobody has set here."""
    users: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By name, with their mechanisms: those that have no password here."""
    unseen: tuple[str, ...] = ()
    """The things that the source does not show, and why."""

    def check(self, *, carries: bool) -> None:
        if carries and not self.quotas and self.unseen:
            raise MigrationRefused(f"--quotas: {self.unseen[0]}")


@dataclass(frozen=True, slots=True)
class HeldHere:
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    users: frozenset[str] = frozenset()


async def compare_users(cluster: Cluster, here: HeldHere) -> SourceUsers:
    unseen: list[str] = []
    quotas: list[SourceQuota] = []
    users: dict[str, Collection[str]] = {}
    try:
        for parts, values in await list_quotas(cluster, {}):
            if missing := _missing(parts, values, here):
                quotas.append(SourceQuota(parts, missing))
    except (RequestFailed, ClientError) as failure:
        unseen.append(_why("quotas", "DESCRIBE_CONFIGS", failure))
    try:
        found = await list_users(cluster)
        users = {name: sorted(held) for name, held in found.items() if held and name not in here.users}
    except (RequestFailed, ClientError) as failure:
        unseen.append(_why("users with SCRAM passwords", "DESCRIBE", failure))
    return SourceUsers(tuple(sorted(quotas, key=lambda each: each.text)), users, tuple(unseen))


def _missing(parts: dict[str, str | None], values: Mapping[str, float], here: HeldHere) -> dict[str, float]:
    """One that is set here to another value was set by somebody, and stays."""
    if fault_of_entity(parts) is not None:
        return {}
    entity = entity_of(parts)
    held = here.quotas.get(entity, {})
    return {
        name: rate
        for name, rate in values.items()
        if name not in held and fault_of_value(entity, name, rate) is None
    }


def _why(what: str, right: str, failure: Exception) -> str:
    """A source that is too old for the question is one that does not show it."""
    if isinstance(failure, RequestFailed) and failure.code not in _REFUSED:
        raise failure
    if isinstance(failure, RequestFailed) and failure.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return f"the source does not show its {what}: the migrator's user needs {right} on its cluster"
    return f"the source does not show its {what}: {failure}"


@asynccontextmanager
async def held_in(store: MetadataStore, runtime: Runtime) -> AsyncIterator[HeldHere]:
    quotas, users = Quotas(store, runtime), Users(store, runtime)
    try:
        await quotas.start()
        await users.start()
        yield HeldHere(
            {entity: dict(held) for entity, held in quotas.table.items()}, frozenset(users.names())
        )
    except SecurityUnavailable as error:
        raise MigrationRefused(f"the metadata store: {error}") from error
    finally:
        await quotas.stop()
        await users.stop()


@asynccontextmanager
async def held_here(settings: Settings, runtime: Runtime) -> AsyncIterator[HeldHere]:
    """For those who only look. There is nothing where there is no store yet."""
    if settings.metadata.engine == "sqlite" and not settings.metadata_path.exists():
        yield HeldHere()
        return
    store = await open_metadata(settings, runtime)
    try:
        async with held_in(store, runtime) as held:
            yield held
    finally:
        await store.close()


async def carry_quotas(store: MetadataStore, runtime: Runtime, found: Collection[SourceQuota]) -> None:
    quotas = Quotas(store, runtime)
    try:
        for each in found:
            await quotas.alter(entity_of(each.parts), each.values)
    except SecurityUnavailable as error:
        raise MigrationRefused(f"the metadata store: {error}") from error
    note_changes((each.text for each in found), AclOperation.ALTER_CONFIGS)
