"""One round of a compactor: what is under way in it, and how it goes about many streams at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import structlog

from dray.base.runtime import BackgroundTasks
from dray.broker.topics.model import Topic
from dray.log.types import LogError
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError
from dray.tables.compaction.model import Unit
from dray.tables.compaction.planning.ahead import StreamAhead
from dray.tables.compaction.saga import RunningJob
from dray.tables.compaction.summary import Cause, CycleSummary, StalledStream
from dray.tables.contract import TablesError

_log = structlog.get_logger(__name__)

T = TypeVar("T")

# Errors that a stream, a table or an object may meet when a store fails. Any other error is a mistake of
# ours; even then, other streams go on.
FORESEEN: Final = (MetadataError, LogError, ObjectError, TablesError)


@dataclass(slots=True)
class Round:
    """The work of a round, by its next step."""

    topics: list[Topic]
    summary: CycleSummary
    everything: bool
    at_once: int
    background: BackgroundTasks
    places: dict[int, tuple[Topic, int]] = field(default_factory=dict)  # stream: topic and partition
    units: list[tuple[RunningJob, Unit]] = field(default_factory=list)
    key_units: list[Unit] = field(default_factory=list)  # without a job: see `Unit.most_keys`
    ahead: dict[int, StreamAhead] = field(default_factory=dict)  # by stream
    ended: dict[int, int] = field(default_factory=dict)  # by stream: the number of the job that has ended
    written: list[RunningJob] = field(default_factory=list)
    committed: list[RunningJob] = field(default_factory=list)
    planned_bytes: int = 0
    progressed: bool = False  # something changed, so another round may find more

    def __post_init__(self) -> None:
        for topic in self.topics:
            for partition, stream in enumerate(topic.streams):
                self.places[stream] = topic, partition
        self.summary.streams = len(self.places)

    def name_of(self, stream: int) -> tuple[str, int]:
        place = self.places.get(stream)
        if place is None:
            return f"stream {stream} of a topic that is gone or unreadable", -1
        return place[0].name, place[1]

    def note(self, stream: int, reason: str) -> None:
        """Note that a stream stands still, and why, for the operator."""
        name, partition = self.name_of(stream)
        self.summary.troubles.append(StalledStream(name, partition, reason, Cause.UNIT))
        _log.error("stream not compacted", topic=name, partition=partition, stream=stream, reason=reason)

    def unforeseen(self, error: Exception) -> None:
        """An unforeseen error does not stop other streams. It is reported as a mistake in the code."""
        if not isinstance(error, FORESEEN):
            self.background.report("compaction", error)

    async def each(
        self,
        items: list[tuple[int, T]],  # by stream
        act: Callable[[Round, int, T], Awaitable[None]],
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Take a step for each stream, a few at a time. An error of one is noted, and the others go on."""
        limit = asyncio.Semaphore(self.at_once)
        done = 0

        async def one(stream: int, item: T) -> None:
            nonlocal done
            async with limit:
                try:
                    await act(self, stream, item)
                except Exception as error:
                    self.unforeseen(error)
                    interrupted(self.summary, *self.name_of(stream), error)
            done += 1
            if progress is not None:
                progress(done, len(items))

        await asyncio.gather(*[one(stream, item) for stream, item in items])


def interrupted(summary: CycleSummary, topic: str, partition: int, error: Exception) -> None:
    reason = str(error) or type(error).__name__
    summary.troubles.append(StalledStream(topic, partition, reason, Cause.STORE))
    _log.warning("compaction interrupted", topic=topic, partition=partition, error=reason)
