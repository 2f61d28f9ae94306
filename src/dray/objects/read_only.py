"""Stores of others, which Dray only reads: nothing is ever put there.

A directory of another program is read as it is, without the names and folders that our own engine keeps. An
object may be deleted only where its store was opened for that: segments that were adopted.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from dray.base.runtime import Runtime
from dray.objects.contract import (
    Buffer,
    ObjectError,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    OwnBuffer,
    Unsupported,
    check_inside,
    check_path,
    check_prefix,
    check_ranges,
)
from dray.objects.factory import open_store

T = TypeVar("T")


async def open_read_only(
    url: str,
    options: Mapping[str, str],
    runtime: Runtime,
    secrets: Mapping[str, str] | None = None,
    allocate: Callable[[int], bytearray] = bytearray,
) -> ObjectStore:
    """As `open_store`, for a store of another system. It is first asked when it is first used."""
    scheme, _, rest = url.partition(":")
    if scheme != "file":
        return ReadOnlyStore(await open_store(url, options, runtime, secrets, allocate))
    if unknown := [*options, *(secrets or ())]:
        raise ValueError(f"object store {url}: it has no option {unknown[0]!r}")
    root = rest.removeprefix("//")
    if not root:
        raise ValueError(f"object store {url}: it names no directory")
    return ForeignDirectory(root, runtime, allocate)


class ReadOnlyStore:
    """Any store, of which only the reads are left."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:  # noqa: ARG002
        _refuse(path)

    async def put_if_absent(self, path: str, parts: Sequence[Buffer]) -> None:  # noqa: ARG002
        _refuse(path)

    async def put_stream(self, path: str, pieces: AsyncIterator[Sequence[Buffer]]) -> None:  # noqa: ARG002
        _refuse(path)

    async def get(self, path: str) -> Buffer:
        return await self._store.get(path)

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        return await self._store.get_ranges(path, ranges)

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        return await self._store.with_ranges(path, ranges, work)

    async def head(self, path: str) -> ObjectInfo:
        return await self._store.head(path)

    async def delete(self, path: str) -> None:
        _refuse(path)

    async def delete_adopted(self, path: str) -> None:
        """An object that is ours by now. The credentials may still refuse."""
        await self._store.delete(path)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._store.list(prefix)

    async def close(self) -> None:
        await self._store.close()


class ForeignDirectory(ReadOnlyStore):
    """Files below a directory that another program wrote."""

    def __init__(self, root: str, runtime: Runtime, allocate: Callable[[int], bytearray] = bytearray) -> None:
        super().__init__(self)
        self._root = os.path.abspath(root)
        self._runtime = runtime
        self._allocate = allocate

    async def get(self, path: str) -> Buffer:
        info = await self.head(path)
        [data] = await self.get_ranges(path, [(0, info.size)])
        return data

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        return await self.with_ranges(path, ranges, lambda found: found)

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        wanted = check_ranges(path, ranges)
        return await self._runtime.in_thread(lambda: work(self._read(check_path(path), wanted)))

    async def head(self, path: str) -> ObjectInfo:
        return await self._runtime.in_thread(self._head, check_path(path))

    async def delete_adopted(self, path: str) -> None:
        await self._runtime.in_thread(self._delete, check_path(path))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for info in await self._runtime.in_thread(self._list, check_prefix(prefix)):
            yield info

    async def close(self) -> None:
        return

    def _read(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        with _errors("read", path), open(os.path.join(self._root, path), "rb", buffering=0) as file:
            check_inside(path, os.fstat(file.fileno()).st_size, ranges)
            found: list[OwnBuffer] = []
            for start, length in ranges:
                buffer = self._allocate(length)
                view, at = memoryview(buffer), 0
                while at < length:
                    taken = os.preadv(file.fileno(), [view[at:]], start + at)
                    if not taken:
                        raise ObjectError(f"{path}: it became shorter while it was read")
                    at += taken
                found.append(buffer)
            return found

    def _head(self, path: str) -> ObjectInfo:
        with _errors("look at", path):
            found = os.stat(os.path.join(self._root, path))
        return ObjectInfo(path, found.st_size, found.st_mtime_ns // 1_000_000)

    def _delete(self, path: str) -> None:
        try:
            os.unlink(os.path.join(self._root, path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise ObjectError(f"cannot delete {path}: {error.strerror}") from error

    def _list(self, prefix: str) -> Sequence[ObjectInfo]:
        found: list[ObjectInfo] = []
        top = os.path.join(self._root, prefix) if prefix else self._root
        for folder, _, names in os.walk(top):
            for name in sorted(names):
                full = os.path.join(folder, name)
                with _errors("look at", full):
                    stat = os.stat(full)
                path = os.path.relpath(full, self._root)
                found.append(ObjectInfo(path, stat.st_size, stat.st_mtime_ns // 1_000_000))
        return found


def _refuse(path: str) -> NoReturn:
    raise Unsupported(f"{path}: the store belongs to another system, and is only read")


@contextmanager
def _errors(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ObjectMissing(f"{path}: no such object") from error
    except OSError as error:
        raise ObjectError(f"cannot {what} {path}: {error.strerror}") from error
