"""Looks at both halves of the tally, raises it in its turn, and says what follows from it: whether anything
may be written (`held`), and whether anything may be deleted (by a call). `tally.py` has the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import structlog

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.broker.cluster.bucket_owner import BucketGuard
from dray.broker.cluster.tally import (
    KEPT,
    MARKS,
    NOTHING,
    QUIET_INTERVALS,
    Fit,
    Mark,
    Tally,
    TallyStep,
    TallyWatch,
    decode_mark,
    decode_tally,
    encode_mark,
    encode_tally,
    fit,
    mark_path,
    number_of_mark,
)
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Delete, MetadataError, MetadataStore, Operation, Put
from dray.metadata.values import UnreadableValue
from dray.objects.contract import ObjectError, ObjectExists, ObjectMissing, ObjectStore, Unsupported

_log = structlog.get_logger(__name__)

_TASK: Final = "tally"
_LOOKS_PER_INTERVAL: Final = 2
_GLANCES_PER_INTERVAL: Final = 12  # at the metadata alone, for those who ask
_STEPS: Final = 8
_LEAST_PAUSE: Final = 0.05
_GONE_PAUSES: Final = (1.0, 2.0, 3.0, 4.0)
"""Before it is believed that the bucket has lost our mark: a store that does not show it says the same."""
_LARGEST_MARK: Final = 4096

_PERMITTED: Final = (keys.BROKERS, keys.CLOCKS, keys.GROUP_LEASES, keys.MIGRATION_LEASES)
"""The keys that a process writes even while it is held: where it is, and that it lives."""


def may_be_written_while_held(operations: Sequence[Operation]) -> bool:
    return all(isinstance(each, (Put, Delete)) and each.key.startswith(_PERMITTED) for each in operations)


class TallyKeeper:
    """`start` and `stop` it; or call it, as the collectors' `MayDelete`."""

    def __init__(
        self,
        store: MetadataStore,
        objects: ObjectStore,
        runtime: Runtime,
        cluster_id: str,
        interval: float,
        *,
        is_new: bool = False,
        is_quiet: bool = False,
    ) -> None:
        """`is_quiet`: whoever asks says what it found, as a command does."""
        self._is_quiet = is_quiet
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._interval = interval
        self.owner = BucketGuard(objects, cluster_id)
        self._watch = TallyWatch(interval, is_new)
        self._looking = asyncio.Lock()
        self._task: KeptTask | None = None
        self._told: str | None = None
        self.number = 0

    # --- what others ask

    def held(self) -> str | None:
        """Why nothing may be written, as a line that says what to do."""
        why = self._watch.held()
        return None if why is None else _line(why)

    async def __call__(self) -> str | None:
        """Whether a round may delete: the bucket is the cluster's, and this metadata store is the cluster.
        If that is not known yet it waits, as it becomes known by itself."""
        if (reason := await self.owner()) is not None:
            return reason
        ends_at = self._runtime.monotonic() + 2 * QUIET_INTERVALS * self._interval
        while True:
            if (fault := await self.look(asks=True)) is not None:
                return fault
            if self._watch.is_proven or self._runtime.monotonic() >= ends_at:
                break
            await self._runtime.sleep(min(1.0, max(_LEAST_PAUSE, self._interval / _GLANCES_PER_INTERVAL)))
        return None if self._watch.is_proven else "whether another cluster uses this bucket is not known yet"

    # --- the loop

    def start(self) -> None:
        self._is_quiet = False
        self._task = keep_running(self._runtime, _TASK, self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    async def _run(self) -> None:
        pause = max(_LEAST_PAUSE, self._interval / _GLANCES_PER_INTERVAL)
        looks_at = 0.0
        while True:
            now = self._runtime.monotonic()
            if now >= looks_at or (self._watch.is_proven and await self._is_asked()):
                failed = await self.look() is not None
                looks_at = now + (0.0 if failed else self._interval / _LOOKS_PER_INTERVAL)
            await self._runtime.sleep(pause)

    async def _is_asked(self) -> bool:
        with suppress(MetadataError, UnreadableValue):
            return bool((await self._read())[0].asked)
        return False

    async def look(self, *, asks: bool = False) -> str | None:
        """Look, and go on as far as it goes. None, or why nothing is known or nothing may be done. `asks`:
        the others are to raise the tally now, as this process waits for proof."""
        async with self._looking:
            try:
                fault = await self._look(asks)
            except (ObjectError, MetadataError, UnreadableValue) as error:
                self._watch.missed()
                fault = f"the tally cannot be read: {error}"
            self._tell()
            return fault

    async def _look(self, asks: bool) -> str | None:
        for _ in range(_STEPS):
            tally, version, here, above = await self._see()
            self.number = tally.number
            step = self._watch.saw(self._runtime.monotonic(), tally, here, above)
            if step is TallyStep.NOTHING:
                if asks and not self._watch.is_proven and not self._watch.held() and not tally.asked:
                    await self._write(replace(tally, asked=True), version)
                return self.held()
            await self._take(step, tally, version)
        return self.held()

    async def _see(self) -> tuple[Tally, int, Mark | None, Mark | None]:
        """The record, and the marks that it says. A mark may be there that was announced after the record was
        read: so where they do not fit, the record is read again behind a barrier, and only one that has not
        changed is held against them. And one answer of a store may be wrong: it has to be given twice, and
        that our mark is gone, which would stop all producers, for as long as a store may hide what it has.

        The mark above is read first: it goes after the other, so where it has gone, that one is not found."""
        doubted: tuple[int, Mark | None, Mark | None] | None = None
        pauses = iter(() if self._watch.fit is Fit.GONE else _GONE_PAUSES)
        for _ in range(_STEPS):
            tally, version = await self._read()
            above = await self._above(tally.number)
            here = await self._mark(tally.number) if tally.number else None
            if _fits(tally, here, above):
                return tally, version, here, above
            if doubted == (version, here, above):
                pause = next(pauses, None) if fit(tally, here, above) is Fit.GONE else None
                if pause is None:
                    return tally, version, here, above
                await self._runtime.sleep(pause)
            await self._store.barrier(keys.CLUSTER_DOMAIN)
            doubted = version, here, above
        raise ObjectError("the tally is raised faster than it can be read")

    async def _read(self) -> tuple[Tally, int]:
        record = await self._store.get(keys.CLUSTER_DOMAIN, keys.TALLY)
        return (NOTHING, 0) if record is None else (decode_tally(record.value), record.version)

    async def _above(self, number: int) -> Mark | None:
        """The next mark. If that has gone, the number's own has gone before it; but the first one stays, so
        that a metadata store that knows no other would fit again: there any later mark will do."""
        above = await self._mark(number + 1)
        if above is None and number == 1:
            for later in await self._numbers():
                if later > number and above is None:
                    above = await self._mark(later)
        return above

    async def _numbers(self) -> list[int]:
        """Of the marks that are there."""
        paths = [info.path async for info in self._objects.list(MARKS)]
        return sorted(number for path in paths if (number := number_of_mark(path)) is not None)

    async def _delete_old(self, newest: int) -> None:
        """In their order, and none before the one below it has certainly gone: a metadata store that went as
        far as that one would find its own mark, and none above."""
        old = [number for number in await self._numbers() if 1 < number < newest - KEPT]
        # If many could not be deleted for long, the rest goes at the next raises.
        for number in old[: 2 * KEPT]:
            await self._objects.delete(mark_path(number))

    async def _mark(self, number: int) -> Mark | None:
        path = mark_path(number)
        try:
            value = bytes(await self._objects.get(path))
        except ObjectMissing:
            return None
        return decode_mark(path, value[:_LARGEST_MARK])

    async def _take(self, step: TallyStep, tally: Tally, version: int) -> None:
        if step is TallyStep.DRAW:
            await self._write(Tally(tally.number, tally.token, self._runtime.uuid().hex), version)
        elif step is TallyStep.PUT and tally.next is not None:
            interval_ms = round(self._interval * 1000)
            mark = Mark(self._cluster_id, tally.number + 1, tally.next, interval_ms)
            await put_mark(self._objects, mark)
        elif tally.next is not None:
            await self._write(Tally(tally.number + 1, tally.next), version)
            if tally.number - KEPT > 1 and self._watch.is_proven:
                with suppress(ObjectError):  # they are in nobody's way
                    await self._delete_old(tally.number + 1)

    async def _write(self, tally: Tally, version: int) -> None:
        """Lost or unclear, the next look finds what stands there."""
        put = Put(keys.TALLY, encode_tally(tally), version or ABSENT)
        await self._store.write(keys.CLUSTER_DOMAIN, [put])

    def _tell(self) -> None:
        held = self.held()
        if held == self._told:
            return
        self._told = held
        if self._is_quiet:
            return
        if held is None:
            _log.info("this metadata store and the bucket belong together again: writes go on")
        else:
            _log.error("nothing is written and nothing is deleted", reason=held)


async def put_mark(objects: ObjectStore, mark: Mark) -> None:
    """Whether it is this one that is there, the next look says."""
    value = encode_mark(mark)
    try:
        await objects.put_if_absent(mark_path(mark.number), [value])
    except ObjectExists:
        pass
    except Unsupported:
        # Two that put in the same moment both come here, and the one whose mark was replaced finds out.
        await objects.put(mark_path(mark.number), [value])


def _fits(tally: Tally, here: Mark | None, above: Mark | None) -> bool:
    return fit(tally, here, above) in (Fit.FITS, Fit.BEHIND_ITSELF)


def _line(why: str) -> str:
    return (
        f"this metadata store is a copy of the cluster's, or older than the bucket ({why}): give a drill a "
        "bucket of its own; or, if this is the cluster from now on, look with drayd restore"
    )
