"""Topics that somebody asked to have compacted now, and how far each of them is.

Only records count that were in the log when a compactor took the request up: records that come later wait for
their age as ever, or a topic that is written to all the time would never be done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from dray.base.runtime import Runtime
from dray.broker.topics.compaction_requests import CompactionRequest, CompactionRequests, RequestState
from dray.broker.topics.model import Topic
from dray.log.stream_store import StreamStore, StreamView, Versioned
from dray.metadata.contract import MetadataError
from dray.tables.compaction.summary import CycleSummary

_log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 2.0
"""How often a compactor that rests looks for requests."""
GIVEN_UP_MS: Final = 3_600_000
"""A request that is not done by then has failed: its reason is the last that was seen."""
REMEMBERED_MS: Final = 3_600_000
"""How long the end of a request can be read."""
_TAKEOVER_SECONDS: Final = 60.0


def compacted_end(view: StreamView) -> int:
    """Up to which offset the records of a stream are in files."""
    for entry in view.split()[0]:
        if not entry.value.is_parquet:
            return entry.value.start
    head = view.high_watermark.value.head
    return view.high_watermark.value.end if head is None else head.start


@dataclass(slots=True)
class _Asked:
    """A request that this compactor sees to."""

    topic: Topic
    request: Versioned[CompactionRequest]
    ends: dict[int, int]
    """By stream, up to where; without those that are done."""


class AskedTopics:
    def __init__(
        self, requests: CompactionRequests, streams: StreamStore, runtime: Runtime, owner: str
    ) -> None:
        self._requests = requests
        self._streams = streams
        self._runtime = runtime
        self._owner = owner
        self._asked: dict[str, _Asked] = {}
        self._wanted: dict[int, int] = {}
        self._fresh: set[int] = set()
        # On our own clock: when another compactor's request was first seen at its version.
        self._since: dict[tuple[str, int], float] = {}

    @property
    def is_open(self) -> bool:
        """Is anything left to do of what this compactor took up?"""
        return bool(self._wanted)

    def wants(self, stream: int) -> bool:
        """Is the stream to be compacted, whatever the age of its records?"""
        return stream in self._wanted

    def is_fresh(self, stream: int) -> bool:
        """Was it asked for since this was last asked? Then it is tried, even if it was set aside."""
        fresh = stream in self._fresh
        self._fresh.discard(stream)
        return fresh

    def saw(self, stream: int, view: StreamView) -> None:
        wanted = self._wanted.get(stream)
        if wanted is not None and compacted_end(view) >= wanted:
            del self._wanted[stream]

    async def has_new(self) -> bool:
        """Does a request wait that no compactor sees to?"""
        with suppress(MetadataError):
            return any(self._may_take(*each) for each in (await self._requests.all()).items())
        return False

    async def take(self, topics: Sequence[Topic]) -> None:
        """Take up the requests that wait."""
        known = {topic.name: topic for topic in topics}
        found = await self._requests.all()
        self._asked = {name: asked for name, asked in self._asked.items() if name in found}
        self._since = {
            (name, request.version): self._since.get((name, request.version), self._runtime.monotonic())
            for name, request in found.items()
        }
        for name, request in found.items():
            topic = known.get(name)
            if not request.value.state.is_open:
                if self._runtime.wall_ms() - request.value.moved_ms > REMEMBERED_MS:
                    await self._requests.forget(name, request)
            elif topic is None or topic.topic_id != request.value.topic_id:
                await self._requests.move(
                    name, request, RequestState.FAILED, why="the topic is gone, or cannot be read"
                )
            elif self._may_take(name, request):
                await self._begin(topic, request)
        self._wanted = {stream: end for asked in self._asked.values() for stream, end in asked.ends.items()}
        self._fresh &= self._wanted.keys()

    def _may_take(self, name: str, request: Versioned[CompactionRequest]) -> bool:
        if name in self._asked:
            return False
        if request.value.state is RequestState.WAITING:
            return True
        now = self._runtime.monotonic()
        still = now - self._since.get((name, request.version), now)
        return request.value.state is RequestState.RUNNING and still >= _TAKEOVER_SECONDS

    async def _begin(self, topic: Topic, request: Versioned[CompactionRequest]) -> None:
        ends: dict[int, int] = {}
        for stream in topic.streams:
            view = await self._streams.view(stream)
            if view is not None and compacted_end(view) < view.high_watermark.value.end:
                ends[stream] = view.high_watermark.value.end
        moved = await self._requests.move(
            topic.name,
            request,
            RequestState.RUNNING,
            owner=self._owner,
            partitions=len(topic.streams),
            done=len(topic.streams) - len(ends),
        )
        if moved is not None:
            _log.info("a topic is compacted since it was asked for", topic=topic.name, partitions=len(ends))
            self._asked[topic.name] = _Asked(topic, moved, ends)
            self._fresh.update(ends)

    async def report(self, summary: CycleSummary) -> None:
        """Say how far each is."""
        reasons: dict[str, str] = {}
        for trouble in summary.troubles:
            reasons.setdefault(trouble.topic, trouble.reason)
        for name, asked in list(self._asked.items()):
            left = {stream: end for stream, end in asked.ends.items() if stream in self._wanted}
            await self._report(name, asked, left, reasons)

    async def _report(
        self, name: str, asked: _Asked, left: dict[int, int], reasons: Mapping[str, str]
    ) -> None:
        why = reasons.get(name, "")
        late = self._runtime.wall_ms() - asked.request.value.asked_ms > GIVEN_UP_MS
        state = RequestState.RUNNING if left else RequestState.DONE
        if left and late:
            state = RequestState.FAILED
            why = why or "it was not done within an hour"
        if state is RequestState.RUNNING and left == asked.ends and why == asked.request.value.why:
            return
        done = asked.request.value.partitions - len(left)
        moved = await self._requests.move(name, asked.request, state, done=done, why=why)
        if moved is None or not state.is_open:
            del self._asked[name]
            for stream in asked.ends:
                self._wanted.pop(stream, None)
            return
        asked.request, asked.ends = moved, left
