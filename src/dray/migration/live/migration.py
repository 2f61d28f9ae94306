"""A topic that moves here while its clients work: what a migrator does for it, in each state of its record.

    state         what is done                                        what ends it
    ----------    ------------------------------------------------    ---------------------------------------
    MIRRORING     the mirror runs; groups and configs are followed;   a switch is asked for; an abort
                  a fence that a switch left behind is lifted
    PENDING       the mirror runs on; fence, probe, catch up,         all are decided: SWITCHED;
                  compare, decide (`switch.py`)                     something is wrong: back to MIRRORING
    SWITCHED      groups are handed over, the source's end watched    the last group, and the watch: MOVED

Any number of processes may do this for one topic at a time, and each may die at any point: what they know is
in the record and in the log, and each step is a compare-and-set. The fence at the source is the one thing
that is in neither. So what was there before it is noted first; and it is lifted only when the record says
that the switch is off, and no decision that was begun before can apply
(`migration/mirror/switching.py`).
A call that puts it up may arrive after that: it is looked for, and lifted again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from dray.base.runtime import KeptTask, Runtime, gather_some, keep_running
from dray.kafka.client.cluster import PASSING
from dray.kafka.client.errors import AuthenticationFailed, ClientError, RequestFailed
from dray.log.types import LogError, StreamClosed
from dray.migration.attach.found import MigrationRefused
from dray.migration.live.moving_topic import MovingTopic
from dray.migration.live.news import News
from dray.migration.live.steps import go_back, go_on, note, note_begun, note_fence
from dray.migration.live.switch import SwitchFailed, SwitchStuck, TopicSwitch
from dray.migration.record import MigrationLost, MigrationRecord, Migrations, MigrationState
from dray.migration.source.fences import FenceRefused, WriterFence
from dray.migration.source.source import SourceTopic

_log = structlog.get_logger(__name__)

WORKED: Final = frozenset({MigrationState.MIRRORING, MigrationState.PENDING, MigrationState.SWITCHED})
"""In these states there is something to do."""

FAILPOINTS: Final = (
    "fence noted",
    "fence up",
    "decided",
    "switched",
    "followed",
    "moved",
    "back",
    "forbidden",
    "lifted",
    "fence forgotten",
)
"""After each of these steps a test lets the process die."""

RETRY_SECONDS: Final = 60.0
"""A mirror of which partitions are stopped is begun anew after this time."""

ABORTED: Final = "it was aborted"


@dataclass(frozen=True, slots=True)
class LiveSettings:
    give_up_seconds: float
    straggler_seconds: float
    follow_seconds: float
    look_seconds: float = 1.0
    """How often the record is read."""
    fence_seconds: float = 10.0
    """How often the source is asked whether a fence has come up that was lifted before."""


@dataclass(slots=True)
class LiveSeen:
    """A migrator's view of a topic, for its metrics."""

    state: str = ""
    stopped: Mapping[int, str] = field(default_factory=dict)
    groups: int = 0
    stragglers: int = 0


