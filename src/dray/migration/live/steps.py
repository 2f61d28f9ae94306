"""The steps of a live migration that are nothing but a change of its record: any process may ask for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from dray.migration.attach.found import MigrationRefused
from dray.migration.record import FENCES, MigrationRecord, Migrations, MigrationState


@dataclass(frozen=True, slots=True)
class LiveOrigin:
    """The cluster that still owns the topic."""

    upstream: str
    """Its name in the config."""
    topic_id: UUID
    epoch: int
    """The greatest of the partitions' leaders."""


def live_fields(origin: LiveOrigin | None) -> dict[str, Any]:
    if origin is None:
        return {}
    return {"upstream": origin.upstream, "source_topic_id": origin.topic_id, "attempt": 0}


def is_outdated(record: MigrationRecord, new: MigrationRecord) -> bool:
    """Whether `record` is a link to the same topic that clients have not seen yet, and that is to be laid
    down otherwise by now. One of another cluster, or of another tier, is left to the operator."""
    return (
        record.state is MigrationState.ATTACHING
        and record.is_live
        and (record.upstream, record.layout, record.store) == (new.upstream, new.layout, new.store)
        and (record.source_topic_id, record.plan, record.bounds)
        != (new.source_topic_id, new.plan, new.bounds)
    )


async def request_switch(
    migrations: Migrations, topic: str, fence: str = "acl", allows: Collection[str] = ()
) -> MigrationRecord:
    """MIRRORING becomes PENDING: a migrator then does what is to be done. A switch that is under way or done
    is given back as it is. `allows`: what it goes over, of `ALLOWED`. Raises `MigrationRefused`."""
    if fence not in FENCES:
        raise MigrationRefused(f"there is no fence {fence!r}: one of {', '.join(FENCES)}")
    record = await migrations.read(topic)
    if record is None or not record.is_live:
        raise MigrationRefused(f"topic {topic} is not linked to a cluster: drayd migrate link {topic}")

    def change(current: MigrationRecord) -> MigrationRecord:
        if current.state in (MigrationState.PENDING, MigrationState.SWITCHED, MigrationState.MOVED):
            return current
        if current.state is not MigrationState.MIRRORING:
            raise MigrationRefused(
                f"topic {topic} is {current.state}, and only one that is mirrored can be switched: "
                f"drayd migrate status {topic}"
            )
        if current.undo is not None:
            raise MigrationRefused(
                f"topic {topic}: the fence of the last switch is not lifted yet, which needs a migrator and "
                f"the source: drayd migrate status {topic}"
            )
        if current.stopped:
            partition, reason = min(current.stopped.items())
            raise MigrationRefused(
                f"topic {topic}: partition {partition} is not mirrored any more, so that it cannot be "
                f"switched: {reason}"
            )
        pending = current.to(MigrationState.PENDING)
        return replace(
            pending,
            fence=fence,
            attempt=(current.attempt or 0) + 1,
            why=None,
            began_ms=None,
            allows=tuple(sorted(allows)) or None,
        )

    return await migrations.step(topic, record, change)


async def go_back(
    migrations: Migrations, topic: str, record: MigrationRecord, why: str, *, is_unfenced: bool = False
) -> MigrationRecord:
    """PENDING becomes MIRRORING again, if it is still this try. From now on no partition can be decided once
    `forbid` was called for it; the fence is lifted after that, as `undo` is kept. A record that is elsewhere
    by now is given back as it is. `is_unfenced`: only if nobody has gone on to the fence meanwhile; who has
    may be what keeps us from it."""

    def change(current: MigrationRecord) -> MigrationRecord:
        if not current.is_pending or current.attempt != record.attempt:
            return current
        if is_unfenced and current.undo is not None:
            return current
        return replace(current.to(MigrationState.MIRRORING), why=why)

    return await migrations.step(topic, record, change)


async def go_on(migrations: Migrations, topic: str, record: MigrationRecord) -> MigrationRecord:
    """MIRRORING becomes PENDING again, as a partition was decided before it was forbidden: forward only."""

    def change(current: MigrationRecord) -> MigrationRecord:
        if current.state is not MigrationState.MIRRORING or current.attempt != record.attempt:
            return current
        return current.to(MigrationState.PENDING)

    return await migrations.step(topic, record, change)


async def note(
    migrations: Migrations, topic: str, record: MigrationRecord, **changes: object
) -> MigrationRecord:
    """A change of what is known, if the migration is still in the same state and try."""

    def change(current: MigrationRecord) -> MigrationRecord:
        if not _is_same(current, record):
            return current
        return replace(current, **changes)  # type: ignore[arg-type]

    return await migrations.step(topic, record, change)


async def note_begun(
    migrations: Migrations, topic: str, record: MigrationRecord, now_ms: int
) -> MigrationRecord:
    """A migrator has taken the switch up: the first one counts."""

    def change(current: MigrationRecord) -> MigrationRecord:
        if not _is_same(current, record) or current.began_ms is not None:
            return current
        return replace(current, began_ms=now_ms)

    return await migrations.step(topic, record, change)


async def note_fence(
    migrations: Migrations, topic: str, record: MigrationRecord, fence: str, undo: Mapping[str, str]
) -> MigrationRecord:
    """A fence may be up from now on. A note that is there stays: the process that made it has seen the source
    without a fence, and one that comes later may have seen it with one."""

    def change(current: MigrationRecord) -> MigrationRecord:
        if not _is_same(current, record) or current.undo is not None:
            return current
        return replace(current, fence=fence, undo=undo)

    return await migrations.step(topic, record, change)


def _is_same(current: MigrationRecord, record: MigrationRecord) -> bool:
    return (current.state, current.attempt) == (record.state, record.attempt)
