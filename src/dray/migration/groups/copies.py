"""A migrator's side of groups that come from another cluster: their copies in the store.

Only a coordinator writes what a group has committed here. A migrator writes the copy beside it, by version,
and never one that has moved. Before a new copy counts, the group is taken over for a moment, as another
coordinator would: one that has the group in memory without knowing of the copy finds that out with its next
write, and loads it anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import structlog

from dray.base.runtime import Runtime
from dray.broker.groups.coordinator.fence import check_fence, encode_fence
from dray.broker.groups.coordinator.machines import decode_state
from dray.broker.groups.coordinator.storage import decode_record, encode_record
from dray.metadata import keys
from dray.metadata.contract import (
    ABSENT,
    Ambiguous,
    Delete,
    Expectation,
    MetadataStore,
    Operation,
    Put,
    StoredValue,
    Unavailable,
    WriteTooLarge,
)
from dray.metadata.update import ALL_FAILURES, update
from dray.metadata.values import UnreadableValue
from dray.migration.groups.copy import (
    CopiedTopic,
    CopyState,
    GroupCopy,
    LaterTopic,
    Offsets,
    copied_rows,
    copied_topics,
    decode_copy,
    encode_copy,
)

_log = structlog.get_logger(__name__)

PAGE: Final = 500
AT_ONCE: Final = 100
BYTES_AT_ONCE: Final = 256 << 10


class StoredLater(NamedTuple):
    """The stored copy for a topic that was linked after its group had moved."""

    offsets: Offsets
    is_settled: bool
    has_moved: bool


class StoredCopy(NamedTuple):
    copy: GroupCopy
    version: int

    @property
    def offsets(self) -> Offsets:
        """None at all where they could not be read yet."""
        return self.copy.offsets

    @property
    def topics(self) -> Collection[str]:
        """Those that the group comes with, or came with."""
        return self.copy.topics.keys()

    @property
    def later(self) -> dict[str, StoredLater]:
        return {
            name: StoredLater(
                {(name, each.partition): (each.offset, each.metadata) for each in later.offsets},
                later.state is not CopyState.FOUND,
                later.state is CopyState.MOVED,
            )
            for name, later in (self.copy.later or {}).items()
        }

    @property
    def source(self) -> str:
        return self.copy.source

    @property
    def has_moved(self) -> bool:
        return self.copy.state is CopyState.MOVED

    @property
    def lives_here(self) -> bool:
        """It had members at Dray before it was found at the source: it is left alone."""
        return self.copy.state is CopyState.HERE

    @property
    def is_settled(self) -> bool:
        """Whether every coordinator knows of it: only then the group can be handed over."""
        return self.copy.state is not CopyState.FOUND


CopyChange: TypeAlias = tuple[str, StoredCopy | None, Offsets, bool]
"""A change of a group's copy: the group, its copy as it was read, the offsets, and whether it has moved."""

LaterChange: TypeAlias = tuple[str, StoredCopy, Mapping[str, tuple[Offsets, bool] | None]]
"""Of a group that has moved: what becomes of topics that were linked later. The offsets, and whether they are
the last ones; None where it turned out that it does not read the topic."""


