"""The metadata contract: exactly what Oxia, SQLite and etcd can all give, and no more.

One `write` is one atomic step, but each operation in it carries its own expectation: an operation
whose expectation fails is *skipped* while the others apply. There is no conditional multi-key
transaction, so no unconditional operation may depend on a conditional one in the same write.

Versions are positive and never repeat for a key, not even across its deletion; of two writes of a domain
the later one's are higher, whatever their keys. Keys are ASCII
(`dray.metadata.keys` builds them), printable and not empty, and sort by their bytes. A client never
repeats a write on its own: it raises `Ambiguous` and lets the caller find out by reading. A caller
that is cancelled during a write stands where `Ambiguous` would leave it.

The operations of one write apply in their order, so a later one sees what an earlier one did. Puts
of a session share their write with nothing but puts of the same session: engines that judge each
operation alone (Oxia) could otherwise not promise that `SessionEnded` means nothing happened. A put
without a session makes a key of a session permanent. A write or a domain that breaks these rules is a
`ValueError`, a mistake in the code. One beyond the engine's limits is `WriteTooLarge`: data can bring it
about.

A read may be older than the newest write until a `barrier` was waited for, but the reads of one client in
one domain never go back: what it has seen once, it sees or has seen superseded from then on. The log's
recheck rests on that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from dray.runtime.lean_dataclasses import dataclass

ANY: Final = "any"
ABSENT: Final = "absent"

Expectation: TypeAlias = int | Literal["any", "absent"]


class MetadataError(Exception):
    """The metadata store did not do what was asked."""


class Unavailable(MetadataError):
    """Nothing happened: safe to try again."""


class Ambiguous(MetadataError):
    """It may have happened, now or later: find out by reading, never by trying elsewhere."""


class SessionEnded(MetadataError):
    """The session of an ephemeral put is over: nothing happened."""


class WriteTooLarge(MetadataError):
    """More than one write may hold on this engine (`Limits`): nothing happened, nor ever will. A caller
    that can meet this splits or bounds what it writes; trying again is of no use."""


@dataclass(frozen=True, slots=True)
class StoredValue:
    key: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    expect: Expectation = ANY
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Deleting an absent key with `ANY` applies; with a version, it is skipped."""

    key: str
    expect: int | Literal["any"] = ANY


@dataclass(frozen=True, slots=True)
class DeleteRange:
    """Every key with start <= key < end."""

    start: str
    end: str


Operation: TypeAlias = Put | Delete | DeleteRange


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one operation: `version` is the new version of an applied put, else 0."""

    applied: bool
    version: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A hint that a key may have changed. `key` is None when anything may have: re-read."""

    key: str | None


@dataclass(frozen=True, slots=True)
class Limits:
    """What one write may hold on this engine; `value_bytes` counts all its values together."""

    operations: int
    value_bytes: int


class Session(Protocol):
    """Keys put with a session vanish when it ends (closed, or its keep-alives stopped for `ttl`)."""

    @property
    def ended(self) -> bool:
        """True as soon as this side can no longer be sure that the session lives."""

    def confirmed_until(self) -> float:
        """Runtime-monotonic time up to which the session is certainly alive."""

    async def wait_ended(self) -> None: ...

    async def close(self) -> None:
        """End it now; its keys are gone when this returns."""


class MetadataStore(Protocol):
    @property
    def limits(self) -> Limits: ...

    async def get(self, domain: int, key: str) -> StoredValue | None: ...

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        """The greatest key <= `key` among those starting with `prefix`."""

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        """The least key >= `key` among those starting with `prefix`."""

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        """The keys with start <= key < end in byte order, of one snapshot."""

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        """One atomic step; one outcome per operation. See the module's text."""

    async def barrier(self, domain: int) -> None:
        """Reads that start after this returns see every write acknowledged before it was called."""

    def watch(self, domain: int) -> AsyncIterator[Change]:
        """Changes of the domain from now on, as hints: the first item is always `Change(None)`,
        sent once the watch is in place, and so is the first after any interruption. A slow consumer
        hears of a key that changed often only once, and of too many keys as `Change(None)`. The
        watch ends when the store closes."""

    async def session(self, domain: int, ttl: float) -> Session:
        """Open a session for keys of this domain; the store keeps it alive."""

    async def close(self) -> None:
        """End this store's sessions, finish what is under way, let go. Later calls are `Unavailable`."""
