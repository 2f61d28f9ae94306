"""A consumer that stays: it reads on, stands still at a known offset, looks back, and asks by time."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.services.clients.contract import Message

Place = tuple[str, int]
"""A topic and a partition of it."""

Found = tuple[int, int | None] | None
"""Offset and time of the first record at or after a time. Some clients do not tell the time."""

READ_SECONDS = 120.0
"""No single read of a test takes longer, not even on a busy machine."""

FETCH_BYTES = 1 << 20
LITTLE_BYTES = 16_384
"""What readers ask for at a time that are to stand still with most of the log still at the broker."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Who reads what: the only member of a group, from the beginning of every partition."""

    bootstrap: str
    topics: tuple[str, ...]
    group: str
    protocol: str = "classic"
    isolation: str = "read_uncommitted"
    little: bool = False

    @property
    def fetch_bytes(self) -> int:
        return LITTLE_BYTES if self.little else FETCH_BYTES


class Reader(ABC):
    """What it has read of a partition is known to the record: it is neither ahead of its user nor behind."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    @abstractmethod
    def read(self, ends: Mapping[Place, int]) -> dict[Place, list[Message]]:
        """Read every place on up to the offset before its end, and stand still there. A place that is there
        already gives nothing."""

    @abstractmethod
    def seek(self, place: Place, offset: int) -> None:
        """What is read next of a place, before or behind what was read."""

    @abstractmethod
    def first_at(self, times: Mapping[Place, int]) -> dict[Place, Found]:
        """For each place the first record whose timestamp is not before a time."""

    def tells(self, message: Message) -> Message:
        """A message as this client has it, where it cannot show everything."""
        return message

    @abstractmethod
    def close(self) -> None: ...


class PollingReader(Reader):
    """Of clients that hand out one record at a time, and pause partitions."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._next: dict[Place, int] = {}
        self._paused: set[Place] = set()

    def read(self, ends: Mapping[Place, int]) -> dict[Place, list[Message]]:
        seen: dict[Place, list[Message]] = {place: [] for place in ends}
        wanted = {place for place, end in ends.items() if self._next.get(place, 0) < end}
        self.resume(wanted & self._paused)
        self._paused -= wanted
        deadline = time.monotonic() + READ_SECONDS
        while wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{type(self).__name__} stands at {self._next}, and waits for {wanted}")
            received = self.poll()
            if received is None:
                continue
            place, message = received
            assert place not in self._paused, f"{place} is paused, and gave {message}"
            seen[place].append(message)
            self._next[place] = message.offset + 1
            if message.offset + 1 >= ends[place]:
                self.pause(place)
                self._paused.add(place)
                wanted.discard(place)
        return seen

    def seek(self, place: Place, offset: int) -> None:
        self.resume({place} & self._paused)
        self._paused.discard(place)
        self.move(place, offset)
        self._next[place] = offset

    @abstractmethod
    def poll(self) -> tuple[Place, Message] | None:
        """The next record, or None after a moment without one."""

    @abstractmethod
    def pause(self, place: Place) -> None: ...

    @abstractmethod
    def resume(self, places: Iterable[Place]) -> None: ...

    @abstractmethod
    def move(self, place: Place, offset: int) -> None:
        """Seek, in a partition that is not paused."""
