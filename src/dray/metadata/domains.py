"""Writes to several domains that are begun together.

Each is a write of its own: it applies or fails alone, and there is no transaction over domains. A store that
brings all writes in by one thread (SQLite) takes them with one hand-over, and so in one transaction, mostly;
for any other they are begun side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

import structlog

from dray.metadata.contract import Ambiguous, MetadataError, MetadataStore, Operation, Outcome

_log = structlog.get_logger(__name__)

DomainWrite: TypeAlias = tuple[int, Sequence[Operation]]
"""The domain, and what is written there."""

DomainOutcome: TypeAlias = list[Outcome] | MetadataError
"""What one of the writes gave, or how it failed."""


@runtime_checkable
class WritesDomains(Protocol):
    """A store that takes writes to several domains at once. Its own watchers need not hear of these: to wake
    them costs as much as a small write does, and who writes so knows what it has written."""

    async def write_domains(self, writes: Sequence[DomainWrite]) -> list[DomainOutcome]: ...


def domains_writer(store: MetadataStore) -> Callable[[Sequence[DomainWrite]], Awaitable[list[DomainOutcome]]]:
    """What writes to several domains of a store: it gives one outcome per write, in their order."""
    return store.write_domains if isinstance(store, WritesDomains) else partial(_write_each, store)


async def _write_each(store: MetadataStore, writes: Sequence[DomainWrite]) -> list[DomainOutcome]:
    if len(writes) == 1:
        [(domain, operations)] = writes
        try:
            return [await store.write(domain, operations)]
        except MetadataError as error:
            return [error]
    begun = [store.write(domain, operations) for domain, operations in writes]
    return [
        as_outcome(outcome) if isinstance(outcome, BaseException) else outcome
        for outcome in await asyncio.gather(*begun, return_exceptions=True)
    ]


def as_outcome(error: BaseException) -> MetadataError:
    """How one of several writes failed. An error that was not foreseen must not take the others with it,
    which may have applied: of its own write, it leaves open whether it happened."""
    if isinstance(error, MetadataError):
        return error
    if not isinstance(error, Exception):
        raise error
    _log.error("a write to one of several domains failed", exc_info=error)
    return Ambiguous(f"{type(error).__name__}: {error}")
