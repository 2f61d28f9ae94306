"""The fence of a group: one small key that each coordinator moves when it takes the group over.

Every write of offsets carries a put of it, at the version that this coordinator left there. A write is one
atomic step, so the outcome of that put says whether another coordinator had taken over by then. The offsets
beside it apply or not by their own versions; what hangs on the fence is the *answer*. A commit is
acknowledged only if the fence had not been moved, and a coordinator that moves it reads the offsets
afterwards. So the next coordinator knows every commit that was ever acknowledged, whatever the clock of the
one before it says about its lease.

The fence is moved over a version that was read *before* the lease was seen to be one's own. So coordinators
move it in the order in which they held the lease: one that was stopped in between finds another version.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from dray.broker.groups.coordinator.contract import NotCoordinator
from dray.broker.groups.coordinator.lease import Lease
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Delete, Expectation, MetadataStore, Outcome, Put
from dray.metadata.values import ValueCorrupt, seal, unseal

FENCE_FORMAT: Final = 1
_TOKEN_BYTES: Final = 16


def encode_fence(token: UUID) -> bytes:
    return seal(FENCE_FORMAT, token.bytes)


def check_fence(group_id: str, value: bytes) -> None:
    """Raises `UnreadableValue`: a build that cannot read a fence must not move it."""
    what = f"the fence of group '{group_id}'"
    _, body = unseal(what, value, FENCE_FORMAT)
    if len(body) != _TOKEN_BYTES:
        raise ValueCorrupt(what, f"it has {len(body)} bytes")


class Fence:
    """`token` is one per take-over: it tells our own put from another's."""

    def __init__(self, store: MetadataStore, domain: int, lease: Lease, token: UUID) -> None:
        self._store = store
        self._domain = domain
        self._lease = lease
        self._key = keys.group_fence(lease.group_id)
        self._value = encode_fence(token)
        self._version: Expectation | None = None

    @property
    def size(self) -> int:
        return len(self._value)

    @property
    def is_up(self) -> bool:
        return self._version is not None

    async def aim(self) -> Put:
        """The put that moves it, to be written next. Raises `NotCoordinator` when the lease is another's."""
        await self._store.barrier(self._domain)
        found = await self._store.get(self._domain, self._key)
        if found is not None:
            check_fence(self._lease.group_id, found.value)
        lease = await self._store.get(self._domain, keys.group_lease(self._lease.group_id))
        if lease is None or lease.version != self._lease.version:
            raise NotCoordinator(f"the lease of group '{self._lease.group_id}' has ended")
        return Put(self._key, self._value, ABSENT if found is None else found.version)

    def hold(self) -> Put:
        """The put that goes with a write: applied only if no other coordinator has moved the fence."""
        assert self._version is not None, "the fence was not moved yet"
        return Put(self._key, self._value, self._version)

    def moved(self, outcome: Outcome) -> bool:
        """Take in what became of either put."""
        if outcome.applied:
            self._version = outcome.version
        return outcome.applied

    async def look(self) -> None:
        """Whether it is ours still, as all writes before this left it: one of our own may have arrived late.
        Raises `NotCoordinator`."""
        await self._store.barrier(self._domain)
        found = await self._store.get(self._domain, self._key)
        if found is None or found.value != self._value:
            raise NotCoordinator(f"somebody else has taken over group '{self._lease.group_id}'")
        self._version = found.version

    def removal(self) -> list[Delete]:
        """Of a group that goes. A coordinator that writes offsets of it later moves the fence first."""
        version, self._version = self._version, None
        return [Delete(self._key, version)] if isinstance(version, int) else []
