"""Faults of record batches, in the terms the Kafka error codes distinguish."""

from __future__ import annotations

from enum import Enum


class RecordFault(Enum):
    """Why a batch was refused. The numbers are those of `dray_fault` in batch.h."""

    CORRUPT = 1
    """The bytes are not what was sent: another checksum, no known format, a length that no batch has.
    Sent once more they may be good, and clients do send them once more."""
    INVALID_RECORD = 2
    """They arrived as sent, and what was sent breaks the rules of the format or ends too early: it would
    do so every time."""
    UNSUPPORTED_FORMAT = 3
    """A message set of magic 0 or 1, from before Kafka 0.11."""
    UNSUPPORTED_COMPRESSION = 4
    TOO_LARGE = 5
    """A batch beyond the size allowed, or one that would decompress to more than is allowed."""


class RecordError(Exception):
    """Names the fault, and says what is wrong and where."""

    def __init__(self, fault: RecordFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault

    def __reduce__(self) -> tuple[type[RecordError], tuple[RecordFault, str]]:
        return RecordError, (self.fault, str(self))
