"""Stores that are timed: the same contracts, each call measured and its failures counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from dray.daemon.stores import Stores
from dray.metadata.contract import Change, Limits, MetadataStore, Operation, Outcome, Session, StoredValue
from dray.metadata.domains import DomainOutcome, DomainWrite, domains_writer
from dray.objects.contract import Buffer, ObjectInfo, ObjectStore, OwnBuffer
from dray.runtime import Runtime
from dray.telemetry.instruments import Counter, Family, Histogram
from dray.telemetry.metrics import ProcessMetrics

T = TypeVar("T")


def measured(stores: Stores, metrics: ProcessMetrics, runtime: Runtime) -> Stores:
    return replace(
        stores,
        metadata=InstrumentedMetadataStore(stores.metadata, metrics, runtime),
        objects=InstrumentedObjectStore(stores.objects, metrics, runtime),
    )


class _Stopwatch:
    """Times awaitables of one operation."""

    __slots__ = ("_failures", "_operation", "_runtime", "_seconds")

    def __init__(
        self, operation: str, seconds: Family[Histogram], failures: Family[Counter], runtime: Runtime
    ) -> None:
        self._operation = operation
        self._seconds = seconds.labels(operation)
        self._failures = failures
        self._runtime = runtime

    async def time(self, awaitable: Awaitable[T]) -> T:
        started = self._runtime.monotonic()
        try:
            return await awaitable
        except Exception as error:
            self.failed(error)
            raise
        finally:
            self.took(self._runtime.monotonic() - started)

    def took(self, seconds: float) -> None:
        self._seconds.observe(seconds)

    def failed(self, error: Exception) -> None:
        self._failures.labels(self._operation, type(error).__name__).value += 1


class InstrumentedMetadataStore:
    """A `MetadataStore` around another. A watch is passed through: it waits, it does not work."""

    def __init__(self, inner: MetadataStore, metrics: ProcessMetrics, runtime: Runtime) -> None:
        def watch(operation: str) -> _Stopwatch:
            return _Stopwatch(operation, metrics.metadata_seconds, metrics.metadata_failures, runtime)

        self.inner = inner
        self._write_domains = domains_writer(inner)
        self._get = watch("get")
        self._floor = watch("floor")
        self._ceiling = watch("ceiling")
        self._scan = watch("scan")
        self._write = watch("write")
        self._barrier = watch("barrier")
        self._session = watch("session")

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
        return await self._write.time(self.inner.write(domain, operations))

    async def write_domains(self, writes: Sequence[DomainWrite]) -> list[DomainOutcome]:
        """Timed as one write: that is what the caller waits for."""
        found = await self._write.time(self._write_domains(writes))
        for outcome in found:
            if not isinstance(outcome, list):
                self._write.failed(outcome)
        return found

    async def barrier(self, domain: int) -> None:
        await self._barrier.time(self.inner.barrier(domain))

    def watch(self, domain: int) -> AsyncIterator[Change]:
        return self.inner.watch(domain)

    async def session(self, domain: int, ttl: float) -> Session:
        return await self._session.time(self.inner.session(domain, ttl))

    async def close(self) -> None:
        await self.inner.close()


class InstrumentedObjectStore:
    """An `ObjectStore` around another, which also counts the bytes that pass."""

    def __init__(self, inner: ObjectStore, metrics: ProcessMetrics, runtime: Runtime) -> None:
        def watch(operation: str) -> _Stopwatch:
            return _Stopwatch(operation, metrics.object_seconds, metrics.object_failures, runtime)

        self.inner = inner
        self._runtime = runtime
        self._put = watch("put")
        self._put_if_absent = watch("put_if_absent")
        self._put_stream = watch("put_stream")
        self._get = watch("get")
        self._get_ranges = watch("get_ranges")
        self._head = watch("head")
        self._delete = watch("delete")
        self._list = watch("list")
        self._written = metrics.object_bytes.labels("write")
        self._read = metrics.object_bytes.labels("read")

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._put.time(self.inner.put(path, parts))
        self._written.value += sum(map(len, parts))

    async def put_if_absent(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._put_if_absent.time(self.inner.put_if_absent(path, parts))
        self._written.value += sum(map(len, parts))

    async def put_stream(self, path: str, pieces: AsyncIterator[Sequence[Buffer]]) -> None:
        await self._put_stream.time(self.inner.put_stream(path, self._counted(pieces)))

    async def _counted(self, pieces: AsyncIterator[Sequence[Buffer]]) -> AsyncIterator[Sequence[Buffer]]:
        async for parts in pieces:
            self._written.value += sum(map(len, parts))
            yield parts

    async def get(self, path: str) -> Buffer:
        content = await self._get.time(self.inner.get(path))
        self._read.value += len(content)
        return content

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        contents = await self._get_ranges.time(self.inner.get_ranges(path, ranges))
        self._read.value += sum(map(len, contents))
        return contents

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        result = await self._get_ranges.time(self.inner.with_ranges(path, ranges, work))
        self._read.value += sum([length for _, length in ranges])
        return result

    async def head(self, path: str) -> ObjectInfo:
        return await self._head.time(self.inner.head(path))

    async def delete(self, path: str) -> None:
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
