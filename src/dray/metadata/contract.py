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

A watch hands changes out in the order in which they were made, and a read begun after one was handed out
sees it. Nothing says how long that takes: whoever must know that all was told asks for a `mark`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from dray.base.runtime import gather_some
from dray.base.runtime.lean_dataclasses import dataclass
from dray.base.runtime.logger import get_logger

ANY: Final = "any"
ABSENT: Final = "absent"
MARK: Final = "\x01"
"""The names of marks begin so, and no key does."""

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
    """The outcome of one operation: `version` is the new version of an applied put, else 0."""

    applied: bool
    version: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A hint that a key may have changed. `key` is None when anything may have: re-read. The name of a mark
    comes as a key, and is none."""

    key: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class InlineLimits:
    """Small appends that ride in their commit, by what an engine bears: estimates, to be tuned."""

    chunk_bytes: int = 16 << 10  # of one stream in one write
    write_bytes: int
    rate: int  # bytes a second, of a domain
    # Rates are counted over so long: what bulk brings in it is carried before bulk is recognised.
    rate_seconds: float = 1.0
    backlog: int  # bytes of a domain, with what each entry takes beside its batches
    stream_backlog: int
    # Beyond some writes a second, one in this many seconds: more ride in each.
    pace_seconds: float = 0.0
    # One write under way for all domains, not one for each. Where the store brings writes in one after the
    # other anyway, what waits for one is then one more, and not one of each domain.
    across_domains: bool = False
    # Packing begins at such a backlog of a domain.
    pack_bytes: int = 4 << 20


EMBEDDED: Final = InlineLimits(
    write_bytes=64 << 10,
    rate=8 << 20,
    rate_seconds=0.25,
    backlog=32 << 20,
    stream_backlog=2 << 20,
    across_domains=True,
)
"""Of a store in the process."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one write may hold on this engine; `value_bytes` counts all its values together."""

    operations: int
    value_bytes: int
    inline: InlineLimits = EMBEDDED


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

    def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncIterator[Change]:
        """Changes of the domain from now on, as hints: the first item is always `Change(None)`,
        sent once the watch is in place, and so is the first after any interruption. A slow consumer
        hears of a key that changed often only once, and of too many keys as `Change(None)`. The
        watch ends when the store closes. `endings`: only of keys that end so, and of marks."""

    async def mark(self, domain: int, name: str) -> None:
        """Have the name (`MARK` and something of the caller's own) handed out by this client's watches of
        the domain, behind every change acknowledged before this was called. May return before or after that.
        A watch that is not in place, or is interrupted, may hand out `Change(None)` instead."""

    async def session(self, domain: int, ttl: float) -> Session:
        """Open a session for keys of this domain; the store keeps it alive."""

    async def close(self) -> None:
        """End this store's sessions, finish what is under way, let go. Later calls are `Unavailable`."""


# --- the checks of every engine before a write leaves the caller
#
# A mistake is a `ValueError`, at once, and more than the engine takes is `WriteTooLarge`.


KEY_END = "\x7f"
"""Greater than every character of a key: the keys under a prefix end below `prefix + KEY_END`."""

DOMAIN_LIMIT = 1 << 31


def check_domain(domain: int) -> None:
    if not 0 <= domain < DOMAIN_LIMIT:
        raise ValueError(f"no such domain: {domain}")


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise ValueError(f"a scan cannot be limited to {limit} records")


def check_ttl(ttl: float) -> None:
    if not 0 < ttl < float("inf"):
        raise ValueError(f"a session cannot live for {ttl} seconds")


def check_write(domain: int, operations: Sequence[Operation], limits: Limits) -> Session | None:
    """Hold a write to the contract; the session its puts belong to, if they belong to one."""
    check_domain(domain)
    if len(operations) > limits.operations:
        raise WriteTooLarge(f"{len(operations)} operations in one write, at most {limits.operations} go")
    value_bytes = 0
    session: Session | None = None
    sessions = 0
    for operation in operations:
        if isinstance(operation, Put):
            value_bytes += len(operation.value)
            if operation.session is not None:
                sessions += 1
                if session is not None and operation.session is not session:
                    raise ValueError("one write holds the puts of one session")
                session = operation.session
        elif isinstance(operation, DeleteRange):
            continue
        key = operation.key
        if not (key and key.isascii() and key.isprintable()):
            raise ValueError(f"a key is printable ASCII and not empty: {key!r}")
    if session is not None and sessions != len(operations):
        raise ValueError("puts of a session share a write with nothing else")
    if value_bytes > limits.value_bytes:
        raise WriteTooLarge(f"{value_bytes} bytes of values in one write, at most {limits.value_bytes} go")
    return session


# --- writes to several domains that are begun together
#
# Each is a write of its own: it applies or fails alone, and there is no transaction over domains. A store
# that brings all writes in by one thread (SQLite) takes them with one hand-over, and so in one transaction,
# mostly; for any other they are begun side by side.


_log = get_logger(__name__)

DomainWrite: TypeAlias = tuple[int, Sequence[Operation]]
"""The domain, and what is written there."""

DomainOutcome: TypeAlias = list[Outcome] | MetadataError
"""The outcomes of one of the writes, or its failure."""


@runtime_checkable
class WritesDomains(Protocol):
    """A store that takes writes to several domains at once. Its own watchers need not hear of these: to wake
    them costs as much as a small write does, and who writes so knows what it has written."""

    async def write_domains(self, writes: Sequence[DomainWrite]) -> list[DomainOutcome]: ...


def domains_writer(store: MetadataStore) -> Callable[[Sequence[DomainWrite]], Awaitable[list[DomainOutcome]]]:
    """A function that writes to several domains: it gives one outcome per write, in their order."""
    return store.write_domains if isinstance(store, WritesDomains) else partial(_write_each, store)


async def _write_each(store: MetadataStore, writes: Sequence[DomainWrite]) -> list[DomainOutcome]:
    if len(writes) == 1:
        [(domain, operations)] = writes
        try:
            return [await store.write(domain, operations)]
        except MetadataError as error:
            return [error]
    begun = (store.write(domain, operations) for domain, operations in writes)
    return [
        as_outcome(outcome) if isinstance(outcome, BaseException) else outcome
        for outcome in await gather_some(begun, return_exceptions=True)
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
