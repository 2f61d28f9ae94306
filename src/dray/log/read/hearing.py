"""Hearing from the watches of the domains, and up to when: so that polls need not ask about every stream.

Knowledge of a stream holds up to the time of a mark of its domain, if three things are so. It was read
behind a barrier since the watch has stood: what happened before is not told. Nothing was told of the stream
since its last read began. And the mark was asked for at that time and has come: it comes behind every change
acknowledged before (`tests/model/hearing.py` has what goes wrong without each).

A domain is followed from the first question about one of its streams until none of them is kept in memory,
and while somebody else is to be told of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from functools import partial

import structlog

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.log.read.index_cache import NEVER, IndexCache
from dray.log.stream_store import Barriers
from dray.metadata import keys
from dray.metadata.contract import MARK, MetadataError, MetadataStore

_log = structlog.get_logger(__name__)

_PATIENCE_SECONDS = 2.0
"""For a mark. A watch that does not bring it is begun anew."""

_STANDING_SECONDS = 0.25
"""For a watch that was just begun."""


class FollowedDomain:
    """One domain. `since`: when the watch came to stand; `upto`: all that was acknowledged before is told."""

    __slots__ = ("marks", "since", "stands", "task", "upto")

    def __init__(self) -> None:
        self.since = NEVER
        self.upto = NEVER
        self.stands = asyncio.Event()
        self.marks: dict[str, asyncio.Future[None]] = {}
        self.task: KeptTask | None = None

    def release(self) -> None:
        for mark in self.marks.values():
            if not mark.done():
                mark.cancel()


class Hearing:
    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        domains: int,
        index: IndexCache,
        retry_seconds: float,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._domains = domains
        self._index = index
        self._retry_seconds = retry_seconds
        self._identity = f"{runtime.random.getrandbits(64):x}"
        self._followed: dict[int, FollowedDomain] = {}
        self._marks = Barriers(self._mark)
        self._asked = 0
        self._last = NEVER
        self._is_open = False
        self.on_change: Callable[[int, str], None] = lambda _stream, _part: None
        """Called with a stream and the key of it that changed."""
        self.on_interruption: Callable[[int], None] = lambda _domain: None
        self._kept: frozenset[int] = frozenset()
        self._moved: Callable[[int], None] = lambda _stream: None
        self._doubted: Callable[[int], None] = lambda _domain: None

    def tell(
        self, domains: Iterable[int], moved: Callable[[int], None], doubted: Callable[[int], None]
    ) -> None:
        """Beside the polls: of these domains, from now on, whether anything reads them or not."""
        before, self._kept = self._kept, frozenset(domains)
        self._moved, self._doubted = moved, doubted
        for domain in self._kept ^ before:
            doubted(domain)
        self.follow(sorted(self._kept))

    def start(self) -> None:
        self._is_open = True

    async def stop(self) -> None:
        self._is_open = False
        for domain in list(self._followed):
            await self._leave(domain)

    def now(self) -> float:
        """Of two calls the later one's time is later, however little has passed."""
        self._last = max(self._runtime.monotonic(), math.nextafter(self._last, math.inf))
        return self._last

    def domain(self, stream: int) -> int:
        return keys.domain_of_stream(stream, self._domains)

    def follow(self, domains: Iterable[int]) -> None:
        for domain in domains:
            if self._is_open and domain not in self._followed:
                followed = self._followed[domain] = FollowedDomain()
                following = partial(self._follow, domain, followed)
                followed.task = keep_running(self._runtime, f"follow domain {domain}", following)

    async def leave_unused(self) -> None:
        """Domains of which no stream is kept in memory: what is told of them is of no use."""
        used = {self.domain(stream) for stream in self._index.streams()} | self._kept
        for domain in [domain for domain in self._followed if domain not in used]:
            await self._leave(domain)

    def is_followed(self, stream: int) -> bool:
        """Does the watch of its domain stand?"""
        followed = self._followed.get(self.domain(stream))
        return followed is not None and followed.since != NEVER

    def good_since(self, stream: int) -> float:
        """All that was acknowledged before this time is in what is known of the stream."""
        confirmed = self._index.confirmed(stream)
        followed = self._followed.get(self.domain(stream))
        if followed is None or not NEVER < followed.since <= confirmed or self._index.has_moved(stream):
            return confirmed
        return max(confirmed, followed.upto)

    def may_have_moved(self, stream: int) -> bool:
        """Was something told, or not told, that no read has looked into since?"""
        followed = self._followed.get(self.domain(stream))
        if followed is not None and self._index.confirmed(stream) < followed.since:
            return True
        return self._index.has_moved(stream)

    def may_tell(self, stream: int) -> bool:
        """Might a mark settle what is known of the stream?"""
        followed = self._followed.get(self.domain(stream))
        if followed is None:
            return False
        return followed.since <= self._index.confirmed(stream) and not self._index.has_moved(stream)

    async def hear(self, domain: int, since: float) -> None:
        """Until all is told that was acknowledged before that time, or it is clear that a watch does not
        say so: then every stream has to be asked about."""
        followed = self._followed.get(domain)
        if followed is None or followed.upto >= since:
            return
        if followed.since == NEVER:
            await self._stand(followed)
        else:
            await self._marks.wait(domain)

    async def _stand(self, followed: FollowedDomain) -> None:
        """Once, and not for long: what is asked before the watch stands has to be asked again."""
        if followed.stands.is_set():
            return
        try:
            async with asyncio.timeout(_STANDING_SECONDS):
                await followed.stands.wait()
        except TimeoutError:
            followed.stands.set()

    async def _mark(self, domain: int) -> None:
        followed = self._followed.get(domain)
        if followed is None or followed.since == NEVER:
            return
        self._asked += 1
        name = f"{MARK}{self._identity}{self._asked}"
        asked, since = self.now(), followed.since
        came = followed.marks[name] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._store.mark(domain, name)
                await asyncio.wait([came])
        except (MetadataError, TimeoutError) as error:
            _log.debug("a watch does not say how far it has told", domain=domain, error=repr(error))
            if isinstance(error, TimeoutError) and followed.since == since:
                await self._leave(domain)
                self.follow([domain])
        else:
            if not came.cancelled():
                followed.upto = max(followed.upto, asked)
        finally:
            del followed.marks[name]

    # --- following

    async def _follow(self, domain: int, followed: FollowedDomain) -> None:
        while True:
            try:
                async for change in self._store.watch(domain, keys.WATCHED):
                    self._told(domain, followed, change.key)
            except MetadataError as error:
                _log.warning("watch interrupted", domain=domain, error=str(error))
            finally:
                followed.since = NEVER
                followed.release()
            await self._runtime.sleep(self._retry_seconds)

    def _told(self, domain: int, followed: FollowedDomain, key: str | None) -> None:
        if key is None:
            followed.since = self.now()
            followed.stands.set()
            followed.release()
            self.on_interruption(domain)
            self._doubted(domain)
        elif key.startswith(MARK):
            mark = followed.marks.get(key)
            if mark is not None and not mark.done():
                mark.set_result(None)
        else:
            stream, part = keys.part_of_stream(key)
            self._index.moved(stream)
            self.on_change(stream, part)
            self._moved(stream)

    async def _leave(self, domain: int) -> None:
        followed = self._followed.pop(domain)
        followed.since = NEVER
        followed.stands.set()
        followed.release()
        if followed.task is not None:
            await followed.task.stop()
