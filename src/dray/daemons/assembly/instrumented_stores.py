"""Stores that are timed: the same contracts, each call measured, its failures counted, and how it went noted
(`store_work.py`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from dray.base.runtime import Runtime
from dray.base.telemetry.instruments import Counter, Family, Histogram
from dray.base.telemetry.metrics import ProcessMetrics
from dray.broker.cluster import may_be_written_while_held
from dray.daemons.assembly.store_work import StoreWork
from dray.daemons.assembly.stores import Stores
from dray.metadata import keys
from dray.metadata.contract import (
    Change,
    DomainOutcome,
    DomainWrite,
    Limits,
    MetadataError,
    MetadataStore,
    Operation,
    Outcome,
    Put,
    Session,
    SessionEnded,
    StoredValue,
    Unavailable,
    WriteTooLarge,
    domains_writer,
)
from dray.objects.contract import (
    Buffer,
    ObjectError,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    OwnBuffer,
    RangeOutside,
    Unsupported,
)

T = TypeVar("T")

_PROBE: Final = "dray-probe"
"""An object that is never written: that it is missing shows that the store answers."""


@dataclass(frozen=True)
class MeasuredStores(Stores):
    metadata: InstrumentedMetadataStore
    objects: InstrumentedObjectStore


def measured(stores: Stores, metrics: ProcessMetrics, runtime: Runtime) -> MeasuredStores:
    return MeasuredStores(
        InstrumentedMetadataStore(stores.metadata, metrics, runtime),
        InstrumentedObjectStore(stores.objects, metrics, runtime),
        stores.foreign,
    )


class _Stopwatch:
    """Times awaitables of one operation, which may be part of a kind of work that is looked after."""

    __slots__ = ("_failures", "_operation", "_runtime", "_seconds", "_work")

    def __init__(
        self,
        operation: str,
        seconds: Family[Histogram],
        failures: Family[Counter],
        runtime: Runtime,
        work: StoreWork | None = None,
    ) -> None:
        self._operation = operation
        self._seconds = seconds.labels(operation)
        self._failures = failures
        self._runtime = runtime
        self._work = work

    async def time(self, awaitable: Awaitable[T], size: int | None = 0) -> T:
        """`size` in bytes; None where it takes as long as its caller does."""
        started = self._runtime.monotonic()
        request = object()
        if self._work is not None and size is not None:
            self._work.asked(request, size, started)
        try:
            result = await awaitable
        except Exception as error:
            self.took(self._runtime.monotonic() - started)
            self.failed(error, started)
            raise
        except BaseException:
            self.took(self._runtime.monotonic() - started)
            raise
        finally:
            if self._work is not None:
                self._work.ended(request)
        now = self._runtime.monotonic()
        self.took(now - started)
        if self._work is not None:
            self._work.succeeded(now)
        return result

    def took(self, seconds: float) -> None:
        self._seconds.observe(seconds)

    def failed(self, error: Exception, began: float | None = None) -> None:
        self._failures.labels(self._operation, type(error).__name__).value += 1
        if self._work is not None and _is_refusal(error):
            self._work.failed(error, self._runtime.monotonic(), began)


_ANSWERS: Final = (ObjectMissing, ObjectExists, RangeOutside, Unsupported, SessionEnded, WriteTooLarge)


def _is_refusal(error: Exception) -> bool:
    """Did the store not do what it should have? An answer that something is missing or too large is none, and
    neither is what a caller makes of the bytes that it got."""
    return isinstance(error, (ObjectError, MetadataError)) and not isinstance(error, _ANSWERS)


class InstrumentedMetadataStore:
    """A `MetadataStore` around another. A watch is passed through: it waits, it does not work."""

    def __init__(self, inner: MetadataStore, metrics: ProcessMetrics, runtime: Runtime) -> None:
        def watch(operation: str, work: StoreWork | None = None) -> _Stopwatch:
            return _Stopwatch(operation, metrics.metadata_seconds, metrics.metadata_failures, runtime, work)

        self.inner = inner
        self.writes = StoreWork("metadata", "writes", runtime)
        self._runtime = runtime
        self._write_domains = domains_writer(inner)
        self._get = watch("get")
        self._floor = watch("floor")
        self._ceiling = watch("ceiling")
        self._scan = watch("scan")
        self._write = watch("write", self.writes)
        self._domains = self._telling_nothing = watch("write")
        self._barrier = watch("barrier")
        self._session = watch("session")
        self.held: Callable[[], str | None] = lambda: None
        """Why nothing may be written now, such as that this is a copy of the cluster's metadata."""

    @property
    def limits(self) -> Limits:
        return self.inner.limits

    async def get(self, domain: int, key: str) -> StoredValue | None:
        return await self._get.time(self.inner.get(domain, key))

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._floor.time(self.inner.floor(domain, key, prefix))

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._ceiling.time(self.inner.ceiling(domain, key, prefix))

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        return await self._scan.time(self.inner.scan(domain, start, end, limit))

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        if (why := self._why_held(operations)) is not None:
            raise Unavailable(why)
        # A store that is full still takes what only deletes, and etcd the tally too, which is put under a
        # condition. That shows nothing.
        shows = any(isinstance(each, Put) and each.key != keys.TALLY for each in operations)
        watch = self._write if shows else self._telling_nothing
        return await watch.time(self.inner.write(domain, operations))

    async def write_domains(self, writes: Sequence[DomainWrite]) -> list[DomainOutcome]:
        """Timed as one write: that is what the caller waits for."""
        held = [why for _, operations in writes if (why := self._why_held(operations)) is not None]
        if held:
            return [Unavailable(held[0]) for _ in writes]
        found = await self._domains.time(self._write_domains(writes))
        works = any(isinstance(outcome, list) for outcome in found)
        if works:
            self.writes.succeeded(self._runtime.monotonic())
        for outcome in found:
            if not isinstance(outcome, list):
                (self._domains if works else self._write).failed(outcome)
        return found

    def _why_held(self, operations: Sequence[Operation]) -> str | None:
        why = self.held()
        return None if why is None or may_be_written_while_held(operations) else why

    async def barrier(self, domain: int) -> None:
        await self._barrier.time(self.inner.barrier(domain))

    def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncIterator[Change]:
        return self.inner.watch(domain, endings)

    async def mark(self, domain: int, name: str) -> None:
        await self._barrier.time(self.inner.mark(domain, name))

    async def session(self, domain: int, ttl: float) -> Session:
        return await self._session.time(self.inner.session(domain, ttl))

    async def close(self) -> None:
        await self.inner.close()


