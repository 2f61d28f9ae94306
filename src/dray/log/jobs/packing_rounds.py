"""When packs are made: the streams of a domain that have carried for long enough, or too much.

Beside a compactor there is hardly ever anything to pack: it takes carried entries as they are. Entries that
others have carried, or this broker in an earlier life, are found by the hints (`carried_hints.py`), by the
broker that looks after the domain: all of them when it starts, some in each round, and later those that
nobody seems to take care of. While carrying is off, every broker follows every hint at once, and heads are
packed too: so all that is carried leaves the metadata store, and an older build can follow.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import structlog

from dray.base.runtime import Runtime, gather_some
from dray.log.append.carried_hints import check_hint
from dray.log.append.carry import CarriedBacklog
from dray.log.jobs.packing import Packer
from dray.log.observer import LogObserver
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import Delete, MetadataError, StoredValue
from dray.metadata.values import UnreadableValue
from dray.objects.contract import ObjectError

_log = structlog.get_logger(__name__)

_PAGE: Final = 256
_LOOKS: Final = 32  # side by side
_TAKEN_IN: Final = 256  # of one round, after a start
_MOST_PACKS: Final = 8  # of one round
_HINTS_EVERY: Final = 60.0
# After a pack that the object store did not take: a try costs the metadata store more than many appends do.
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


class PackingRounds:
    """Of one domain."""

    def __init__(
        self,
        domain: int,
        store: StreamStore,
        runtime: Runtime,
        packer: Packer,
        backlog: CarriedBacklog,
        observer: LogObserver | None = None,
    ) -> None:
        self.is_carrying = False
        self._domain = domain
        self._store = store
        self._runtime = runtime
        self._packer = packer
        self._backlog = backlog
        self._observer = observer or LogObserver()
        self._seen: dict[int, tuple[int, float]] = {}  # hints: their version, and since when it stands
        self._standing = backlog.limits.standing_seconds
        self._hints_every = min(_HINTS_EVERY, self._standing)
        self._next_hints = 0.0
        self._pause = 0.0  # while the object store is away
        self._next_packs = 0.0
        self._untaken: dict[int, StoredValue] = {}  # hints from before the start that were not followed yet

    async def run(self, *, follows: bool = True) -> None:
        """One round. `follows`: this broker looks after the domain. Raises the errors of the metadata
        store."""
        now = self._runtime.monotonic()
        if not self.is_carrying or (follows and now >= self._next_hints):
            await self._follow_hints(now)
            self._next_hints = now + self._hints_every
        if follows:
            await self._take_some(_TAKEN_IN)
        if now >= self._next_packs:
            try:
                await self._pack(now)
                self._pause = 0.0
            except ObjectError as error:
                self._say_away(error)
                self._pause = min(max(_FIRST_PAUSE, 2 * self._pause), _LONGEST_PAUSE)
                self._next_packs = self._runtime.monotonic() + self._pause
        self._observe()

    async def _pack(self, now: float) -> None:
        """Until nothing is due that a pack could change. If entries of a stream do not adjoin, since objects
        lie between them, each run takes a pack of its own: so those of one round are bounded."""
        for _ in range(_MOST_PACKS):
            due = list(self._backlog) if not self.is_carrying else self._backlog.due(now)
            old = [stream for stream in due if not self.is_carrying or self._backlog.is_old(stream, now)]
            young = [stream for stream in due if stream not in set(old)]
            packed = await self._packer.pack(old, heads=True) if old else 0
            packed += await self._packer.pack(young) if young else 0
            if not packed:
                return

    def _say_away(self, error: ObjectError) -> None:
        """Once, until it is back: small appends go on, as far as the bound lets them."""
        say = _log.debug if self._pause else _log.warning
        say(
            "carried entries are not packed: small appends go on as far as their bound",
            domain=self._domain,
            carried_bytes=self._backlog.size,
            error=str(error),
        )

    def _observe(self) -> None:
        oldest = self._backlog.oldest()
        age = 0.0 if oldest is None else self._runtime.monotonic() - oldest
        self._observer.backlog(self._domain, self._backlog.size, age)

    # --- what others have carried

    async def take_in(self) -> None:
        """Find what is carried already, by whomever: so it counts against the bound, and is packed in time.
        A little of it is looked at now, and some in each round. Raises the errors of the metadata store."""
        self._untaken = await self._hints()
        await self._take_some(_LOOKS)
        self._observe()

    async def _take_some(self, most: int) -> None:
        some = dict(islice(self._untaken.items(), most))
        await self._look_at(some, forget=False)
        for stream in some:
            del self._untaken[stream]

    async def _follow_hints(self, now: float) -> None:
        """Look at streams whose hint stands and is not renewed."""
        standing = self._standing if self.is_carrying else 0.0
        hints = await self._hints()
        for stream, record in hints.items():
            version, since = self._seen.get(stream, (record.version, now))
            self._seen[stream] = record.version, since if version == record.version else now
        self._seen = {stream: self._seen[stream] for stream in hints}
        due = {stream: hints[stream] for stream, (_, since) in self._seen.items() if now - since >= standing}
        await self._look_at(due, forget=True)

    async def _hints(self) -> dict[int, StoredValue]:
        found: dict[int, StoredValue] = {}
        async for page in self._store.pages_in(self._domain, keys.CARRIED, _PAGE):
            for record in page:
                stream = keys.stream_of_carried_hint(record.key)
                if stream is not None:
                    found[stream] = record
        return found

    async def _look_at(self, hints: dict[int, StoredValue], *, forget: bool) -> None:
        """`forget`: hints at streams that carry nothing go."""
        await gather_some((self._look(*hint, forget) for hint in list(hints.items())), _LOOKS)

    async def _look(self, stream: int, hint: StoredValue, forget: bool) -> None:
        try:
            check_hint(hint.value)
            if await self._packer.look(stream) == 0 and forget:
                await self._forget(stream, hint)
        except UnreadableValue as error:
            _log.error("a hint at carried entries is left", stream=stream, error=str(error))
        except MetadataError as error:
            _log.debug("a hint at carried entries is left for later", stream=stream, error=str(error))

    async def _forget(self, stream: int, hint: StoredValue) -> None:
        """Delete a hint that was read before. The order is a rule: `carried_hints.py` says why."""
        if await self._seal(stream) and await self._packer.look(stream) == 0:
            await self._store.write_in(self._domain, [Delete(hint.key, hint.version)])

    async def _seal(self, stream: int) -> bool:
        """True if it was this seal that moved the version, and no commit of a broker that knows the hint."""
        found = await self._store.high_watermark(stream)
        if found is None or found.value.closed:
            return True
        sealed = self._store.advance(stream, found, found.value.sealed())
        [outcome, *_] = await self._store.write(stream, sealed)
        return outcome.applied
