"""Looking after the segments of attached topics, which belong to others: are they still there?

Every broker does, about once a day. A topic that was born here has the first leader epoch, and costs
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from dray.log.foreign_ownership import ForeignFinding
from dray.log.types import LogError
from dray.metadata.contract import MetadataError
from dray.runtime import KeptTask, Runtime, keep_running
from dray.topics.live import TopicSource
from dray.topics.model import FIRST_LEADER_EPOCH

_log = structlog.get_logger(__name__)


class ForeignAuditLoop:
    def __init__(
        self,
        audit: Callable[[int], Awaitable[ForeignFinding]],
        topics: TopicSource,
        runtime: Runtime,
        interval_seconds: float,
    ) -> None:
        self._audit = audit
        self._topics = topics
        self._runtime = runtime
        self._interval = interval_seconds
        self._task: KeptTask | None = None
        self._missing: dict[int, int] = {}  # by stream, as it was last seen

    @property
    def missing(self) -> int:
        """Segments that were gone at the last look. A look that was interrupted says nothing."""
        return sum(self._missing.values())

    def start(self) -> None:
        self._task = keep_running(self._runtime, "audit foreign segments", self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._runtime.sleep(self._interval * (0.75 + 0.5 * self._runtime.random.random()))
            await self.once()

    async def once(self) -> dict[str, int]:
        """One round; by topic, how many segments are gone."""
        gone: dict[str, int] = {}
        try:
            topics = (await self._topics.live()).known
        except MetadataError as error:
            _log.warning("audit of foreign segments interrupted", error=str(error))
            return gone
        attached = {stream for topic in topics for stream in topic.streams}
        self._missing = {stream: count for stream, count in self._missing.items() if stream in attached}
        for topic in topics:
            if topic.leader_epoch == FIRST_LEADER_EPOCH:
                continue
            for partition, stream in enumerate(topic.streams):
                try:
                    finding = await self._audit(stream)
                except LogError as error:
                    _log.warning(
                        "audit of foreign segments interrupted",
                        topic=topic.name,
                        partition=partition,
                        error=str(error),
                    )
                    continue
                self._missing[stream] = len(finding.missing)
                if not finding.is_complete:
                    gone[topic.name] = gone.get(topic.name, 0) + len(finding.missing)
        return gone