class InstrumentedObjectStore:
    """An `ObjectStore` around another, which also counts the bytes that pass."""

    def __init__(self, inner: ObjectStore, metrics: ProcessMetrics, runtime: Runtime) -> None:
        def watch(operation: str, work: StoreWork | None = None) -> _Stopwatch:
            return _Stopwatch(operation, metrics.object_seconds, metrics.object_failures, runtime, work)

        self.inner = inner
        self.uploads = uploads = StoreWork("objects", "uploads", runtime)
        self.reads = reads = StoreWork("objects", "reads", runtime)
        self.answers = StoreWork("objects", "answers about records", runtime)
        self._runtime = runtime
        self._put = watch("put", uploads)
        self._put_if_absent = watch("put_if_absent", uploads)
        self._put_stream = watch("put_stream", uploads)
        self._get = watch("get", reads)
        self._get_ranges = watch("get_ranges", reads)
        self._probe = watch("get")
        self._head = watch("head")
        self._delete = watch("delete")
        self._list = watch("list")
        self.held: Callable[[], str | None] = lambda: None
        """Why nothing may be deleted now, whoever asks for it."""
        self._written = metrics.object_bytes.labels("write")
        self._read = metrics.object_bytes.labels("read")

    def answered_badly(self, error: Exception) -> None:
        """The store knows of no failure: only who reads sees that the bytes are others, or that the index
        names what is said to be missing. So a request that ends well proves nothing about these."""
        self.answers.failed(error, self._runtime.monotonic())

    def answered_well(self) -> None:
        self.answers.succeeded(self._runtime.monotonic())

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        size = sum(map(len, parts))
        await self._put.time(self.inner.put(path, parts), size)
        self._written.value += size

    async def put_if_absent(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._put_if_absent.time(self.inner.put_if_absent(path, parts))
        self._written.value += sum(map(len, parts))

    async def put_stream(self, path: str, pieces: AsyncIterator[Sequence[Buffer]]) -> None:
        await self._put_stream.time(self.inner.put_stream(path, self._counted(pieces)), None)

    async def _counted(self, pieces: AsyncIterator[Sequence[Buffer]]) -> AsyncIterator[Sequence[Buffer]]:
        async for parts in pieces:
            self._written.value += sum(map(len, parts))
            yield parts

    async def get(self, path: str) -> Buffer:
        content = await self._get.time(self.inner.get(path))
        self._read.value += len(content)
        return content

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        size = sum([length for _, length in ranges])
        contents = await self._get_ranges.time(self.inner.get_ranges(path, ranges), size)
        self._read.value += sum(map(len, contents))
        return contents

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        size = sum([length for _, length in ranges])
        result = await self._get_ranges.time(self.inner.with_ranges(path, ranges, work), size)
        self._read.value += size
        return result

    async def probe(self) -> None:
        """Raises what the store refuses with. A GET, since an answer to HEAD has no body: it would not tell a
        missing bucket from a missing object, nor why access is refused. It is no work that was asked for."""
        await self._probe.time(self._ask_for_nothing())

    async def _ask_for_nothing(self) -> None:
        with suppress(ObjectMissing):
            await self.inner.get(_PROBE)

    async def head(self, path: str) -> ObjectInfo:
        return await self._head.time(self.inner.head(path))

    async def delete(self, path: str) -> None:
        if (why := self.held()) is not None:
            raise ObjectError(why)
        await self._delete.time(self.inner.delete(path))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Timed without what the caller does between two items."""
        items = aiter(self.inner.list(prefix))
        spent = 0.0
        try:
            while True:
                started = self._runtime.monotonic()
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
                finally:
                    spent += self._runtime.monotonic() - started
                yield item
        except Exception as error:
            self._list.failed(error)
            raise
        finally:
            self._list.took(spent)

    async def close(self) -> None:
        await self.inner.close()
