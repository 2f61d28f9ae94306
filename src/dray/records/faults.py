"""What can be wrong with record batches, in the terms the Kafka error codes distinguish."""

from __future__ import annotations

from enum import Enum


class RecordFault(Enum):
    """Why a batch was refused. The numbers are those of `dray_fault` in batch.h."""

    CORRUPT = 1
    """The bytes are not what was sent: cut off, of no known format, or of another checksum."""
    INVALID_RECORD = 2
    """They arrived as sent, and what was sent breaks the rules of the format."""
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