class LiveMigration:
    """One topic in one process."""

    def __init__(
        self,
        topic: str,
        migrations: Migrations,
        live: MovingTopic,
        runtime: Runtime,
        settings: LiveSettings,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.topic = topic
        self.seen = LiveSeen()
        self._migrations = migrations
        self._live = live
        self._runtime = runtime
        self._settings = settings
        self._reached = reached
        self._news = News(runtime)
        self._mirror: KeptTask | None = None
        self._mirror_tried = float("-inf")
        self._follow_at = float("-inf")
        self._fence_at = float("-inf")

    async def run(self) -> None:
        """Goes on until it is cancelled, so that it may be kept running; `stop` afterwards."""
        while True:
            await self.turn()
            await self._runtime.sleep(self._settings.look_seconds)

    async def stop(self) -> None:
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            await mirror.stop()

    async def turn(self) -> MigrationRecord | None:
        """Do what the record asks for now; the record as it was found."""
        record = await self._migrations.read(self.topic)
        state = None if record is None else record.state
        self.seen.state = state or ""
        if state in (MigrationState.MIRRORING, MigrationState.PENDING):
            self._keep_mirroring()
        else:
            await self.stop()
        if record is None or state not in WORKED:
            return record
        if state is MigrationState.SWITCHED:
            await self._hand_over(record)
            return record
        record = await self._note_stopped(record)
        if state is MigrationState.PENDING:
            await self._switch(record)
        elif record.undo is not None:
            await self.lift(record)
        else:
            await self._follow(record)
            await self._look_for_a_fence(record)
        return record

    def _keep_mirroring(self) -> None:
        if self._mirror is None:
            self._mirror_tried = self._runtime.monotonic()
            self._mirror = keep_running(self._runtime, "mirror a topic", self._mirror_on)

    async def _mirror_on(self) -> None:
        await self._live.mirror()
        while True:  # all of it is decided: the record says so soon
            await self._runtime.sleep(self._settings.look_seconds)

    async def _note_stopped(self, record: MigrationRecord) -> MigrationRecord:
        """Note the stopped partitions. One that an operator may have repaired is tried again after a while;
        records that the source has lost stay lost."""
        stopped = self._live.stopped()
        if stopped is None:
            return record
        self.seen.stopped = stopped
        if stopped and self._runtime.monotonic() - self._mirror_tried >= RETRY_SECONDS:
            self._mirror_tried = self._runtime.monotonic()
            if not self._live.try_stopped_again():
                await self.stop()
        if dict(stopped) == dict(record.stopped or {}):
            return record
        for partition in stopped.keys() - (record.stopped or {}).keys():
            _log.error(
                "a partition is not mirrored any more",
                topic=self.topic,
                partition=partition,
                reason=stopped[partition],
            )
        return await note(self._migrations, self.topic, record, stopped=dict(stopped) or None)

    async def _follow(self, record: MigrationRecord) -> int | None:
        """How many groups are still the source's; None where it is too early to look again, or could not be
        found out."""
        if self._runtime.monotonic() < self._follow_at:
            return None
        self._follow_at = self._runtime.monotonic() + self._settings.follow_seconds
        try:
            self.seen.groups = await self._live.follow(record)
        except (ClientError, RequestFailed) as failure:
            # A right that is missing, say: neither the mirror nor a switch waits for it.
            if self._news.is_news("followed"):
                _log.warning("groups and configs are not followed", topic=self.topic, reason=str(failure))
            return None
        self._news.forget("followed")
        self._reached("followed")
        return self.seen.groups

    # --- PENDING

    async def _switch(self, record: MigrationRecord) -> None:
        record = await note_begun(self._migrations, self.topic, record, self._runtime.wall_ms())
        if not record.is_pending:
            return
        if record.stopped:
            partition, reason = min(record.stopped.items())
            if not await self._decided(record):
                await self._go_back(record, f"partition {partition} is not mirrored any more: {reason}")
                return
        if record.undo is None:
            record = await self._note_fence(record)
            if not record.is_pending or record.undo is None:
                return
        self._reached("fence noted")
        _log.info("a topic is being switched", topic=self.topic, fence=record.fence, attempt=record.attempt)
        switching = self._runtime.spawn(self._run_switch(record), "switch a topic")
        watching = self._runtime.spawn(self._until_elsewhere(record), "watch a switch")
        try:
            await asyncio.wait({switching, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (switching, watching):
                task.cancel()
            await asyncio.wait({switching, watching})
        if not switching.cancelled():
            switching.result()

    async def _note_fence(self, record: MigrationRecord) -> MigrationRecord:
        """The record with what was there before the fence, or as it is otherwise by now."""
        try:
            await self._live.check_users(record.allows or ())
            undo = await self._live.before_fence(record.fence or "")
        except (FenceRefused, AuthenticationFailed) as refusal:
            return await self._go_back(record, str(refusal), is_unfenced=True)
        except (ClientError, RequestFailed) as failure:
            if self._is_worth_another_try(record, failure):
                raise
            return await self._go_back(record, str(failure), is_unfenced=True)
        return await note_fence(self._migrations, self.topic, record, record.fence or "", undo)

    def _spent_seconds(self, record: MigrationRecord) -> float:
        """Since the first migrator took the switch up, by clocks that may differ. It does not begin anew with
        a process that goes on: the writers at the source are fenced all the time."""
        now_ms = self._runtime.wall_ms()
        return max(0, now_ms - (now_ms if record.began_ms is None else record.began_ms)) / 1000

    def _is_worth_another_try(self, record: MigrationRecord, failure: Exception) -> bool:
        is_over = self._spent_seconds(record) >= self._settings.give_up_seconds
        return not is_over and not (isinstance(failure, RequestFailed) and failure.code not in PASSING)

    async def _until_elsewhere(self, record: MigrationRecord) -> None:
        """An abort, or another migrator, has taken the record on."""
        while await self._is_same(record):
            await self._runtime.sleep(self._settings.look_seconds)

    async def _is_same(self, record: MigrationRecord) -> bool:
        current = await self._migrations.read(self.topic)
        return current is not None and (
            (current.migration_id, current.state, current.attempt)
            == (record.migration_id, record.state, record.attempt)
        )

    async def _run_switch(self, record: MigrationRecord) -> None:
        fence = _RecordedFence(
            self._live.fence(record.fence or "", record.undo or {}),
            lambda: self._is_same(record),
            lambda: self._take_back(record),
            self._runtime,
            self._reached,
        )
        switch = TopicSwitch(
            self._live.source,
            self._live.destination,
            fence,
            self._runtime,
            self._settings.give_up_seconds,
            spent_seconds=self._spent_seconds(record),
            is_allowed=lambda: self._is_same(record),
            on_decision=lambda: self._reached("decided"),
        )
        try:
            boundaries = await switch.run()
        except MigrationLost:
            return  # what the record says now is done in the next turn
        except (SwitchFailed, SwitchStuck, FenceRefused, AuthenticationFailed) as failure:
            await self._failed(record, str(failure))
        except StreamClosed:
            await self._failed(record, "the topic was deleted here")
        except (ClientError, RequestFailed, LogError) as failure:
            if self._is_worth_another_try(record, failure):
                raise
            await self._failed(record, str(failure))
        else:
            await self._switched(record, boundaries)

    async def _failed(self, record: MigrationRecord, why: str) -> None:
        """Back, unless a partition is decided: then on and on, with the reason in the record."""
        if not await self._decided(record):
            await self._go_back(record, why)
            return
        _log.error("a switch does not go on, and there is no way back", topic=self.topic, reason=why)
        await note(self._migrations, self.topic, record, why=why)

    async def _go_back(
        self, record: MigrationRecord, why: str, *, is_unfenced: bool = False
    ) -> MigrationRecord:
        found = await go_back(self._migrations, self.topic, record, why, is_unfenced=is_unfenced)
        if not found.is_pending:
            _log.warning("a switch went back", topic=self.topic, reason=why)
        self._reached("back")
        return found

    async def _decided(self, record: MigrationRecord) -> list[int]:
        async def is_decided(partition: int) -> bool:
            with suppress(StreamClosed):  # the topic was deleted here: nothing of it is Dray's
                return await self._live.destination.boundary(partition) is not None
            return False

        found = await gather_some(map(is_decided, range(record.partitions)))
        return [partition for partition, is_ours in enumerate(found) if is_ours]

    async def _take_back(self, record: MigrationRecord) -> None:
        """The call that put the fence up has ended when its switch was off already: perhaps it was lifted
        before it was up."""
        current = await self._migrations.read(self.topic)
        is_ours = current is not None and current.migration_id == record.migration_id
        if current is not None and is_ours and current.state is MigrationState.MIRRORING:
            await note_fence(self._migrations, self.topic, current, record.fence or "", record.undo or {})
        elif (
            current is None
            or current.state is MigrationState.ABORTING
            or (not is_ours and current.state is MigrationState.MIRRORING)
        ):
            await self._live.fence(record.fence or "", record.undo or {}).lift()  # no record says it any more

    async def _switched(self, record: MigrationRecord, boundaries: Mapping[int, int]) -> None:
        if set(boundaries) != set(range(record.partitions)):
            raise RuntimeError(f"topic {self.topic}: not all partitions were decided: {sorted(boundaries)}")

        def change(current: MigrationRecord) -> MigrationRecord:
            if not current.is_pending:
                return current
            done = current.to(MigrationState.SWITCHED)
            return replace(done, switched_ms=self._runtime.wall_ms(), why=None)

        await self._migrations.step(self.topic, record, change)
        _log.info("a topic is Dray's", topic=self.topic, boundaries=dict(boundaries))
        self._reached("switched")

    # --- back to MIRRORING

    async def lift(self, record: MigrationRecord) -> None:
        """Of a migration that is MIRRORING with a fence that may be up. A decision that came before is the
        end of the way back."""
        boundaries = await gather_some(map(self._live.forbid, range(record.partitions)))
        self._reached("forbidden")
        if any(boundary is not None for boundary in boundaries):
            await go_on(self._migrations, self.topic, record)
            return
        if not await self._is_same(record):
            return
        await self._live.fence(record.fence or "", record.undo or {}).lift()
        self._reached("lifted")
        lifted = {**(record.lifted or {}), record.fence or "": record.undo or {}}
        await note(self._migrations, self.topic, record, undo=None, lifted=lifted)
        _log.info("the fence at the source is lifted", topic=self.topic)
        self._reached("fence forgotten")

    async def _look_for_a_fence(self, record: MigrationRecord) -> None:
        if self._runtime.monotonic() < self._fence_at:
            return
        self._fence_at = self._runtime.monotonic() + self._settings.fence_seconds
        try:
            await self._finds_a_fence(record)
        except (ClientError, RequestFailed) as failure:
            _log.debug("not known whether the source is fenced", topic=self.topic, reason=str(failure))

    async def _finds_a_fence(self, record: MigrationRecord) -> bool:
        """Of a migration that is MIRRORING with no fence to lift. A call that puts one up may arrive after it
        was lifted: sent by a process that was killed, say, or taken by a broker that stood still. It is
        noted, and so lifted again."""
        for kind, undo in (record.lifted or {}).items():
            if await self._live.is_fenced(kind):
                _log.warning("a fence came up at the source after it was lifted", topic=self.topic)
                await note_fence(self._migrations, self.topic, record, kind, undo)
                return True
        return False

    async def withdraw(self) -> None:
        """Take a switch back that is under way, and its fence, so that the migration may be aborted. Raises
        `MigrationRefused` once a partition is Dray's."""
        while (record := await self._migrations.read(self.topic)) is not None:
            if record.is_pending:
                if decided := await self._decided(record):
                    raise MigrationRefused(
                        f"topic {self.topic}: partitions {', '.join(map(str, decided))} are Dray's already, "
                        f"and there is no way back: drayd migrate status {self.topic}"
                    )
                await go_back(self._migrations, self.topic, record, ABORTED)
            elif record.state is MigrationState.MIRRORING and record.undo is not None:
                await self.lift(record)
            elif record.state is not MigrationState.MIRRORING or not await self._finds_a_fence(record):
                return

    # --- SWITCHED

    async def _hand_over(self, record: MigrationRecord) -> None:
        groups = await self._follow(record)
        if groups is None:
            return
        found = dict(await self._live.stragglers(record))
        self.seen.stragglers = sum(found.values())
        if found != dict(record.stragglers or {}):
            if found:
                _log.error("records are at the source behind the boundary", topic=self.topic, records=found)
            record = await note(self._migrations, self.topic, record, stragglers=found or None)
        watched_ms = self._runtime.wall_ms() - (record.switched_ms or 0)
        if groups or watched_ms < self._settings.straggler_seconds * 1000:
            return

        def change(current: MigrationRecord) -> MigrationRecord:
            return current if current.state is MigrationState.MOVED else current.to(MigrationState.MOVED)

        await self._migrations.step(self.topic, record, change)
        _log.info("a topic has moved", topic=self.topic)
        self._reached("moved")


@dataclass(frozen=True, slots=True)
class _RecordedFence:
    """Goes up only while the record asks for it, and is lifted by the record alone (`LiveMigration.lift`)."""

    fence: WriterFence
    is_allowed: Callable[[], Awaitable[bool]]
    take_back: Callable[[], Awaitable[None]]
    runtime: Runtime
    reached: Callable[[str], None]

    @property
    def is_probed(self) -> bool:
        return self.fence.is_probed

    @property
    def moment_seconds(self) -> float:
        return self.fence.moment_seconds

    async def check(self, source: SourceTopic, /) -> None:
        await self.fence.check(source)

    async def put_up(self) -> None:
        if not await self.is_allowed():
            raise MigrationLost("the switch was taken back")
        sending = self.runtime.spawn(self._send(), "put a fence up")
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait({sending})  # a call that is under way cannot be called back
            sending.cancelled() or sending.exception()
            raise
        self.reached("fence up")

    async def _send(self) -> None:
        try:
            await self.fence.put_up()
        finally:
            if not await self.is_allowed():
                await self.take_back()

    async def lift(self) -> None:
        return None
