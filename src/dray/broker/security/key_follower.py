"""A family of keys that every broker keeps in memory: read whole at the start, followed by a watch, and
re-read now and then, since a watch is a hint.

While the store is away, what was read last stays in force. A read of everything goes page by page, and
applies only what changed: 100,000 keys must not hold up the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dray.base.runtime import Runtime
from dray.metadata import keys
from dray.metadata.contract import MetadataStore, StoredValue
from dray.metadata.watching import Follower


class SecurityUnavailable(Exception):
    """The metadata store failed, or holds a value that this build cannot read. The change may have been
    made."""


REREAD_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 1.0
KNOWN_WITHIN: Final = REREAD_SECONDS + 5.0
"""By when every broker that reaches the store knows of a change, if no watch said so: what docs and the
simulation hold it to. The seconds more are for reads that are slow, or fail and are made again."""

_PAGE: Final = 1000


class KeyFollower:
    """`learn` is called with every value that is new, `forget` with every key that is gone. `learn` itself
    handles a value that it cannot read: such a key is never reported as gone."""

    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        prefix: str,
        *,
        learn: Callable[[str, bytes], None],
        forget: Callable[[str], None],
        together: Callable[[str], Sequence[str]] = lambda key: (key,),
    ) -> None:
        """`together`: the keys that mean something as a whole with this one, in order. They are read as they
        stood at one moment."""
        self._store = store
        self._runtime = runtime
        self._prefix = prefix
        self._learn = learn
        self._forget = forget
        self._together = together
        self._versions: dict[str, int] = {}
        self._reading = asyncio.Lock()  # so that no read undoes what a later one found
        self._follower = Follower(
            store,
            runtime,
            keys.CLUSTER_DOMAIN,
            prefix,
            read_all=self.read_all,
            read_key=self.read_key,
            interval=REREAD_SECONDS,
            reread=self._read_all_anew,
            retry=RETRY_SECONDS,
        )

    async def start(self) -> None:
        """Reads everything. Raises `MetadataError`: a broker does not start with rights that it only
        guesses."""
        await self._read_all_anew()
        self._follower.start()

    async def stop(self) -> None:
        await self._follower.stop()

    async def _read_all_anew(self) -> None:
        """Behind a barrier: a replica that is behind must not keep a right alive that was taken."""
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        await self.read_all()

    async def read_all(self) -> None:
        async with self._reading:
            missing = dict.fromkeys(self._versions)
            start, end = self._prefix, keys.prefix_end(self._prefix)
            while True:
                page = await self._store.scan(keys.CLUSTER_DOMAIN, start, end, _PAGE)
                for record in page:
                    missing.pop(record.key, None)
                    self._take(record)
                if len(page) < _PAGE:
                    break
                start = _above(page[-1].key)
                await self._runtime.sleep(0)
            for key in missing:
                self._drop(key)

    async def read_key(self, key: str) -> None:
        async with self._reading:
            wanted = self._together(key)
            found = await self._store.scan(keys.CLUSTER_DOMAIN, wanted[0], _above(wanted[-1]))
            for record in found:
                self._take(record)
            for gone in set(wanted).difference(record.key for record in found):
                self._drop(gone)

    async def read_keys(self, changed: Iterable[str]) -> None:
        """Read keys that this broker just wrote, so that it knows them before it answers."""
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        for key in changed:
            await self.read_key(key)

    def version_of(self, key: str) -> int | None:
        """As it was read last."""
        return self._versions.get(key)

    def _take(self, record: StoredValue) -> None:
        if self._versions.get(record.key) != record.version:
            self._learn(record.key, record.value)
            self._versions[record.key] = record.version

    def _drop(self, key: str) -> None:
        if self._versions.pop(key, None) is not None:
            self._forget(key)


def _above(key: str) -> str:
    """Above this key, and below any other: names have no such character."""
    return key + "!"
