"""Linking a topic that its source still owns, where no tier of it is attached: all that is needed is in the
record from the start, so that any process may go on with it, without the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dray.log.foreign_attach import AttachedStream, AttachRefused, lay_down
from dray.log.foreign_segments import OWN_STORE
from dray.log.origins import CLASSIC, epoch_above
from dray.migration.attach import Attacher
from dray.migration.found import MigrationRefused
from dray.migration.live import LiveOrigin, live_fields
from dray.migration.record import NO_TIER, MigrationLost, MigrationRecord, MigrationState


async def link_topic(
    attacher: Attacher,
    topic: str,
    origin: LiveOrigin,
    starts: Sequence[int],
    config: Mapping[str, str],
    source: str,
) -> MigrationRecord:
    """A topic that is mirrored from these offsets on. May be called again after any failure: what was begun
    goes on with what it was begun with. Raises `MigrationRefused`."""
    migrations, runtime = attacher.migrations, attacher.runtime
    if (
        await attacher.topics.refresh(topic, barrier=True) is not None
        and await migrations.read(topic) is None
    ):
        raise MigrationRefused(f"topic {topic} exists here already, and was not linked")
    attacher.topics.check_attach(
        topic, origin.topic_id, len(starts)
    )  # or it would be stuck when it is published
    new = MigrationRecord(
        MigrationState.ATTACHING,
        runtime.uuid(),
        origin.topic_id if origin.topic_id.int else runtime.uuid(),
        NO_TIER,
        source,
        OWN_STORE,
        "",
        epoch_above(origin.epoch),
        len(starts),
        (),
        tuple((start, start) for start in starts),
        config,
        runtime.wall_ms(),
        **live_fields(origin),
    )
    record = await attacher.begin(topic, new)
    if record.state is MigrationState.ABORTING:
        raise MigrationRefused(f"topic {topic}: an abort is under way: drayd migrate abort {topic}")
    if record.upstream != origin.upstream or record.has_tier:
        raise MigrationRefused(
            f"topic {topic} was begun otherwise: drayd migrate status {topic}, then drayd migrate abort "
            f"{topic}"
        )
    attacher.reached("begun")
    if record.state is MigrationState.ATTACHING:
        record = await attacher.take_streams(topic, record)
        try:
            for stream, (start, end) in zip(record.streams, record.bounds, strict=True):
                attached = AttachedStream((), start, end, record.leader_epoch, boundary=CLASSIC)
                await lay_down(attacher.streams, stream, attached)
        except AttachRefused:
            await attacher.sweep(record)  # an abort came in between: what was laid down after it goes too
            raise MigrationLost(f"topic {topic}: the migration was aborted meanwhile") from None
        attacher.reached("laid down")
    return await attacher.publish(topic, record)
