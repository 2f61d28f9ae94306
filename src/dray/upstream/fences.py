"""How the source stops taking records for a topic, and takes them again.

Kafka has no fence that clients merely wait behind. Each of these has its price:

- `acl` denies WRITE to everybody. Transactions that are open can still end. Super users are not stopped.
- `size` lets no batch be small enough. It needs no authorizer and stops everybody; but the markers of an
  open transaction are refused too, and the partition's last stable offset then hangs even after it is lifted:
  so it is refused while there are transactions.
- `stopped` does nothing: the operator says that nothing writes any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from dray.client.acls import WireAcl, create_acls, delete_acls
from dray.client.admin import alter_configs, describe_topics
from dray.client.cluster import Cluster
from dray.client.errors import RequestFailed
from dray.protocol import ErrorCode

from .source import Source

KINDS: Final = ("acl", "size", "stopped")

MOMENT_SECONDS: Final = 0.1
VOUCHED_SECONDS: Final = 10.0

_LARGEST_BATCH: Final = "max.message.bytes"
_TOPIC: Final = 2
_LITERAL: Final = 3
_WRITE: Final = 4
_DENY: Final = 2


class FenceRefused(Exception):
    """This fence must not be raised here. The text is one line that says why, and what to do."""


class Fence(Protocol):
    """Put up and lifted any number of times: a successor repeats what it cannot know was done."""

    @property
    def is_probed(self) -> bool:
        """Whether a leader's answer shows that it is up."""
        ...

    @property
    def moment_seconds(self) -> float:
        """For how long the source's end must stand still before it counts as the end."""
        ...

    async def check(self, source: Source, /) -> None:
        """Raises `FenceRefused` where it would do harm or nothing."""
        ...

    async def put_up(self) -> None: ...

    async def lift(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AclFence:
    cluster: Cluster
    topic: str
    is_probed: bool = True
    moment_seconds: float = MOMENT_SECONDS

    @property
    def _denial(self) -> WireAcl:
        return WireAcl(_TOPIC, _LITERAL, self.topic, "User:*", "*", _WRITE, _DENY)

    async def check(self, _: Source, /) -> None:
        return None

    async def put_up(self) -> None:
        try:
            await create_acls(self.cluster, [self._denial])
        except RequestFailed as failure:
            if failure.code == ErrorCode.SECURITY_DISABLED:
                raise FenceRefused(
                    "the source has no authorizer, so an ACL stops nothing: use --fence size, or stop the "
                    "producers and use --fence stopped"
                ) from failure
            raise

    async def lift(self) -> None:
        await delete_acls(self.cluster, self._denial)


@dataclass(frozen=True, slots=True)
class SizeFence:
    """`before` is the topic's own setting before the fence, None where it has none: kept with the migration,
    as it can no longer be read once the fence is up."""

    cluster: Cluster
    topic: str
    before: str | None
    is_probed: bool = True
    moment_seconds: float = MOMENT_SECONDS

    async def check(self, source: Source, /) -> None:
        open_ones = await source.open_transactions()
        if open_ones:
            raise FenceRefused(
                f"transactions are open at the source ({', '.join(open_ones[:3])}"
                f"{', ...' if len(open_ones) > 3 else ''}), and --fence size would leave them hanging for "
                "ever: end them first, or use --fence acl"
            )

    async def put_up(self) -> None:
        await alter_configs(self.cluster, self.topic, {_LARGEST_BATCH: "0"})

    async def lift(self) -> None:
        if self.before is None:
            await alter_configs(self.cluster, self.topic, {}, [_LARGEST_BATCH])
        else:
            await alter_configs(self.cluster, self.topic, {_LARGEST_BATCH: self.before})


@dataclass(frozen=True, slots=True)
class StoppedFence:
    is_probed: bool = False
    moment_seconds: float = VOUCHED_SECONDS

    async def check(self, _: Source, /) -> None:
        return None

    async def put_up(self) -> None:
        return None

    async def lift(self) -> None:
        return None


async def largest_batch_setting(cluster: Cluster, topic: str) -> str | None:
    """The topic's own `max.message.bytes`, None where it follows the brokers'. 0 is a fence that was left
    behind, and no setting that anybody wants back."""
    described = await describe_topics(cluster, [topic])
    found = described[0].configs.get(_LARGEST_BATCH)
    return None if found == "0" else found
