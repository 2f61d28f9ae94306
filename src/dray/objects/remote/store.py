"""Objects in S3, GCS or Azure, through `obstore`.

The contract adds to it: paths are checked by our own rules, ranges are whole or an error, buffers are the
caller's own, and errors are few, named, and free of credentials.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dray.base.runtime import Runtime, gather_some
from dray.objects.contract import (
    WORTH_A_THREAD,
    Buffer,
    ObjectError,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    OwnBuffer,
    check_inside,
    check_path,
    check_prefix,
    check_ranges,
    outside,
)
from dray.objects.remote.failures import translated_errors
from dray.objects.remote.second_tries import Race, UsualTimes

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult
    from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store

    ObstoreStore = S3Store | GCSStore | AzureStore | MemoryStore | LocalStore


T = TypeVar("T")

_LISTED_AT_ONCE = 1000
_ETAGS = (re.compile(r'"?[0-9a-fA-F]{32}"?'), re.compile(r'"?0x[0-9A-F]{12,}"?'))
"""A digest, as of S3 and most that speak it; a time, as of Azure. A server of pages has neither."""
_JOINED_INLINE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    multipart_threshold: int = 16 * 1024 * 1024
    """Objects larger than this go up in parts."""
    part_size: int = 8 * 1024 * 1024
    """At least 5 MiB on S3."""
    requests_in_flight: int = 4
    """For the parts of one put, or the ranges of one get."""
    coalesce: int = 1024 * 1024
    """Ranges no further apart than this are read in one request."""
    exit_grace_seconds: float = 0.1


class RemoteStore:
    """A put may have happened though it failed; one that never finished its parts leaves them in the
    bucket, unseen, until a lifecycle rule clears them.

    `put_if_absent` is one conditional request. When its answer is lost and the client asks again, it
    can meet its own object and raise `ObjectExists`: who must know writes something that is theirs
    alone, and reads it back.
    """

    def __init__(self, store: ObstoreStore, runtime: Runtime, settings: RemoteSettings | None = None) -> None:
        self._store = store
        self._runtime = runtime
        self._settings = settings or RemoteSettings()
        self._puts, self._reads = UsualTimes(), UsualTimes()
        self._etags: re.Pattern[str] | None = None
        self.gives_versions: bool | None = None
        """Has the store named a version of what was put? None: not tried yet. Only that of S3 means that
        older ones are kept."""
        self._trial: Callable[[], Awaitable[None]] | None = None

    def _asked(
        self, start: Callable[[], Coroutine[Any, Any, T]], size: int, times: UsualTimes
    ) -> asyncio.Future[T]:
        """The answer to a request that may be made twice."""
        create_task = asyncio.get_running_loop().create_task
        return Race(lambda: create_task(start()), size, times, self._runtime.monotonic).answer

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        check_path(path)
        settings = self._settings
        await self._be_tried()
        with translated_errors("put", path):
            if sum(map(len, parts)) <= settings.multipart_threshold:
                await self._put_at_once(path, await self._payload(parts))
                return
            await self._store.put_async(
                path,
                _pieces(parts, settings.part_size),
                use_multipart=True,
                chunk_size=settings.part_size,
                max_concurrency=settings.requests_in_flight,
            )

    async def _put_at_once(self, path: str, payload: bytes) -> None:
        """Twice, perhaps: the same bytes at the same path."""
        done = await self._asked(
            lambda: self._store.put_async(path, payload, use_multipart=False), len(payload), self._puts
        )
        self._believe(path, done)

    def _believe(self, path: str, done: PutResult) -> None:
        """A page of something else on the way to the store says 200 too. (An answer without any ETag is an
        error of the client's own.)"""
        if self._etags is not None and not self._etags.fullmatch(done["e_tag"] or ""):
            raise ObjectError(
                f"cannot put {path}: the answer is not the store's: its ETag is {done['e_tag']!r}"
            )

    def try_before_puts(self, trial: Callable[[], Awaitable[None]]) -> None:
        """The store could not be tried at the start: then the first put waits until it was."""
        self._trial = trial

    async def _be_tried(self) -> None:
        if self._trial is not None:
            await self._trial()
            self._trial = None

    async def try_out(self, path: str, payload: bytes) -> ObjectInfo:
        """Put a first object, see that it is there, and what the store's ETags look like: every later put has
        to be answered with such a one."""
        with translated_errors("put", path):
            done = await self._asked(
                lambda: self._store.put_async(path, payload, use_multipart=False), len(payload), self._puts
            )
        found: ObjectInfo | None = None
        with suppress(ObjectMissing):
            found = await self.head(path)
        if found is None or found.size != len(payload):
            raise ObjectError(f"{path} was put, and is not there: something else answers for the store")
        self.gives_versions = done["version"] is not None
        self._etags = next((form for form in _ETAGS if form.fullmatch(done["e_tag"] or "")), None)
        return found

    async def put_if_absent(self, path: str, parts: Sequence[Buffer]) -> None:
        check_path(path)
        await self._be_tried()
        with translated_errors("put", path):
            payload = await self._payload(parts)
            done = await self._store.put_async(path, payload, mode="create", use_multipart=False)
            self._believe(path, done)

    async def _payload(self, parts: Sequence[Buffer]) -> bytes:
        """The copying of a large object would hold up everybody else; off the loop, it holds no lock."""
        if sum(map(len, parts)) < _JOINED_INLINE:
            return b"".join(parts)
        return await self._runtime.in_thread(b"".join, parts)

    async def put_stream(self, path: str, pieces: AsyncIterator[Sequence[Buffer]]) -> None:
        check_path(path)
        settings = self._settings
        await self._be_tried()
        stream = _Joined(pieces, settings.part_size)
        try:
            with translated_errors("put", path):
                await self._store.put_async(
                    path,
                    stream.pieces(),
                    use_multipart=True,
                    chunk_size=settings.part_size,
                    max_concurrency=settings.requests_in_flight,
                )
        except ObjectError:
            if stream.failure is not None:
                raise stream.failure from None
            raise

    async def get(self, path: str) -> Buffer:
        check_path(path)
        with translated_errors("get", path):
            begun = [await self._asked(lambda: self._store.get_async(path), 0, self._reads)]
            size = begun[0].meta["size"]

            async def content() -> memoryview:
                """Of the answer that has begun; where its body hangs, of another."""
                found = begun.pop() if begun else await self._store.get_async(path)
                return memoryview(await found.bytes_async())

            return await self._asked(content, size, self._reads)

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytearray]:
        check_path(path)
        wanted = check_ranges(path, ranges)
        if wanted and not any(length for _, length in wanted):
            await self.head(path)
        runs = _runs(wanted, self._settings.coalesce)
        limit = asyncio.Semaphore(self._settings.requests_in_flight)
        found = await gather_some(self._read(path, run, limit) for run in runs)
        buffers = [bytearray() for _ in wanted]
        for run, data in zip(runs, found, strict=True):
            for index in run.indexes:
                start, length = wanted[index]
                buffers[index] += data[start - run.start : start - run.start + length]
        return buffers

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        buffers = await self.get_ranges(path, ranges)
        if sum(map(len, buffers)) < WORTH_A_THREAD:
            return work(buffers)
        return await self._runtime.in_thread(work, buffers)

    async def _read(self, path: str, run: _Run, limit: asyncio.Semaphore) -> memoryview:
        """obstore joins ranges itself in `get_ranges`, but panics when one of them lies outside."""
        length = run.end - run.start
        try:
            async with limit:
                with translated_errors("get", path):
                    found = await self._asked(
                        lambda: self._store.get_range_async(path, start=run.start, length=length),
                        length,
                        self._reads,
                    )
        except ObjectMissing:
            raise
        except ObjectError as error:
            # Each store words it differently when a range begins past the end; its size tells.
            if "range" in str(error).lower():
                check_inside(path, (await self.head(path)).size, [(run.start, length)])
            raise
        if len(found) < length:
            raise outside(path, run.start + len(found), run.start, length)
        return memoryview(found)

    async def head(self, path: str) -> ObjectInfo:
        check_path(path)
        try:
            with translated_errors("head", path):
                return _info(await self._asked(lambda: self._store.head_async(path), 0, self._reads))
        except ObjectMissing:
            # An answer to HEAD has no body: that of a GET tells a missing bucket from a missing object.
            with translated_errors("get", path):
                found = await self._asked(lambda: self._store.get_async(path), 0, self._reads)
                return _info(found.meta)

    async def delete(self, path: str) -> None:
        check_path(path)
        try:
            with translated_errors("delete", path):
                await self._store.delete_async(path)
        except ObjectMissing:
            return

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        folder = check_prefix(prefix)
        with translated_errors("list", folder):
            async for found in self._store.list(folder or None, chunk_size=_LISTED_AT_ONCE):
                for meta in found:
                    yield _info(meta)

    async def close(self) -> None:
        # obstore's own threads let go of Python objects shortly after they answered, and the process
        # aborts if the interpreter is being torn down just then. There is no call to wait for them.
        await self._runtime.sleep(self._settings.exit_grace_seconds)


