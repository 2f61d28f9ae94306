"""How the source stops taking records for a topic, and takes them again.

Kafka has no fence that clients merely wait behind. Each of these has its price:

- `acl` denies WRITE to everybody. Transactions that are open can still end. Super users are not stopped.
  If a topic had no ACL at all, a first one would cut off its readers too: so all else is allowed with it.
- `size` lets no batch be small enough. It needs no authorizer and stops everybody; but the markers of an
  open transaction are refused too, and the partition's last stable offset then hangs even after it is lifted:
  so it is refused while there are transactions, and where producers write some: the next may begin at once.
- `stopped` does nothing: the operator says that nothing writes any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from dray.base.runtime import Runtime
from dray.kafka.client.access import WireAcl, create_acls, delete_acls, list_acls
from dray.kafka.client.admin import alter_configs, describe_topics
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.errors import RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.migration.source.source import SourceTopic

ACL_FENCE: Final = "acl"
SIZE_FENCE: Final = "size"
KINDS: Final = (ACL_FENCE, SIZE_FENCE, "stopped")

MOMENT_SECONDS: Final = 0.1
VOUCHED_SECONDS: Final = 10.0

LARGEST_BATCH: Final = "max.message.bytes"
_NO_BATCH: Final = "0"
_HEARD_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.05

_TOPIC: Final = 2
_MATCH: Final = 2
_LITERAL: Final = 3
_ANY: Final = 1
_ALL: Final = 2
_WRITE: Final = 4
_DESCRIBE: Final = 8
_DENY: Final = 2
_ALLOW: Final = 3


class FenceRefused(Exception):
    """This fence must not be raised here. The text is one line that says why, and what to do."""


class NoAuthorizer(FenceRefused):
    """An ACL stops nothing at this source."""


class WriterFence(Protocol):
    """Put up and lifted any number of times: a successor repeats what it cannot know was done."""

    @property
    def is_probed(self) -> bool:
        """Whether a leader's answer shows that it is up."""
        ...

    @property
    def moment_seconds(self) -> float:
        """For how long the source's end must stand still before it counts as the end."""
        ...

    async def check(self, source: SourceTopic, /) -> None:
        """Raises `FenceRefused` where it would do harm or nothing."""
        ...

    async def put_up(self) -> None: ...

    async def lift(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AclFence:
    """`allows_rest`: the topic had no ACL before. `is_denied`: the operator has denied WRITE to everybody
    before, by the very ACL that the fence puts up, and keeps it. Both are kept with the migration
    (`AclsBefore`), as they can no longer be seen once the fence is up. With it goes a mark: an ACL of a topic
    that does not exist, by which a fence of ours is told from what operators deny. `as_brokers`: the source
    by the user with which brokers pass on what clients produce, if that is another one than ours."""

    cluster: Cluster
    topic: str
    runtime: Runtime
    allows_rest: bool
    is_denied: bool = False
    is_probed: bool = True
    moment_seconds: float = MOMENT_SECONDS
    as_brokers: Cluster | None = None

    async def check(self, _: SourceTopic, /) -> None:
        """A super user would see no fence, and no ACL stops one: so it must not be us, and no broker of ours,
        whose appends would go past the fence. It is tried on a topic that does not exist: always the same, so
        that what a process left that died here is found."""
        try:
            await create_acls(self.cluster, [_tried(self.topic)])
        except RequestFailed as failure:
            if failure.code == ErrorCode.SECURITY_DISABLED:
                raise NoAuthorizer(
                    "the source has no authorizer, so an ACL stops nothing: use --fence size, or stop the "
                    "producers and use --fence stopped"
                ) from failure
            raise
        try:
            if not await self._is_denied(self.cluster):
                raise FenceRefused(
                    "the migrator is a super user at the source, so it cannot see whether the fence holds: "
                    "give it a user of its own, with ALTER on the cluster and READ on the topic"
                )
            if self.as_brokers is not None and not await self._is_denied(self.as_brokers):
                raise FenceRefused(
                    "the user of forward_config is a super user at the source, so the fence does not stop "
                    "what brokers pass on: give them a user of their own, with WRITE on the topic alone"
                )
        finally:
            await delete_acls(self.cluster, _tried(self.topic))

    async def put_up(self) -> None:
        """ACLs of a check that died are taken away: a successor may not have to check."""
        rest = [_acl(self.topic, _ALL, _ALLOW)] if self.allows_rest else []
        await delete_acls(self.cluster, _tried(self.topic))
        await create_acls(self.cluster, [_mark(self.topic), *rest, _acl(self.topic, _WRITE, _DENY)])

    async def lift(self) -> None:
        """The denial first: without it the rest allows what was allowed before, and never less. Then all of
        it once more with the mark, at one moment: a late call may have put the fence up again in between, and
        one that stays up must keep its mark."""
        denial = [] if self.is_denied else [_acl(self.topic, _WRITE, _DENY)]
        rest = [_acl(self.topic, _ALL, _ALLOW)] if self.allows_rest else []
        if denial:
            await delete_acls(self.cluster, *denial)
        await delete_acls(self.cluster, *denial, *rest, _tried(self.topic), _mark(self.topic))

    async def _is_denied(self, cluster: Cluster) -> bool:
        """It is made again now and then: another process may have tried the same, and taken it away."""
        deadline = self.runtime.monotonic() + _HEARD_SECONDS
        again = self.runtime.monotonic() + _AGAIN_SECONDS
        tried = _tried(self.topic)
        while self.runtime.monotonic() < deadline:
            answer = await cluster.learn([tried.name or ""])
            if answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return True
            if self.runtime.monotonic() >= again:
                await create_acls(self.cluster, [tried])
                again += _AGAIN_SECONDS
            await self.runtime.sleep(_PAUSE_SECONDS)
        return False


@dataclass(frozen=True, slots=True)
class SizeFence:
    """`before` is the topic's own setting before the fence, None where it has none: kept with the migration,
    as it can no longer be read once the fence is up."""

    cluster: Cluster
    topic: str
    before: str | None
    is_probed: bool = True
    moment_seconds: float = MOMENT_SECONDS

    async def check(self, source: SourceTopic, /) -> None:
        open_ones = await source.open_transactions()
        if open_ones:
            raise FenceRefused(
                f"transactions are open at the source ({', '.join(open_ones[:3])}"
                f"{', ...' if len(open_ones) > 3 else ''}), and --fence size would leave them hanging for "
                "ever: end them first, or use --fence acl"
            )
        writers = await source.transactional()
        if writers:
            raise FenceRefused(
                f"transactions are written to the topic ({', '.join(writers[:3])}"
                f"{', ...' if len(writers) > 3 else ''}), and --fence size would leave one that begins now "
                "hanging for ever: use --fence acl, or stop them and wait until the source has forgotten "
                "them (producer.id.expiration.ms)"
            )

    async def put_up(self) -> None:
        await alter_configs(self.cluster, self.topic, {LARGEST_BATCH: _NO_BATCH})

    async def lift(self) -> None:
        if self.before is None:
            await alter_configs(self.cluster, self.topic, {}, [LARGEST_BATCH])
        else:
            await alter_configs(self.cluster, self.topic, {LARGEST_BATCH: self.before})


@dataclass(frozen=True, slots=True)
class StoppedFence:
    is_probed: bool = False
    moment_seconds: float = VOUCHED_SECONDS

    async def check(self, _: SourceTopic, /) -> None:
        return None

    async def put_up(self) -> None:
        return None

    async def lift(self) -> None:
        return None


class AclsBefore(NamedTuple):
    """`needs_rest`: no ACL speaks of the topic, so that its clients live of `allow.everyone.if.no.acl.found`,
    which ends with the first one. `is_denied`: see `AclFence`."""

    needs_rest: bool
    is_denied: bool


async def acls_before(cluster: Cluster, topic: str) -> AclsBefore:
    """Raises `FenceRefused` where a fence of ours is up: what was before it cannot be seen."""
    if await is_fenced_by_acl(cluster, topic):
        raise FenceRefused(
            f"a fence of an earlier switch is up at the source, as its ACL of the topic {_mark(topic).name} "
            "says. It is lifted by itself, if it is of this migration: then try again. Else take it away by "
            f"hand, with the ACLs of User:* on {topic} (DENY WRITE, and ALLOW ALL if there is one)"
        )
    found = await list_acls(cluster, WireAcl(_TOPIC, _MATCH, topic, None, None, _ANY, _ANY))
    return AclsBefore(not found, _acl(topic, _WRITE, _DENY) in found)


async def is_fenced_by_acl(cluster: Cluster, topic: str) -> bool:
    """Whether a fence of ours is up, or is being lifted."""
    return bool(await list_acls(cluster, _mark(topic)))


def _mark(topic: str) -> WireAcl:
    return _acl(f"dray-fence-{topic}", _WRITE, _DENY)


def _tried(topic: str) -> WireAcl:
    return _acl(f"dray-check-{topic}", _DESCRIBE, _DENY)


def _acl(topic: str, operation: int, permission: int) -> WireAcl:
    return WireAcl(_TOPIC, _LITERAL, topic, "User:*", "*", operation, permission)


async def largest_batch_setting(cluster: Cluster, topic: str) -> str | None:
    """The topic's own `max.message.bytes`, None where it follows the brokers'. 0 is a fence that was left
    behind, and no setting that anybody wants back."""
    found = await _largest_batch(cluster, topic)
    return None if found == _NO_BATCH else found


async def is_fenced_by_size(cluster: Cluster, topic: str) -> bool:
    return await _largest_batch(cluster, topic) == _NO_BATCH


async def _largest_batch(cluster: Cluster, topic: str) -> str | None:
    return (await describe_topics(cluster, [topic]))[0].configs.get(LARGEST_BATCH)
