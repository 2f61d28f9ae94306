"""Which streams may have changed, as the store's watches tell.

A watch is a hint and may fall silent, so nothing rests on it but the question whether to look. Where a domain
is not followed, or its watch was interrupted, each of its streams is *in doubt*: whoever wants to know asks.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import structlog

from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import MetadataError
from dray.runtime import KeptTask, Runtime, keep_running

_log = structlog.get_logger(__name__)

ABOVE_ALL: Final = 2**63
_PAUSE_SECONDS: Final = 1.0


class Hints:
    def __init__(self, store: StreamStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._changed: dict[int, int] = {}  # by stream: the least end of an index entry that changed
        self._following: set[int] = set()  # domains whose watch is in place
        self._interrupted: set[int] = set()
        self._tasks: list[KeptTask] = []

    def start(self) -> None:
        self._tasks = [
            keep_running(self._runtime, f"compaction hints {domain}", partial(self._follow, domain))
            for domain in range(self._store.domains)
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            await task.stop()
        self._tasks = []

    def take(self) -> tuple[dict[int, int], set[int]]:
        """What came since the last time: streams that changed, each with the offset from which on its index
        did, and domains whose streams are all in doubt. To be taken *before* a barrier: what is read behind
        the barrier is then newer than every hint taken here, and later hints wait for the next time."""
        changed, self._changed = self._changed, {}
        doubtful = self._interrupted | (set(range(self._store.domains)) - self._following)
        self._interrupted = set()
        return changed, doubtful

    async def _follow(self, domain: int) -> None:
        while True:
            try:
                async for change in self._store.store.watch(domain):
                    if change.key is None:
                        self._following.add(domain)
                        self._interrupted.add(domain)
                    else:
                        self._hear(change.key)
            except MetadataError as error:
                _log.warning("a watch was interrupted", domain=domain, error=str(error))
            finally:
                self._following.discard(domain)
            await self._runtime.sleep(_PAUSE_SECONDS)

    def _hear(self, key: str) -> None:
        stream = keys.stream_of(key)
        if stream is None:
            return
        end = keys.end_of_index_entry(key)
        known = self._changed.get(stream, ABOVE_ALL)
        self._changed[stream] = known if end is None else min(end, known)
