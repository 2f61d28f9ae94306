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

from dray.metadata.contract import MetadataError, MetadataStore, Operation, Outcome

DomainWrite: TypeAlias = tuple[int, Sequence[Operation]]
"""The domain, and what is written there."""

DomainOutcome: TypeAlias = list[Outcome] | MetadataError
"""What one of the writes gave, or how it failed."""


@runtime_checkable
class WritesDomains(Protocol):
    """A store that takes writes to several domains at once."""

    async def write_domains(self, writes: Sequence[DomainWrite]) -> list[DomainOutcome]: ...


def domains_writer(store: MetadataStore) -> Callable[[Sequence[DomainWrite]], Awaitable[list[DomainOutcome]]]:
    """What writes to several domains of a store: it gives one outcome per write, in their order. An error
    that is none of the metadata store's is raised, once all are done."""
    return store.write_domains if isinstance(store, WritesDomains) else partial(_write_each, store)


async def _write_each(store: MetadataStore, writes: Sequence[DomainWrite]) -> list[DomainOutcome]:
    if len(writes) == 1:
        [(domain, operations)] = writes
        try:
            return [await store.write(domain, operations)]
        except MetadataError as error:
            return [error]
    found: list[DomainOutcome] = []
    failure: BaseException | None = None
    begun = [store.write(domain, operations) for domain, operations in writes]
    for outcome in await asyncio.gather(*begun, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, MetadataError):
            failure = failure or outcome
        else:
            found.append(outcome)
    if failure is not None:
        raise failure
    return found
