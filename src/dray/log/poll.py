"""Fetching from several streams at once, with Kafka's byte limits and its long poll.

Sizes are planned from the index first, then all bytes are read side by side. A poll that finds too little
waits for a wake-up: a local commit, or a watch's hint of another broker's. A missing wake-up proves nothing,
so an answer without records is given only after the store was asked once more.

A fetch does not use a start that is older than `bounds_seconds`: records that another broker deleted are
served for no longer. The store is asked in the background when half of that has passed, and waited for when
all of it has; where it does not answer, the read is refused.

A plan holds no more than the caller has room for, except that it always holds one batch: that batch waits for
its room. A poll that gets no room in time is answered without records, and the client asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dray.log.index_cache import NEVER
from dray.log.observer import LogObserver
from dray.log.patience import PatientReads
from dray.log.plans import EmptyPlan, ForeignPlan, ParquetPlan, ReadPlan, TailPlan
from dray.log.reader import StreamReader
from dray.log.types import LogError, ReadRequest, ReadResult
from dray.log.wakeups import Wakeups
from dray.metadata import keys
from dray.metadata.contract import MetadataStore
from dray.runtime import AnswerRoom, Runtime, run_once

# The store is asked about a stream at least this often, even without a hint.
_DOUBT_SECONDS = 1.0
_PLANNED_AT_ONCE = 512
# There are records, but no memory for them: even a fetch with no wait time waits this long for memory.
_ROOM_SECONDS = 1.0
_SMALLER_PLANS = 3
_DECODED = (ParquetPlan, ForeignPlan)


class Poller:
    def __init__(
        self,
        store: MetadataStore,
        reader: StreamReader,
        runtime: Runtime,
        wakeups: Wakeups,
        observer: LogObserver,
        bounds_seconds: float,
    ) -> None:
        self._store = store
        self._reader = reader
        self._runtime = runtime
        self._wakeups = wakeups
        self._observer = observer
        self._bounds_seconds = bounds_seconds
        self._unwatched = NEVER  # when anything may have changed without a hint

    async def fetch(
        self,
        requests: Sequence[ReadRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: AnswerRoom,
    ) -> list[ReadResult]:
        began = self._runtime.monotonic()
        # A fetch with `min_bytes` 0 does not wait for records. But even it says "no records" only after the
        # store was asked.
        at_once = min_bytes <= 0
        deadline = began if at_once else began + max_wait_ms / 1000
        room_deadline = max(deadline, began + _ROOM_SECONDS)
        min_bytes = max(min_bytes, 1)
        slept = 0.0
        refused = 0
        asked, unheard = await self._ask_doubtful(requests)
        while True:
            allowed = min(max_bytes, room.most())
            plans = await self._plan(requests, allowed, unheard)
            enough = self._enough(plans, min(min_bytes, max(allowed, 1)))
            remaining = 0.0 if enough else deadline - self._runtime.monotonic()
            if remaining <= 0 and not (enough or asked or (at_once and unheard)):
                unheard = await self._ask(requests)
                asked = True
                continue
            if remaining <= 0:
                size = _planned(plans, allowed)
                if room.take(size):
                    break
                remaining = room_deadline - self._runtime.monotonic()
                if remaining <= 0:
                    plans = [_without_records(plan) for plan in plans]
                    break
                refused += 1
                if size > allowed or refused > _SMALLER_PLANS:  # one large batch; or others are always faster
                    slept += await self._wait_for_room(room, size, remaining)
                    unheard |= await self._ask_outdated(requests)
                continue
            if self._moved(plans):
                continue
            missed = [request for request in requests if self._wakeups.missed(request.stream)]
            if missed:
                unheard |= await self._ask(missed)
                continue
            slept += await self._wait([request.stream for request in requests], remaining)
            asked = False
            unheard |= await self._ask_outdated(requests)
        results = await self._read(plans, unheard, min_bytes)
        _keep_to(allowed, results)
        self._observer.fetched(self._runtime.monotonic() - began - slept)
        return results

    async def _wait(self, streams: list[int], seconds: float) -> float:
        """How long it took."""
        began = self._runtime.monotonic()
        self._observer.polling(self._wakeups.count + 1)
        try:
            await self._wakeups.wait(streams, seconds)
        finally:
            self._observer.polling(self._wakeups.count)
        return self._runtime.monotonic() - began

    async def _wait_for_room(self, room: AnswerRoom, size: int, seconds: float) -> float:
        """How long it took."""
        began = self._runtime.monotonic()
        await room.wait(size, seconds)
        return self._runtime.monotonic() - began

    # --- planning

    async def _plan(
        self, requests: Sequence[ReadRequest], max_bytes: int, unheard: dict[int, LogError]
    ) -> list[ReadPlan | ReadResult]:
        oldest = self._runtime.monotonic() - self._bounds_seconds
        plans: dict[int, ReadPlan | ReadResult] = {}
        remaining = max_bytes
        room: dict[str | None, int] = {}
        empty = True
        for place in self._reader.order(requests):
            request = requests[place]
            if request.stream in unheard and self._reader.confirmed(request.stream) < oldest:
                # Records of the stream may have been deleted since. (For all other streams the store was just
                # asked.)
                plans[place] = self._failed(request, unheard[request.stream])
                continue
            try:
                plan = await self._reader.plan(request, remaining, at_least_one=empty)
            except LogError as error:
                plans[place] = self._failed(request, error)
                continue
            if type(plan) is not TailPlan and isinstance(plan, _DECODED):
                # Only as many streams at once as have their row groups, pieces and chunks stay in memory.
                # With more, each would be decoded again for every part of it.
                where = plan.decoded_where
                room[where] = room.get(where, plan.decoded_room) - plan.decoded_bytes
                if room[where] < 0 and not empty:
                    plan = EmptyPlan(request, plan.bounds)
            remaining -= plan.size
            empty = empty and plan.size == 0
            plans[place] = plan
            if len(plans) % _PLANNED_AT_ONCE == 0:
                await self._runtime.sleep(0)  # a fetch may be of ten thousand partitions
        return [plans[place] for place in range(len(requests))]

    @staticmethod
    def _enough(plans: Sequence[ReadPlan | ReadResult], min_bytes: int) -> bool:
        size = 0
        for plan in plans:
            if isinstance(plan, ReadResult):
                return True
            size += plan.size
        return size >= min_bytes

    def _moved(self, plans: Sequence[ReadPlan | ReadResult]) -> bool:
        """Did a stream grow between its planning and now? No wake-up would say so: the poll did not wait
        yet."""
        for plan in plans:
            if not isinstance(plan, ReadResult):
                bounds = self._reader.known_bounds(plan.request.stream)
                if bounds is None or bounds.end != plan.bounds.end:
                    return True
        return False

    # --- asking the store

    async def _ask_doubtful(self, requests: Sequence[ReadRequest]) -> tuple[bool, dict[int, LogError]]:
        """Ask about streams that seem at their end and were not asked about lately, and about those whose
        bounds are outdated. Gives back whether these were all of the streams and the store answered, and the
        streams that it did not answer about."""
        now = self._runtime.monotonic()
        doubtful = []
        for request in requests:
            bounds = self._reader.known_bounds(request.stream)
            confirmed = self._reader.confirmed(request.stream)
            age = now - confirmed
            if (
                bounds is None
                or age > self._bounds_seconds
                or (request.offset >= bounds.end and self._is_doubtful(request.stream, age, confirmed))
            ):
                doubtful.append(request)
            elif 2 * age > self._bounds_seconds:
                self._reader.confirm_soon(request.stream)
        unheard = await self._ask(doubtful) if doubtful else {}
        return len(doubtful) == len(requests) and not unheard, unheard

    def _is_doubtful(self, stream: int, age: float, confirmed: float) -> bool:
        """May the stream have grown while no hint of that is under way?"""
        return age > _DOUBT_SECONDS or confirmed <= self._unwatched or self._reader.is_unanswered(stream)

    async def _ask_outdated(self, requests: Sequence[ReadRequest]) -> dict[int, LogError]:
        """After a wait: ask about the streams whose bounds are too old by now."""
        oldest = self._runtime.monotonic() - self._bounds_seconds
        outdated = [request for request in requests if self._reader.confirmed(request.stream) < oldest]
        return await self._ask(outdated) if outdated else {}

    async def _ask(self, requests: Sequence[ReadRequest]) -> dict[int, LogError]:
        """Ask the store. Gives back the streams without an answer: those cannot be said to have no
        records."""
        for request in requests:
            self._wakeups.seen(request.stream)  # before the read: a hint that comes during it counts
        answers = await asyncio.gather(
            *[self._reader.refresh(request.stream, barrier=True) for request in requests],
            return_exceptions=True,
        )
        unheard: dict[int, LogError] = {}
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, LogError):
                unheard[request.stream] = answer
            elif isinstance(answer, BaseException):
                raise answer
        return unheard

    # --- following other brokers

    async def follow(self, domain: int) -> None:
        """Wake the polls of a domain's streams when the store hints that one grew, and doubt what is known of
        those whose start was raised. Runs for ever."""
        async for change in self._store.watch(domain):
            if change.key is None:
                self._unwatched = self._runtime.monotonic()
                for stream in self._wakeups.streams():
                    self._hinted(stream)
                continue
            if not change.key.endswith(keys.BOUNDS):
                continue  # most changes are of other keys
            stream, part = keys.part_of_stream(change.key)
            if part == keys.START:
                self._reader.doubt_start(stream)
            elif part == keys.HIGH_WATERMARK:
                if self._wakeups.waits(stream):
                    self._hinted(stream)
                elif self._reader.known_bounds(stream) is not None:
                    self._wakeups.miss(stream)

    def _hinted(self, stream: int) -> None:
        run_once(self._runtime, "poll hint", self._refresh_and_wake, stream)

    async def _refresh_and_wake(self, stream: int) -> None:
        try:
            await self._reader.refresh(stream)  # which wakes, if it grew
        except LogError:
            self._wakeups.wake(stream)  # the poll will meet the error itself

    # --- reading

    async def _read(
        self, plans: Sequence[ReadPlan | ReadResult], unheard: dict[int, LogError], min_bytes: int
    ) -> list[ReadResult]:
        """First all reads are started that the answer needs, then those that may be wanted next. Only then
        does this wait, and not at all if enough is ready for an answer: the rest will be in memory when the
        client asks again, and the disk works while the client does."""
        results = [self._ready(plan, unheard) for plan in plans]
        for plan in plans:
            if not isinstance(plan, ReadResult):
                plan.read_ahead()
        waiting = [
            (place, plan)
            for place, (plan, result) in enumerate(zip(plans, results, strict=True))
            if result is None and not isinstance(plan, ReadResult)
        ]
        if waiting and _is_worthwhile(results, len(waiting), min_bytes):
            for place, plan in waiting:
                if plan.is_coming():
                    results[place] = _answer(plan, [])
            waiting = [(place, plan) for place, plan in waiting if results[place] is None]
        if waiting:
            foreign = [(place, plan) for place, plan in waiting if isinstance(plan, ForeignPlan)]
            patient = PatientReads([self._wait_for(plan) for _, plan in foreign], _is_answer)
            own = [(place, plan) for place, plan in waiting if not isinstance(plan, ForeignPlan)]
            try:
                found = await asyncio.gather(*[self._wait_for(plan) for _, plan in own])
                for (place, _), result in zip(own, found, strict=True):
                    results[place] = result
                if foreign:
                    beside = any(result is not None and _is_answer(result) for result in results)
                    came = await patient.results(beside=beside)
                    for (place, plan), late in zip(foreign, came, strict=True):
                        results[place] = late or ReadResult([], 0, plan.bounds.end, plan.bounds.start)
            finally:
                patient.cancel()
        return [result for result in results if result is not None]

    def _ready(self, plan: ReadPlan | ReadResult, unheard: dict[int, LogError]) -> ReadResult | None:
        if isinstance(plan, ReadResult):
            return plan
        if plan.size == 0:
            error = unheard.get(plan.request.stream)
            return _answer(plan, []) if error is None else self._failed(plan.request, error)
        buffers = plan.ready()
        return None if buffers is None else _answer(plan, buffers)

    async def _wait_for(self, plan: ReadPlan) -> ReadResult:
        try:
            return _answer(plan, await plan.read())
        except LogError as error:
            return self._failed(plan.request, error)

    def _failed(self, request: ReadRequest, error: LogError) -> ReadResult:
        bounds = self._reader.known_bounds(request.stream)
        if bounds is None:
            return ReadResult(error=error)
        return ReadResult(high_watermark=bounds.end, start_offset=bounds.start, error=error)


def _planned(plans: Sequence[ReadPlan | ReadResult], allowed: int) -> int:
    """The bytes that the answer may take. Sizes of compacted files are guessed: they count with the most they
    may give."""
    size = most = 0
    for plan in plans:
        if not isinstance(plan, ReadResult):
            size += plan.size
            most += plan.most
    return max(size, min(most, allowed))


def _without_records(plan: ReadPlan | ReadResult) -> ReadPlan | ReadResult:
    return plan if isinstance(plan, ReadResult) else EmptyPlan(plan.request, plan.bounds)


def _is_worthwhile(results: Sequence[ReadResult | None], waiting: int, min_bytes: int) -> bool:
    """Is the answer large enough without the results that are still waited for?"""
    ready = [result.size for result in results if result is not None and result.size]
    return len(ready) >= waiting and sum(ready) >= min_bytes


def _is_answer(result: ReadResult) -> bool:
    return bool(result.size) or result.error is not None


def _answer(plan: ReadPlan, buffers: list[memoryview]) -> ReadResult:
    if isinstance(plan, TailPlan):
        return ReadResult(buffers, plan.size, plan.bounds.end, plan.bounds.start)
    size = sum([len(buffer) for buffer in buffers])
    result = ReadResult(buffers, size, plan.bounds.end, plan.bounds.start)
    if isinstance(plan, ForeignPlan):
        result.aborted = plan.aborted
    return result


def _keep_to(max_bytes: int, results: Sequence[ReadResult]) -> None:
    """Cut the results to the limit. They may exceed it together where sizes were guessed (compacted files, or
    an object that was compacted since). The last results are cut first; only the first may be too large."""
    remaining = max_bytes
    empty = True
    for result in results:
        buffers = list(result.buffers)
        while buffers and result.size > remaining and not (empty and len(buffers) == 1):
            result.size -= len(buffers.pop())
        if len(buffers) < len(result.buffers):
            result.buffers = buffers
        remaining -= result.size
        empty = empty and not buffers
