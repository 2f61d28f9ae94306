"""Fetching from several streams at once, with Kafka's byte limits and its long poll.

Sizes are planned from the index first, then all bytes are read side by side. A poll that finds too little
waits for a wake-up: a local commit, or a watch's hint of another broker's. A missing wake-up proves nothing,
so an answer without records is given only once it is certain that what is known of each stream is no older
than the fetch. One mark per domain says so of all its streams, and for every poll that began before it was
asked for (`hearing.py`). A stream of which it does not say so is asked about itself.

A fetch does not use a start that is older than `bounds_seconds`: records that another broker deleted are
served for no longer. The domain is asked in the background when half of that has passed, and waited for when
all of it has; where it does not answer, the read is refused.

A plan holds no more than the caller has room for, except that it always holds one batch: that batch waits for
its room. A poll that gets no room in time is answered without records, and the client asks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.base.runtime import AnswerRoom, Runtime, gather_some, run_once
from dray.log.observer import LogObserver
from dray.log.read.hearing import Hearing
from dray.log.read.plans import EmptyPlan, OutsidePlan, ParquetPlan, ReadPlan, TailPlan
from dray.log.read.reader import StreamReader
from dray.log.read.waiting import PatientReads, Waiter, Wakeups
from dray.log.types import LogError, ReadRequest, ReadResult
from dray.metadata import keys

# Of a stream at its end something is certain at least this often, even without a hint.
_DOUBT_SECONDS = 1.0
_PLANNED_AT_ONCE = 512
# There are records, but no memory for them: even a fetch with no wait time waits this long for memory.
_ROOM_SECONDS = 1.0
_SMALLER_PLANS = 3
_DECODED = (ParquetPlan, OutsidePlan)


class Poller:
    def __init__(
        self,
        hearing: Hearing,
        reader: StreamReader,
        runtime: Runtime,
        wakeups: Wakeups,
        observer: LogObserver,
        bounds_seconds: float,
    ) -> None:
        self._hearing = hearing
        self._reader = reader
        self._runtime = runtime
        self._wakeups = wakeups
        self._observer = observer
        self._bounds_seconds = bounds_seconds
        self._confirming: set[int] = set()  # domains
        hearing.on_change = self._changed
        hearing.on_interruption = self._interrupted

    async def fetch(
        self,
        requests: Sequence[ReadRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: AnswerRoom,
    ) -> list[ReadResult]:
        began = self._hearing.now()
        self._hearing.follow({self._hearing.domain(request.stream) for request in requests})
        with self._wakeups.waiting(request.stream for request in requests) as waiter:
            # A fetch with `min_bytes` 0 does not wait for records. But even it says "no records" only when
            # that is certain.
            at_once = min_bytes <= 0
            started = self._runtime.monotonic()
            deadline = started if at_once else started + max_wait_ms / 1000
            room_deadline = max(deadline, started + _ROOM_SECONDS)
            min_bytes = max(min_bytes, 1)
            slept = 0.0
            refused = 0
            doubted = began  # older knowledge is uncertain where no watch stands
            asked = looked = False
            unheard = await self._ask_doubtful(requests, began)
            plans = _Plans(len(requests))
            while True:
                allowed = min(max_bytes, room.most())
                await self._plan(requests, plans, waiter.take(), allowed, unheard)
                enough = plans.failed or plans.size >= min(min_bytes, max(allowed, 1))
                remaining = 0.0 if enough else deadline - self._runtime.monotonic()
                if remaining <= 0 and not (enough or asked or (at_once and unheard)):
                    unheard = await self._ask(requests, began, doubted)
                    plans.outdated |= unheard.keys()
                    asked = True
                    continue
                if remaining <= 0:
                    size = _planned(plans.found, allowed)
                    if room.take(size):
                        break
                    remaining = room_deadline - self._runtime.monotonic()
                    if remaining <= 0:
                        plans.found = [_without_records(plan) for plan in plans.found]
                        break
                    refused += 1
                    if (
                        size > allowed or refused > _SMALLER_PLANS
                    ):  # one large batch; or others are always faster
                        slept += await self._wait_for_room(room, size, remaining)
                        unheard |= await self._ask_outdated(requests)
                    continue
                if not looked:
                    looked = True
                    await self._look(requests)
                    continue
                slept += await self._wait(waiter, remaining)
                asked = False
                doubted = self._hearing.now()
                grown = [request for request in requests if request.stream in waiter.woken]
                unheard |= await self._ask_outdated(grown if plans.are_empty else requests)
            if plans.are_empty and not unheard:
                results = _nothing(plans.found)
            else:
                results = await self._read(plans.found, unheard, min_bytes)
                _keep_to(allowed, results)
        self._observer.fetched(self._runtime.monotonic() - started - slept)
        return results

    async def _wait(self, waiter: Waiter, seconds: float) -> float:
        """How long it took."""
        began = self._runtime.monotonic()
        self._observer.polling(self._wakeups.count + 1)
        try:
            await self._wakeups.sleep(waiter, seconds)
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
        self,
        requests: Sequence[ReadRequest],
        plans: _Plans,
        woken: set[int],
        max_bytes: int,
        unheard: dict[int, LogError],
    ) -> None:
        """All of them; or, where nothing was found in any, only those whose streams have grown since."""
        places = self._reader.order(requests)
        if plans.are_empty:
            woken |= plans.outdated
            places = [place for place in places if requests[place].stream in woken]
        plans.size, plans.failed, plans.outdated = 0, False, set()
        oldest = self._runtime.monotonic() - self._bounds_seconds
        remaining = max_bytes
        room: dict[str | None, int] = {}
        for count, place in enumerate(places, 1):
            request = requests[place]
            found: ReadPlan | ReadResult
            if request.stream in unheard and self._hearing.good_since(request.stream) < oldest:
                # Records of the stream may have been deleted since. (For all other streams the store was just
                # asked.)
                found = self._failed(request, unheard[request.stream])
            else:
                found = await self._plan_one(request, remaining, room, empty=plans.size == 0)
            plans.put(place, found)
            remaining = max_bytes - plans.size
            if count % _PLANNED_AT_ONCE == 0:
                await self._runtime.sleep(0)  # a fetch may be of ten thousand partitions

    async def _plan_one(
        self, request: ReadRequest, limit: int, room: dict[str | None, int], *, empty: bool
    ) -> ReadPlan | ReadResult:
        try:
            plan = await self._reader.plan(request, limit, at_least_one=empty)
        except LogError as error:
            return self._failed(request, error)
        if type(plan) is not TailPlan and isinstance(plan, _DECODED):
            # Only as many streams at once as have their row groups, pieces and chunks stay in memory.
            # With more, each would be decoded again for every part of it.
            where = plan.decoded_where
            room[where] = room.get(where, plan.decoded_room) - plan.decoded_bytes
            if room[where] < 0 and not empty:
                return EmptyPlan(request, plan.bounds)
        return plan

    # --- asking the store

    async def _ask_doubtful(self, requests: Sequence[ReadRequest], now: float) -> dict[int, LogError]:
        """Ask about streams that seem at their end and of which nothing was certain lately, and about those
        whose bounds are outdated. Gives back the streams that the store did not answer about."""
        doubtful = []
        for request in requests:
            stream = request.stream
            bounds = self._reader.known_bounds(stream)
            age = now - self._hearing.good_since(stream)
            if (
                bounds is None
                or age > self._bounds_seconds
                or (
                    request.offset >= bounds.end
                    and (
                        age > _DOUBT_SECONDS
                        or self._reader.is_unanswered(stream)
                        or self._hearing.may_have_moved(stream)
                    )
                )
            ):
                doubtful.append(request)
            elif 2 * age > self._bounds_seconds:
                self._confirm_soon(stream)
        return await self._ask(doubtful, now, now) if doubtful else {}

    async def _ask_outdated(self, requests: Sequence[ReadRequest]) -> dict[int, LogError]:
        """After a wait: ask about the streams whose bounds are too old by now."""
        oldest = self._runtime.monotonic() - self._bounds_seconds
        outdated = [request for request in requests if self._hearing.good_since(request.stream) < oldest]
        return await self._ask(outdated, oldest, oldest) if outdated else {}

    async def _ask(
        self, requests: Sequence[ReadRequest], since: float, unfollowed_since: float
    ) -> dict[int, LogError]:
        """Until all that was acknowledged before `since` is known, by one question per domain, or per stream
        where that does not say it. Gives back the streams without an answer: those cannot be said to have no
        records."""
        behind = self._behind(requests, since, unfollowed_since)
        domains = {self._hearing.domain(stream) for stream in behind if self._hearing.may_tell(stream)}
        if domains:
            await gather_some(self._hearing.hear(domain, since) for domain in domains)
            behind = self._behind(requests, since, unfollowed_since)
        answers = await gather_some(
            (self._reader.refresh(stream, barrier=True) for stream in behind), return_exceptions=True
        )
        unheard: dict[int, LogError] = {}
        for stream, answer in zip(behind, answers, strict=True):
            if isinstance(answer, LogError):
                unheard[stream] = answer
            elif isinstance(answer, BaseException):
                raise answer
        return unheard

    def _behind(self, requests: Sequence[ReadRequest], since: float, unfollowed_since: float) -> list[int]:
        """Streams of which something may have been acknowledged, before that, that is not known here."""
        hearing, reader = self._hearing, self._reader
        streams = [request.stream for request in requests]
        return [
            stream
            for stream in streams
            if hearing.good_since(stream) < (since if hearing.is_followed(stream) else unfollowed_since)
            or reader.is_unanswered(stream)
        ]

    async def _look(self, requests: Sequence[ReadRequest]) -> None:
        """Read anew what was told to have moved while no poll waited for it."""
        moved = [request.stream for request in requests if self._hearing.may_have_moved(request.stream)]
        await gather_some(self._refresh_and_wake(stream) for stream in moved)

    def _confirm_soon(self, stream: int) -> None:
        """Ask in the background, so that no fetch has to wait for it."""
        domain = self._hearing.domain(stream)
        if domain not in self._confirming:
            self._confirming.add(domain)
            run_once(self._runtime, "confirm bounds", self._confirm, domain, stream)

    async def _confirm(self, domain: int, stream: int) -> None:
        """A failure here the next fetch meets itself, or it uses bounds that are still good."""
        now = self._hearing.now()
        try:
            await self._ask([ReadRequest(stream, 0, 0)], now, now)
        finally:
            self._confirming.discard(domain)

    # --- following other brokers

    def _changed(self, stream: int, part: str) -> None:
        """Wake the polls of a stream that grew. Doubt what is known of one whose start was raised, and forget
        what is in memory of one that was cleaned."""
        if part == keys.START:
            self._reader.doubt_start(stream)
        elif part == keys.CLEANED:
            self._reader.forget_cleaned(stream)
        elif part == keys.HIGH_WATERMARK and self._wakeups.waits(stream):
            self._hinted(stream)

    def _interrupted(self, domain: int) -> None:
        for stream in self._wakeups.streams():
            if self._hearing.domain(stream) == domain:
                self._hinted(stream)

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
            if not isinstance(plan, ReadResult) and not self._reader.is_failing(plan.request.stream):
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
            slow = [(place, plan) for place, plan in waiting if self._may_take_long(plan)]
            patient = PatientReads([self._wait_for(plan) for _, plan in slow], _is_answer)
            own = [(place, plan) for place, plan in waiting if not self._may_take_long(plan)]
            try:
                found = await gather_some(self._wait_for(plan) for _, plan in own)
                for (place, _), result in zip(own, found, strict=True):
                    results[place] = result
                if slow:
                    beside = any(result is not None and _is_answer(result) for result in results)
                    came = await patient.results(beside=beside)
                    for (place, plan), late in zip(slow, came, strict=True):
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
        if buffers is None:
            return None
        if self._reader.is_failing(plan.request.stream):
            self._reader.read_ended(plan.request.stream, failed=False)
        return _answer(plan, buffers)

    def _may_take_long(self, plan: ReadPlan) -> bool:
        """Then nothing else of the answer waits for it."""
        return isinstance(plan, OutsidePlan) or self._reader.is_failing(plan.request.stream)

    async def _wait_for(self, plan: ReadPlan) -> ReadResult:
        try:
            result = _answer(plan, await plan.read())
        except LogError as error:
            self._reader.read_ended(plan.request.stream, failed=True)
            return self._failed(plan.request, error)
        self._reader.read_ended(plan.request.stream, failed=False)
        return result

    def _failed(self, request: ReadRequest, error: LogError) -> ReadResult:
        bounds = self._reader.known_bounds(request.stream)
        if bounds is None:
            return ReadResult(error=error)
        return ReadResult(high_watermark=bounds.end, start_offset=bounds.start, error=error)


class _Plans:
    """The plans of one fetch. `size` and `failed`: of those that were made last; all others are empty."""

    __slots__ = ("_left", "failed", "found", "outdated", "size")

    def __init__(self, count: int) -> None:
        self.found: list[ReadPlan | ReadResult] = [ReadResult()] * count
        self._left = count  # not planned yet
        self.size = 0
        self.failed = False
        self.outdated: set[int] = set()
        """Streams that have to be planned again though they did not grow."""

    @property
    def are_empty(self) -> bool:
        return not (self._left or self.size or self.failed)

    def put(self, place: int, plan: ReadPlan | ReadResult) -> None:
        self._left = max(self._left - 1, 0)
        self.found[place] = plan
        if isinstance(plan, ReadResult):
            self.failed = True
        else:
            self.size += plan.size


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


def _nothing(plans: Sequence[ReadPlan | ReadResult]) -> list[ReadResult]:
    """Of plans of nothing: there is nothing to read, and nothing to cut."""
    return [
        plan if isinstance(plan, ReadResult) else ReadResult([], 0, plan.bounds.end, plan.bounds.start)
        for plan in plans
    ]


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
    if isinstance(plan, OutsidePlan):
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
