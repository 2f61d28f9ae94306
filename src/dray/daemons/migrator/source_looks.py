"""How a command looks at a source of which a broker has just died.

A partition whose leader dies has another one as soon as the source has noticed: nine seconds with Kafka's
settings. A command that has to know everything waits for that, and says so. One that only shows what is known
does not wait: it shows the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from dray.base.runtime import Runtime
from dray.kafka.client.cluster import PASSING, Cluster
from dray.kafka.client.errors import ClientError, RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.migration.source.source import SourceEnd, SourceTopic

T = TypeVar("T")

PATIENCE_SECONDS: Final = 30.0
SAID_SECONDS: Final = 5.0
"""A line is said again after so long."""

_LEADER: Final = PASSING - {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR}
_PASSING: Final = PASSING | {
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class SourcePatience:
    """Of one command, about one topic. `said` gets the lines of progress."""

    def __init__(
        self,
        topic: str,
        runtime: Runtime,
        said: Callable[[str], None],
        seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._topic = topic
        self._runtime = runtime
        self._said = said
        self._seconds = seconds
        self._last: float | None = None

    async def ask(self, cluster: Cluster, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of `attempt` in the end. It begins anew each time, with nothing learnt of the source;
        after so many seconds its last failure is raised, and one that does not pass at once."""
        self._last = None
        return await cluster.patiently(attempt, self._seconds, _PASSING, self._waits)

    def _waits(self, failure: ClientError | RequestFailed) -> None:
        now = self._runtime.monotonic()
        if self._last is not None and now < self._last + SAID_SECONDS:
            return
        self._last = now
        passes = isinstance(failure, ClientError) or failure.code in _LEADER
        what = f"a new leader of {self._topic} at the source" if passes else "the source"
        self._said(f"waiting for {what}, {self._seconds:.0f} s at most: {failure}")


async def known_ends(source: SourceTopic) -> tuple[dict[int, int], str]:
    """The last stable offsets of the partitions whose leaders answer, and why the others are missing; that is
    empty where none is. Raises the client's errors where no broker says who leads."""
    await source.learn()
    ends: dict[int, int] = {}
    trouble = ""
    for partition, found in (await source.measure(source.partitions)).items():
        if isinstance(found, SourceEnd):
            ends[partition] = found.last_stable
        else:
            trouble = trouble or str(found)
    return ends, trouble
