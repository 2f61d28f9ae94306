"""The request to compact a topic now: asked for, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dray.inspection.reading import NoSuchTopic
from dray.inspection.stored import StoredCluster
from dray.topics.compaction_requests import CompactionRequest, CompactionRequests, RequestState
from dray.topics.model import Topic

_SAID: Final = {
    RequestState.WAITING: "waits for a compactor",
    RequestState.RUNNING: "is being compacted",
    RequestState.DONE: "was compacted",
    RequestState.FAILED: "was not compacted",
}


@dataclass(frozen=True)
class CompactionProgress:
    topic: str
    state: str
    is_open: bool
    asked_ms: int
    moved_ms: int
    partitions: int
    done: int
    why: str

    @property
    def line(self) -> str:
        """One line for a person."""
        said = f"{self.topic} {_SAID[RequestState(self.state)]}: {self.done} of {self.partitions} partitions"
        return f"{said} ({self.why})" if self.why else said


def progress_of(topic: str, request: CompactionRequest) -> CompactionProgress:
    return CompactionProgress(
        topic,
        request.state.value,
        request.state.is_open,
        request.asked_ms,
        request.moved_ms,
        request.partitions,
        request.done,
        request.why,
    )


async def compaction_of(
    stored: StoredCluster, requests: CompactionRequests, name: str
) -> CompactionProgress | None:
    """None where nothing was asked for lately. Raises `NoSuchTopic`."""
    found = await requests.of(await _topic(stored, name))
    return None if found is None else progress_of(name, found)


async def ask_compaction(
    stored: StoredCluster, requests: CompactionRequests, name: str
) -> CompactionProgress:
    """Ask for it, or look at what was asked for before. Raises `NoSuchTopic`, `TooManyRequests`."""
    return progress_of(name, await requests.ask(await _topic(stored, name)))


async def _topic(stored: StoredCluster, name: str) -> Topic:
    topic = await stored.topic(name)
    if topic is None:
        raise NoSuchTopic(f"there is no topic {name} in the metadata store")
    return topic