@dataclass(slots=True)
class _Run:
    """Ranges to be read in one request, by their place in the list."""

    start: int
    end: int
    indexes: list[int]


def _runs(ranges: list[tuple[int, int]], nearest: int) -> list[_Run]:
    runs: list[_Run] = []
    for index in sorted(range(len(ranges)), key=ranges.__getitem__):
        start, length = ranges[index]
        if not length:
            # The stores refuse empty ranges.
            continue
        if runs and start <= runs[-1].end + nearest:
            runs[-1].end = max(runs[-1].end, start + length)
            runs[-1].indexes.append(index)
        else:
            runs.append(_Run(start, start + length, [index]))
    return runs


def _info(meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))


class _Joined:
    """Pieces as the client takes them. It makes any error of theirs its own: the true one is kept here."""

    def __init__(self, pieces: AsyncIterator[Sequence[Buffer]], size: int) -> None:
        self._pieces = pieces
        self._size = size
        self.failure: BaseException | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        waiting: list[Buffer] = []
        size = 0
        try:
            async for parts in self._pieces:
                waiting += parts
                size += sum(map(len, parts))
                if size >= self._size:
                    yield b"".join(waiting)
                    waiting, size = [], 0
            if waiting:
                yield b"".join(waiting)
        except BaseException as error:
            self.failure = error
            raise


