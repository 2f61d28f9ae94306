"""A group's record in the store, as the one coordinator that holds the lease writes it.

The record says which coordinator wrote it last, what kind of group it is, and its state. Format 1, behind the
version byte: the kind (one byte), the coordinator epoch (int64), and the state in the format of its machine.
Every takeover raises the coordinator epoch, so that what an earlier coordinator still has under way finds
another version there than it expects.

Every write expects the version that was last seen. One that is skipped means that another coordinator has
written: `NotCoordinator`, and the group is dropped from memory. One that is unclear is settled before
anything is answered: if it is not there, the record is put again as it was, at the next coordinator epoch, so
that it cannot arrive later either.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from dray.base.runtime import Runtime
from dray.broker.groups.coordinator.contract import NotCoordinator, TooLarge, Unreachable
from dray.broker.groups.coordinator.fence import Fence
from dray.broker.groups.coordinator.lease import Lease
from dray.metadata import keys
from dray.metadata.contract import (
    ABSENT,
    Ambiguous,
    Delete,
    Expectation,
    Limits,
    MetadataError,
    MetadataStore,
    Operation,
    Outcome,
    Put,
    StoredValue,
    Unavailable,
)
from dray.metadata.values import ValueCorrupt, seal, unseal

RECORD_FORMAT: Final = 1

_PAUSE: Final = 0.05
_LOADING_ATTEMPTS: Final = 5
"""After which a client had better try again than be kept waiting."""

_HEAD = Struct(">Bq")


class GroupKind(IntEnum):
    """Stored: never renumber."""

    CLASSIC = 1
    """Also of a simple group: committed offsets of consumers that assign partitions to themselves."""

    CONSUMER = 2
    DELETED = 3
    """Its offsets are being deleted: the next coordinator goes on with that."""


class GroupRecord(NamedTuple):
    kind: GroupKind
    coordinator_epoch: int
    body: bytes


def encode_record(record: GroupRecord) -> bytes:
    return seal(RECORD_FORMAT, _HEAD.pack(record.kind, record.coordinator_epoch) + record.body)


def decode_record(group_id: str, value: bytes) -> GroupRecord:
    what = f"group '{group_id}'"
    _, content = unseal(what, value, RECORD_FORMAT)
    try:
        kind, coordinator_epoch = _HEAD.unpack_from(content, 0)
        return GroupRecord(GroupKind(kind), coordinator_epoch, bytes(content[_HEAD.size :]))
    except (struct.error, ValueError) as error:
        raise ValueCorrupt(what, str(error)) from error


def _raised(record: GroupRecord) -> GroupRecord:
    return record._replace(coordinator_epoch=record.coordinator_epoch + 1)


class _Current(NamedTuple):
    """The stored record. Its bytes are not kept: they are as large as the group, and the store has them."""

    coordinator_epoch: int
    version: int


class GroupStorage:
    """`open` first. Calls about the record come one after another."""

    def __init__(
        self, store: MetadataStore, runtime: Runtime, group_id: str, domain: int, lease: Lease
    ) -> None:
        self.group_id = group_id
        self.lease = lease
        self.limits = store.limits
        self._store = store
        self._runtime = runtime
        self._domain = domain
        self._key = keys.group(group_id)
        self._current: _Current | None = None
        self._fence = Fence(store, domain, lease, runtime.uuid())

    @property
    def coordinator_epoch(self) -> int | None:
        """None where there is no record."""
        return None if self._current is None else self._current.coordinator_epoch

    def check_lease(self) -> None:
        if not self.lease.confirmed():
            raise NotCoordinator(f"the lease of group '{self.group_id}' may have ended")

    # --- the record

    async def open(self) -> GroupRecord | None:
        """Read the record, raise its coordinator epoch and move the fence: from then on no other write of
        the record arrives, and no other commit is acknowledged. A group without a record has no
        offsets: its fence is moved before the first is written."""
        opened: GroupRecord | None = None

        async def take_over() -> bool:
            nonlocal opened
            found = await self._read()
            if found is None:
                self._current = opened = None
                return True
            fence = await self._fence.aim()
            record = decode_record(self.group_id, found.value)
            opened = _raised(record)
            put = Put(self._key, encode_record(opened), found.version)
            outcome, fenced = await self._store.write(self._domain, [put, fence])
            if outcome.applied:
                self._current = _Current(opened.coordinator_epoch, outcome.version)
            return self._fence.moved(fenced) and outcome.applied

        await self._until_clear(take_over, _LOADING_ATTEMPTS)
        return opened

    async def put(self, kind: GroupKind, body: bytes) -> None:
        """Store the state. Raises `Unreachable` when it is certain that it never will be, `NotCoordinator`
        when another broker has the group, `TooLarge`."""
        before = self._current
        epoch = 1 if before is None else before.coordinator_epoch
        value = encode_record(GroupRecord(kind, epoch, body))
        if len(value) > self.limits.value_bytes:
            raise TooLarge(f"group '{self.group_id}' needs {len(value)} bytes, which no write may hold")
        self.check_lease()
        try:
            if not await self._put(epoch, value, ABSENT if before is None else before.version):
                raise self._fenced()
        except Unavailable as error:
            raise Unreachable(str(error)) from error
        except Ambiguous as error:
            if not await self._settle_put(before, epoch, value):
                raise Unreachable(str(error)) from error
        self.check_lease()

    async def delete(self) -> None:
        """Remove the record; there must be nothing beside it any more."""
        before = self._current
        if before is None:
            return
        self.check_lease()
        try:
            removal = [Delete(self._key, before.version), *self._fence.removal()]
            outcome = (await self._store.write(self._domain, removal))[0]
        except Unavailable as error:
            raise Unreachable(str(error)) from error
        except Ambiguous as error:
            found = await self._read_until_clear()
            if found is not None:
                if found.version != before.version:
                    raise self._fenced() from error
                raise Unreachable(str(error)) from error
        else:
            if not outcome.applied:
                raise self._fenced()
        self._current = None
        self.check_lease()

    async def _settle_put(self, before: _Current | None, epoch: int, value: bytes) -> bool:
        """Whether the new value is there. If it is not, see to it that it never will be: only where there
        was nothing before can it still arrive, and then the next write meets it."""
        is_there = False
        again: GroupRecord | None = None

        async def is_clear() -> bool:
            nonlocal is_there, again
            found = await self._read()
            if found is not None and found.value == value:
                self._current = _Current(epoch, found.version)
                is_there = True
                return True
            if before is None:
                if found is not None:
                    raise self._fenced()
                return True
            if found is None:
                raise self._fenced()
            if again is not None and found.value == encode_record(again):
                self._current = _Current(again.coordinator_epoch, found.version)
                return True
            if found.version != before.version:
                raise self._fenced()
            again = _raised(decode_record(self.group_id, found.value))
            return await self._put(again.coordinator_epoch, encode_record(again), before.version)

        await self._until_clear(is_clear)
        return is_there

    async def _put(self, epoch: int, value: bytes, expect: Expectation) -> bool:
        [outcome] = await self._store.write(self._domain, [Put(self._key, value, expect)])
        if outcome.applied:
            self._current = _Current(epoch, outcome.version)
        return outcome.applied

    async def _read(self) -> StoredValue | None:
        await self._store.barrier(self._domain)
        return await self._store.get(self._domain, self._key)

    async def _read_until_clear(self) -> StoredValue | None:
        found: StoredValue | None = None

        async def read() -> bool:
            nonlocal found
            found = await self._read()
            return True

        await self._until_clear(read)
        return found

    async def _until_clear(self, step: Callable[[], Awaitable[bool]], attempts: int | None = None) -> None:
        """Repeat a step that reads before it writes until it succeeds, or the lease may have ended. With a
        number of attempts, `Unreachable` after as many failures."""
        failures = 0
        while True:
            self.check_lease()
            try:
                if await step():
                    self.check_lease()
                    return
            except (Unavailable, Ambiguous) as error:
                failures += 1
                if failures == attempts:
                    raise Unreachable(str(error)) from error
            except MetadataError as error:  # a value that this build cannot read
                raise Unreachable(str(error)) from error
            await self._runtime.sleep(min(_PAUSE * failures, 1.0))

    # --- the offsets beside it

    async def scan_offsets(self) -> list[StoredValue]:
        """Every offset of the group, as all acknowledged writes left them."""
        found: list[StoredValue] = []
        prefix = keys.group_offsets(self.group_id)

        async def scan() -> bool:
            nonlocal found
            await self._store.barrier(self._domain)
            found = await self._store.scan(self._domain, prefix, keys.prefix_end(prefix))
            return True

        await self._until_clear(scan, _LOADING_ATTEMPTS)
        return found

    @property
    def room(self) -> Limits:
        """The number and bytes of offsets that one write may hold, beside the fence."""
        return Limits(self.limits.operations - 1, self.limits.value_bytes - self._fence.size)

    async def write_offsets(self, operations: list[Operation]) -> list[Outcome]:
        """One write, and this broker was the coordinator when it was done: else `NotCoordinator`, and what
        became of it is not to be told. Raises the store's errors: only the caller knows what it meant."""
        self.check_lease()
        if not self._fence.is_up:  # the group is new
            await self._until_clear(self._raise_fence)
        *outcomes, fenced = await self._store.write(self._domain, [*operations, self._fence.hold()])
        if not self._fence.moved(fenced):
            await self.check_fence()
        return outcomes

    async def check_fence(self) -> None:
        """Raises `NotCoordinator` if another coordinator has taken over before this. Writes that are in the
        store by now are then there for the next one too."""

        async def look() -> bool:
            await self._fence.look()
            return True

        await self._until_clear(look)

    async def _raise_fence(self) -> bool:
        [outcome] = await self._store.write(self._domain, [await self._fence.aim()])
        return self._fence.moved(outcome)

    def _fenced(self) -> NotCoordinator:
        return NotCoordinator(f"somebody else has written group '{self.group_id}'")
