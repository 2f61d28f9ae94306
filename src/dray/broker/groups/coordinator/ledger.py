"""The committed offsets of one group: in memory for reading, one key each in the store.

Each key is written at the version that was loaded or last written, so that what a coordinator sends after
another has taken its place changes nothing that the other wrote; and it is acknowledged only if no other had
(`fence.py`). Changes that come while a write is under way share the next one. Nothing is answered before its
write is confirmed; after an unclear one, what is there is read first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

import structlog

from dray.base.runtime import Runtime, run_once
from dray.broker.groups.coordinator.contract import GroupUnavailable, NotCoordinator, TooLarge, Unreachable
from dray.broker.groups.coordinator.storage import GroupStorage
from dray.broker.groups.offsets import CommittedOffset
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Ambiguous, Delete, MetadataError, Operation, Put, WriteTooLarge
from dray.metadata.values import UnreadableValue

_log = structlog.get_logger(__name__)

Place: TypeAlias = tuple[str, int]
"""A topic's name and a partition."""

OPERATIONS_AT_ONCE: Final = 5_000


class _Entry(NamedTuple):
    offset: CommittedOffset
    version: int
    key: str


class Forget(NamedTuple):
    """Delete an offset if it is still this one: what was committed since was not judged."""

    offset: CommittedOffset


Wanted: TypeAlias = CommittedOffset | Forget | None
"""The wanted state of an offset: committed, deleted if it is still the same, or deleted."""


class _Change(NamedTuple):
    """One request."""

    offsets: Mapping[Place, Wanted]
    size: int
    done: asyncio.Future[None]


