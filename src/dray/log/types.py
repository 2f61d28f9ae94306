"""The answers of the log, and the errors it raises. No Kafka codes here: `broker/api/` maps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Generic, NamedTuple, TypeVar

from dray.base.runtime.lean_dataclasses import dataclass
from dray.metadata.values import UnreadableValue, ValueCorrupt
from dray.objects.contract import Buffer


class LogError(Exception):
    """The log did not do what was asked."""

    @property
    def is_damage(self) -> bool:
        """A stored value is damaged: asking again does not help."""
        return isinstance(self.__cause__, ValueCorrupt)


def unreadable_in(error: Exception) -> UnreadableValue | None:
    """The stored value that this build cannot read, if one is why."""
    return error.__cause__ if isinstance(error.__cause__, UnreadableValue) else None


class LogUnavailable(LogError):
    """A store failed or answered unclearly: the client may try again."""


class OutsideStoreAway(LogUnavailable):
    """An object store that is not the cluster's own, in which some entries have their objects."""


class StreamClosed(LogError):
    """The stream's topic was deleted."""


class OffsetOutOfRange(LogError):
    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside {start}..{end}")
        self.start = start
        self.end = end


class OutOfOrderSequence(LogError):
    """A producer's batch does not follow its last one."""


class ProducerFenced(LogError):
    """A producer's epoch is older than the newest seen."""


class ObjectCorrupt(LogError):
    """A stored object is not what its index entry says, or is not there: named, and never served. Readers
    are told so only after it was read several times (`doubts.py`).

    `path` is the object's, `place` the byte in it, of a missing one the offset that it held.
    """

    def __init__(self, text: str, *, path: str = "", place: int = 0, missing: bool = False) -> None:
        super().__init__(text)
        self.path = path
        self.place = place
        self.missing = missing


class ObjectLost(ObjectCorrupt):
    """An object that the index names is gone: proven, and not only not found."""


class OutsideFault(LogError):
    """An object that the log did not write is gone, is not what it was, or lies in a store that this broker
    does not know: its records are not guessed. Another broker, or a mended store, may serve them."""


_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[_Value]):
    """A stored value as it was read, and the version that a compare-and-set expects."""

    value: _Value
    version: int  # 0 for a key that is not there


class AppendResult(NamedTuple):
    base_offset: int
    append_time_ms: int  # -1 unless the topic stamps LogAppendTime
    start_offset: int  # the stream's first readable offset; -1 if this broker does not know it


@dataclass(frozen=True, slots=True)
class Bounds:
    start: int
    end: int  # the high watermark: one past the last offset


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    offset: int
    timestamp: int


class ActiveProducer(NamedTuple):
    """An idempotent producer that a stream remembers."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_ms: int  # when its last batch was appended


@dataclass(frozen=True, slots=True)
class ReadRequest:
    stream: int
    offset: int
    max_bytes: int


@dataclass(slots=True)
class ReadResult:
    """Whole batches, in place: base offset and leader epoch are patched already."""

    buffers: Sequence[Buffer] = field(default_factory=list)
    size: int = 0
    high_watermark: int = -1
    start_offset: int = -1
    error: LogError | None = None
    # The transactions among these batches that were aborted. What was produced here has none.
    aborted: Sequence[tuple[int, int]] = ()  # producer id, first offset
