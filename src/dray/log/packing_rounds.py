"""When packs are made: the streams of a domain that have carried for long enough, or too much.

Beside a compactor there is hardly ever anything to pack: it takes carried entries as they are. What a broker
that is gone has carried is found by the hints (`carried_hints.py`). While carrying is off, every hint is
followed at once, and heads are packed too: so all that is carried leaves the metadata store, and an older
build can follow.
"""

from __future__ import annotations

from typing import Final

import structlog

from dray.log.carried_hints import STANDING_SECONDS, check_hint
from dray.log.carry import CarriedBacklog
from dray.log.observer import LogObserver
from dray.log.packing import Packer
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import Delete, MetadataError, StoredValue
from dray.metadata.values import UnreadableValue
from dray.objects.contract import ObjectError
from dray.runtime import Runtime

_log = structlog.get_logger(__name__)

_PAGE: Final = 256
_MOST_PACKS: Final = 64  # of one round
_HINTS_EVERY: Final = 60.0


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
        self._next_hints = 0.0
        self._says_away = False

    async def run(self) -> None:
        """One round. Raises the errors of the metadata store."""
        now = self._runtime.monotonic()
        if now >= self._next_hints or not self.is_carrying:
            await self._follow_hints(now)
            self._next_hints = now + _HINTS_EVERY
        try:
            await self._pack(now)
            self._says_away = False
        except ObjectError as error:
            self._say_away(error)
        self._observe()

    async def _pack(self, now: float) -> None:
        """Until nothing is due that a pack could change."""
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
        say = _log.debug if self._says_away else _log.warning
        say(
            "carried entries are not packed: small appends go on as far as their bound",
            domain=self._domain,
            carried_bytes=self._backlog.size,
            error=str(error),
        )
        self._says_away = True

    def _observe(self) -> None:
        oldest = self._backlog.oldest()
        age = 0.0 if oldest is None else self._runtime.monotonic() - oldest
        self._observer.backlog(self._domain, self._backlog.size, age)

    # --- what others have carried

    async def _follow_hints(self, now: float) -> None:
        """Look at streams whose hint stands and is not renewed. A hint goes once its stream carries nothing,
        at the version at which it stood: one that was renewed meanwhile stays."""
        standing = STANDING_SECONDS if self.is_carrying else 0.0
        seen: dict[int, tuple[int, float]] = {}
        async for page in self._store.pages_in(self._domain, keys.CARRIED, _PAGE):
            for record in page:
                stream = keys.stream_of_carried_hint(record.key)
                if stream is None:
                    continue
                version, since = self._seen.get(stream, (record.version, now))
                seen[stream] = record.version, since if version == record.version else now
                if now - seen[stream][1] >= standing:
                    await self._look(stream, record)
        self._seen = seen

    async def _look(self, stream: int, record: StoredValue) -> None:
        try:
            check_hint(record.value)
            if await self._packer.look(stream) == 0:
                await self._store.write_in(self._domain, [Delete(record.key, record.version)])
        except UnreadableValue as error:
            _log.error("a hint at carried entries is left", stream=stream, error=str(error))
        except MetadataError as error:
            _log.warning("a hint at carried entries is left for later", stream=stream, error=str(error))