class GroupCopies:
    """Its errors are the store's."""

    def __init__(self, store: MetadataStore, runtime: Runtime, domains: int, source: str) -> None:
        """`source` is the upstream's name in the config."""
        self.source = source
        self._store = store
        self._runtime = runtime
        self._domains = domains

    async def read_all(self) -> dict[str, StoredCopy]:
        """Of all sources: a group is copied from one alone."""
        return {group_id: stored async for group_id, stored in self._each()}

    async def change(self, changes: Sequence[CopyChange], topic_ids: Mapping[str, UUID]) -> set[str]:
        """The groups whose copy is now as it should be; of the others nothing is known, until they are read
        again: another migrator was faster, or the store did not answer."""
        return await self._write([(each[0], self._put(each, topic_ids)) for each in changes])

    async def change_later(self, changes: Sequence[LaterChange], topic_ids: Mapping[str, UUID]) -> set[str]:
        """The same, for topics that were linked after their groups had moved."""
        return await self._write([(each[0], self._put_later(each, topic_ids)) for each in changes])

    async def hold(self, group_ids: Collection[str], topic_ids: Mapping[str, UUID]) -> set[str]:
        """Let groups wait of which it is not known how far they have read in these topics."""
        copy = GroupCopy(
            CopyState.FOUND, self.source, {name: CopiedTopic(each, ()) for name, each in topic_ids.items()}
        )
        return await self._write(
            [(each, Put(keys.followed_group(each), encode_copy(copy), ABSENT)) for each in sorted(group_ids)]
        )

    async def release(self, held: Mapping[str, StoredCopy]) -> set[str]:
        """They read none of the topics after all."""
        return await self._write(
            [(each, Delete(keys.followed_group(each), stored.version)) for each, stored in held.items()]
        )

    async def _write(self, operations: Sequence[tuple[str, Put | Delete]]) -> set[str]:
        """The groups whose operation applied."""
        done: set[str] = set()
        by_domain: dict[int, list[tuple[str, Put | Delete]]] = {}
        for group_id, operation in operations:
            domain = keys.domain_of_group(group_id, self._domains)
            by_domain.setdefault(domain, []).append((group_id, operation))
        for domain, theirs in by_domain.items():
            for some in _parts(theirs):
                try:
                    outcomes = await self._store.write(domain, [operation for _, operation in some])
                except (Unavailable, Ambiguous, WriteTooLarge) as error:
                    _log.warning("groups are copied later", groups=len(some), error=str(error))
                    continue
                done.update(
                    group_id for (group_id, _), outcome in zip(some, outcomes, strict=True) if outcome.applied
                )
        return done

    async def make_known(self, group_id: str) -> bool:
        """See to it that no coordinator works with the group that has not seen its copy. False: not yet."""

        async def attempt() -> bool | None:
            domain = keys.domain_of_group(group_id, self._domains)
            await self._store.barrier(domain)
            found = await self._store.get(domain, keys.followed_group(group_id))
            if found is None:
                return False
            copy = decode_copy(group_id, found.value)
            if copy.state is not CopyState.FOUND and not copy.has_unsettled_topics:
                return True
            record = await self._store.get(domain, keys.group(group_id))
            if record is None:
                if await self._store.get(domain, keys.group_lease(group_id)) is not None:
                    return False  # a coordinator is making it, perhaps: it has a record the next time
                return await self._put_copy(domain, found, copy.settled())
            if copy.state is CopyState.FOUND:
                state = decode_state(group_id, decode_record(group_id, record.value))
                if state is not None and state.members:
                    return await self._put_copy(domain, found, copy.to(CopyState.HERE))
            if not await self._take_over(domain, group_id, record):
                return None
            return await self._put_copy(domain, found, copy.settled())

        return await update(self._runtime, attempt, ALL_FAILURES)

    async def forget_topic(self, topic: str, *, moved: bool = False) -> None:
        """The topic does not come here after all. A group that came with no other one is free again. `moved`:
        it was here and was deleted, so that groups which came with it may come again."""
        async for group_id, stored in self._each():
            if stored.source == self.source and stored.copy.without(topic, moved=moved) != stored.copy:
                await update(self._runtime, partial(self._forget, group_id, topic, moved), ALL_FAILURES)

    async def _forget(self, group_id: str, topic: str, moved: bool) -> bool | None:
        domain, key = keys.domain_of_group(group_id, self._domains), keys.followed_group(group_id)
        await self._store.barrier(domain)
        found = await self._store.get(domain, key)
        if found is None:
            return True
        copy = decode_copy(group_id, found.value)
        rest = copy.without(topic, moved=moved)
        if copy.source != self.source or rest == copy:
            return True
        operation: Operation = Delete(key, found.version)
        if rest is not None:
            operation = Put(key, encode_copy(rest), found.version)
        [outcome] = await self._store.write(domain, [operation])
        return True if outcome.applied else None

    def _put(self, change: CopyChange, topic_ids: Mapping[str, UUID]) -> Put:
        group_id, before, offsets, has_moved = change
        expect: Expectation = ABSENT
        copy = GroupCopy(CopyState.FOUND, self.source, {})
        known = dict(topic_ids)
        if before is not None:
            expect, copy = before.version, before.copy
            known = {name: each.topic_id for name, each in copy.topics.items()} | known
        copy = replace(copy, topics=copied_topics(offsets, known))
        if has_moved:
            copy = copy.to(CopyState.MOVED)
        return Put(keys.followed_group(group_id), encode_copy(copy), expect)

    def _put_later(self, change: LaterChange, topic_ids: Mapping[str, UUID]) -> Put:
        group_id, before, wanted = change
        later = dict(before.copy.later or {})
        for name, each in wanted.items():
            known = later.pop(name, None)
            if each is None:
                continue
            offsets, has_moved = each
            state = CopyState.FOUND if known is None else known.state
            later[name] = LaterTopic(
                CopyState.MOVED if has_moved else state,
                topic_ids[name] if known is None else known.topic_id,
                copied_rows(offsets).get(name, ()),
            )
        copy = replace(before.copy, later=dict(sorted(later.items())) or None)
        return Put(keys.followed_group(group_id), encode_copy(copy), before.version)

    async def _put_copy(self, domain: int, found: StoredValue, copy: GroupCopy) -> bool | None:
        [outcome] = await self._store.write(domain, [Put(found.key, encode_copy(copy), found.version)])
        return True if outcome.applied else None

    async def _take_over(self, domain: int, group_id: str, record: StoredValue) -> bool:
        """As a coordinator does that loads the group: the record one epoch further, the fence moved."""
        fence_key = keys.group_fence(group_id)
        fence = await self._store.get(domain, fence_key)
        if fence is not None:
            check_fence(group_id, fence.value)
        decoded = decode_record(group_id, record.value)
        raised = encode_record(decoded._replace(coordinator_epoch=decoded.coordinator_epoch + 1))
        token = encode_fence(self._runtime.uuid())
        outcomes = await self._store.write(
            domain,
            [
                Put(record.key, raised, record.version),
                Put(fence_key, token, ABSENT if fence is None else fence.version),
            ],
        )
        return all(outcome.applied for outcome in outcomes)

    async def _each(self) -> AsyncIterator[tuple[str, StoredCopy]]:
        end = keys.prefix_end(keys.FOLLOWED_GROUPS)
        for domain in range(self._domains):
            await self._store.barrier(domain)
            start = keys.FOLLOWED_GROUPS
            while page := await self._store.scan(domain, start, end, PAGE):
                start = page[-1].key + "\0"
                for each in page:
                    group_id = keys.group_of_followed(each.key)
                    if group_id is None:
                        continue
                    try:
                        yield group_id, StoredCopy(decode_copy(group_id, each.value), each.version)
                    except UnreadableValue as error:
                        _log.error("a group is not followed", group=group_id, error=str(error))


def _parts(operations: Sequence[tuple[str, Put | Delete]]) -> list[list[tuple[str, Put | Delete]]]:
    parts: list[list[tuple[str, Put | Delete]]] = []
    size = 0
    for each in operations:
        more = len(each[1].value) if isinstance(each[1], Put) else 0
        if not parts or len(parts[-1]) == AT_ONCE or size + more > BYTES_AT_ONCE:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += more
    return parts
