"""The writes of one commit: those of a domain in one, those of several domains side by side.

Streams do not depend on each other, and each expects the high watermark that was read. So a commit may be
several writes, where its streams do not fit into one or are of several domains, and each has its own outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import structlog

from dray.log.stream_store import StreamStore
from dray.metadata.contract import Ambiguous, Operation, Outcome, Put, WriteTooLarge

_log = structlog.get_logger(__name__)

# Two more outcomes of one stream's part of a commit, beside those that a store gives.
NOTHING: Final = Outcome(False, -1)  # the write was not done, and may be sent again
TOO_LARGE: Final = Outcome(False, -2)  # the write was not even sent


@dataclass(slots=True)
class _DomainPart:
    """The operations on one domain, and the place at which each stream's outcome will be."""

    operations: list[Operation] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    size: int = 0


class CommitWrites:
    """`found` has each stream's outcome: None if the reply was lost, `NOTHING` if nothing happened,
    `TOO_LARGE` if the stream alone is more than a write may hold."""

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self._limits = store.limits
        self._parts: dict[int, _DomainPart] = {}
        self.found: dict[int, Outcome | None] = {}

    def is_full_for(self, stream: int, puts: list[Put]) -> bool:
        """Must what was added be written before these puts are?"""
        part = self._parts.get(self._store.domain(stream))
        return part is not None and (
            part.size + _size_of(puts) > self._limits.value_bytes
            or len(part.operations) + len(puts) > self._limits.operations
        )

    def add(self, stream: int, puts: list[Put]) -> None:
        """The first of the puts is the one whose outcome counts."""
        size = _size_of(puts)
        if size > self._limits.value_bytes:
            self.found[stream] = TOO_LARGE
            return
        domain = self._store.domain(stream)
        part = self._parts.get(domain)
        if part is None:
            part = self._parts[domain] = _DomainPart()
        part.places[stream] = len(part.operations)
        part.operations += puts
        part.size += size

    async def write(self) -> None:
        """A domain whose write fails says nothing of the others."""
        if not self._parts:
            return
        parts, self._parts = self._parts, {}
        written = await self._store.write_domains(
            [(domain, part.operations) for domain, part in parts.items()]
        )
        found = self.found
        for part, outcomes in zip(parts.values(), written, strict=True):
            if isinstance(outcomes, list):
                for stream, place in part.places.items():
                    found[stream] = outcomes[place]
            elif isinstance(outcomes, Ambiguous):
                found.update(dict.fromkeys(part.places))
            else:
                if isinstance(outcomes, WriteTooLarge):  # every other failure is the store's, and told once
                    _log.warning("a commit was not written", error=str(outcomes))
                found.update(dict.fromkeys(part.places, NOTHING))


def _size_of(puts: list[Put]) -> int:
    return sum([len(put.value) for put in puts])