class Ledger:
    def __init__(self, storage: GroupStorage, runtime: Runtime) -> None:
        self._storage = storage
        self._runtime = runtime
        self._topics: dict[str, dict[int, _Entry]] = {}
        self._pending: list[_Change] = []
        self._writing = False
        self._closings = 0
        self._gone: GroupUnavailable | None = None
        self.fenced: Callable[[str], None] = lambda _: None
        """Called when it turns out that another broker writes these offsets."""

    # --- reading

    def find(self, topic: str, partition: int) -> CommittedOffset | None:
        partitions = self._topics.get(topic)
        entry = None if partitions is None else partitions.get(partition)
        return None if entry is None else entry.offset

    def topics(self) -> dict[str, list[int]]:
        """Every partition with an offset, by topic."""
        return {topic: sorted(partitions) for topic, partitions in sorted(self._topics.items())}

    def offsets(self) -> dict[Place, CommittedOffset]:
        return {place: entry.offset for place, entry in self._entries()}

    def is_empty(self) -> bool:
        return not self._topics

    def is_busy(self) -> bool:
        return self._writing or bool(self._pending)

    # --- changing

    async def load(self) -> None:
        """Everything that is stored; to be called before anything else, and after an unclear write."""
        records = await self._storage.scan_offsets()
        self._topics = {}
        for record in records:
            place = keys.place_of_offset(record.key)
            if place is None:
                raise Unreachable(f"{record.key}: this build does not know such keys: upgrade it")
            try:
                offset = CommittedOffset.decode(record.value)
            except UnreadableValue as error:
                raise Unreachable(f"{record.key}: {error}") from error
            self._adopt(place[1:], _Entry(offset, record.version, record.key))

    async def change(self, offsets: Mapping[Place, Wanted]) -> None:
        """Commit or delete. Done when this returns; raises `GroupUnavailable`."""
        if self._closings:
            raise Unreachable(f"group '{self._storage.group_id}' is being deleted")
        await self._change_in_parts(offsets)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Commits are refused meanwhile."""
        self._closings += 1
        try:
            yield
        finally:
            self._closings -= 1

    async def delete_all(self) -> None:
        """Nothing is left when this returns."""
        with self.closed():
            await self._submit({})  # what was asked for before this is written now
            await self._change_in_parts(dict.fromkeys(place for place, _ in self._entries()))

    def drop(self, error: GroupUnavailable) -> None:
        """The group is another's by now, or may be."""
        self._gone = error
        pending, self._pending = self._pending, []
        _fail(pending, error)

    async def _change_in_parts(self, offsets: Mapping[Place, Wanted]) -> None:
        """As many writes as the store's limits ask for: mostly one."""
        most, largest = self._most_operations(), self._storage.room.value_bytes
        part: dict[Place, Wanted] = {}
        size = 0
        for place, offset in offsets.items():
            more = _size_of(offset)
            if part and (len(part) == most or size + more > largest):
                await self._submit(part, size)
                part, size = {}, 0
            part[place] = offset
            size += more
        if part:
            await self._submit(part, size)

    async def _submit(self, offsets: Mapping[Place, Wanted], size: int = 0) -> None:
        if self._gone is not None:
            raise self._gone
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append(_Change(offsets, size, done))
        if not self._writing:
            self._writing = True
            run_once(self._runtime, "offsets of group", self._write_pending)
        await done

    async def _write_pending(self) -> None:
        try:
            while self._pending and self._gone is None:
                changes = self._take_changes()
                try:
                    await self._write(changes)
                except GroupUnavailable as error:
                    _fail(changes, error)
                    if isinstance(error, NotCoordinator):
                        self.fenced(error.message)
                except BaseException as error:
                    # Cancelled, or a mistake of ours: what is stored must be read again before it is used.
                    _fail(changes, NotCoordinator(repr(error)))
                    self.fenced(repr(error))
                    raise
        finally:
            self._writing = False

    def _take_changes(self) -> list[_Change]:
        """As many as one write may hold."""
        most, largest = self._most_operations(), self._storage.room.value_bytes
        taken, count, size = 0, 0, 0
        for change in self._pending:
            count += len(change.offsets)
            size += change.size
            if taken and (count > most or size > largest):
                break
            taken += 1
        changes, self._pending = self._pending[:taken], self._pending[taken:]
        return changes

    def _most_operations(self) -> int:
        return min(OPERATIONS_AT_ONCE, self._storage.room.operations)

    async def _write(self, changes: Sequence[_Change]) -> None:
        wanted: dict[Place, Wanted] = {}
        for change in changes:
            for place, offset in change.offsets.items():
                # The later request wins, as if each had come alone.
                if not (isinstance(offset, Forget) and place in wanted):
                    wanted[place] = offset
        places, operations = self._operations(wanted)
        if operations:
            try:
                outcomes = await self._storage.write_offsets(operations)
            except Ambiguous as error:
                await self._read_outcome(changes, str(error))
                return
            except WriteTooLarge as error:  # a single offset of more bytes than a write may hold
                raise TooLarge(str(error)) from error
            except MetadataError as error:
                raise Unreachable(str(error)) from error
            if not all(outcome.applied for outcome in outcomes):
                raise NotCoordinator(f"somebody else commits offsets of group '{self._storage.group_id}'")
            for place, operation, outcome in zip(places, operations, outcomes, strict=True):
                offset = wanted[place]
                if isinstance(operation, Put) and isinstance(offset, CommittedOffset):
                    self._adopt(place, _Entry(offset, outcome.version, operation.key))
                else:
                    self._adopt(place, None)
        self._storage.check_lease()
        for change in changes:
            _succeed(change)

    def _operations(self, wanted: Mapping[Place, Wanted]) -> tuple[list[Place], list[Operation]]:
        places: list[Place] = []
        operations: list[Operation] = []
        group_id = self._storage.group_id
        for place, offset in wanted.items():
            topic, partition = place
            partitions = self._topics.get(topic)
            known = None if partitions is None else partitions.get(partition)
            if isinstance(offset, CommittedOffset):
                if known is None:
                    key = keys.group_offset(group_id, topic, partition)
                    operations.append(Put(key, offset.encode(), ABSENT))
                else:
                    operations.append(Put(known.key, offset.encode(), known.version))
            elif known is not None and (offset is None or offset.offset == known.offset):
                operations.append(Delete(known.key, known.version))
            else:
                continue
            places.append(place)
        return places, operations

    async def _read_outcome(self, changes: Sequence[_Change], why: str) -> None:
        """Read what became of a write. A part of it that is not there may still arrive: then the next write
        of that key is refused by its version, and the group is loaded again."""
        before = dict(self._entries())
        await self.load()
        await self._storage.check_fence()  # after the reading: what was read is there for a successor too
        for change in changes:
            if all(self._is_there(place, offset, before) for place, offset in change.offsets.items()):
                _succeed(change)
            else:
                _fail([change], Unreachable(why))

    def _is_there(self, place: Place, offset: Wanted, before: Mapping[Place, _Entry]) -> bool:
        now, earlier = self._topics.get(place[0], {}).get(place[1]), before.get(place)
        if offset is None:
            return now is None
        if isinstance(offset, Forget):
            return now is None or now.offset != offset.offset
        return (
            now is not None and now.offset == offset and (earlier is None or now.version != earlier.version)
        )

    def _adopt(self, place: Place, entry: _Entry | None) -> None:
        topic, partition = place
        if entry is not None:
            self._topics.setdefault(topic, {})[partition] = entry
            return
        partitions = self._topics.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self._topics[topic]

    def _entries(self) -> Iterator[tuple[Place, _Entry]]:
        for topic, partitions in self._topics.items():
            for partition, entry in partitions.items():
                yield (topic, partition), entry


def _size_of(offset: Wanted) -> int:
    return offset.largest_size if isinstance(offset, CommittedOffset) else 0


def _succeed(change: _Change) -> None:
    if not change.done.done():  # its client may have left
        change.done.set_result(None)


def _fail(changes: Iterable[_Change], error: GroupUnavailable) -> None:
    for change in changes:
        if not change.done.done():
            change.done.set_exception(error)
