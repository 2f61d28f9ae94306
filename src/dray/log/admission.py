"""What of a chunk may be appended, and what is answered at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from dray.log.append import PendingBatch
from dray.log.entries import NO_TIMESTAMP, BatchReference
from dray.log.producer_state import RememberedBatch
from dray.log.types import LogError


@dataclass(slots=True)
class AdmissionResult:
    """A chunk held against a stream's state, batch by batch."""

    references: list[BatchReference] = field(default_factory=list)
    selected: list[tuple[int, PendingBatch]] = field(default_factory=list)  # with their base offsets
    end: int = 0  # one past the last offset selected
    size: int = 0
    min_timestamp: int = 0
    max_timestamp: int = NO_TIMESTAMP
    running_max_timestamp: int = NO_TIMESTAMP
    running_max_offset: int = -1
    duplicates: list[tuple[RememberedBatch, PendingBatch]] = field(default_factory=list)
    refused: list[tuple[LogError, PendingBatch]] = field(default_factory=list)

    def take(self, offset: int, pending: PendingBatch, reference: BatchReference) -> None:
        minimum, maximum = reference.min_timestamp, reference.max_timestamp
        if not self.selected:
            self.min_timestamp, self.max_timestamp = minimum, maximum
        else:
            self.min_timestamp = min(self.min_timestamp, minimum)
            self.max_timestamp = max(self.max_timestamp, maximum)
        if maximum > self.running_max_timestamp:
            self.running_max_timestamp = maximum
            self.running_max_offset = offset + pending.batch.max_timestamp_delta
        self.selected.append((offset, pending))
        self.references.append(reference)
        self.size += reference.length
        self.end = offset + reference.record_count