def _pieces(parts: Sequence[Buffer], size: int) -> Iterator[bytes]:
    """The concatenation of `parts`, cut every `size` bytes: no more than a few pieces are copied and
    in memory at a time."""
    piece: list[Buffer] = []
    missing = size
    for part in parts:
        view = memoryview(part)
        while len(view) >= missing:
            yield b"".join((*piece, view[:missing]))
            view = view[missing:]
            piece, missing = [], size
        if view:
            piece.append(view)
            missing -= len(view)
    if piece:
        yield b"".join(piece)


# --- whether it can be used at all
#
# Asked once when a process starts. A bucket that does not exist, credentials that are refused and an
# endpoint without a server would otherwise be found by the first producer. The attempts are those that a
# broker makes later: list, put, delete.


TRIALS: Final = "dray-access-checks"
"""The folder of what is put and deleted, by each process under a name of its own: many start at once."""

_LEFT_OVER_MS: Final = 3600 * 1000


class NoAccess(ObjectError):
    """The text says what to do."""

    def __init__(self, failure: ObjectError) -> None:
        super().__init__(f"{failure.advice} ({failure})" if failure.advice else str(failure))
        self.is_passing = failure.is_passing


def keeps_no_versions(store: ObjectStore) -> bool:
    """Was the store, one of S3, tried, and does its bucket keep none? Then nobody can put back what was
    deleted."""
    return isinstance(store, RemoteStore) and store.gives_versions is False


async def check_access(store: RemoteStore, runtime: Runtime) -> None:
    """Raises `NoAccess`."""
    path = f"{TRIALS}/{runtime.uuid().hex}"
    try:
        found = [info async for info in store.list(TRIALS)]
        now_ms = (await store.try_out(path, b"Dray was here.")).modified_ms
        await store.delete(path)
        for info in found:
            if info.modified_ms < now_ms - _LEFT_OVER_MS:  # of a process that died in between
                await store.delete(info.path)
    except ObjectError as failure:
        raise NoAccess(failure) from None
