"""Objects as files below a root directory, durable when `put` returns.

A put writes a file in `.dray-incoming`, syncs it, gives it its final name, and syncs the directory
that holds the name (each directory on the way having been made lasting before). So at any power cut
an object is under its name as a whole or not at all, and one that was acknowledged is there.

Each operation is one hop to a thread. Few system calls are made there, and each matters less for its
own cost than because the thread has to win the interpreter back from the event loop after it.

Large objects and large ranges go past the page cache where the file system lets them (`direct`).

Unlike on S3, a path cannot be both an object and the folder of another; asking for it is an error.
"""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TypeVar

from dray.base.runtime import Runtime, run_once
from dray.objects.contract import (
    KEPT,
    RESERVED,
    Buffer,
    ObjectError,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    OwnBuffer,
    check_inside,
    check_path,
    check_prefix,
    check_ranges,
)
from dray.objects.local.direct import WORTHWHILE, are_dense, read_dense_ranges
from dray.objects.local.disk import Descriptor, Disk, SystemDisk, read_ranges, write_all
from dray.objects.local.incoming import GrowingFile, IncomingFile
from dray.objects.local.open_files import Directories, OpenFiles, make_root_lasting
from dray.objects.local.second_names import SecondNames

T = TypeVar("T")

_OPEN_OBJECTS = 64
_OPEN_DIRECTORIES = 64
_IDLE_SECONDS = 30.0


class LocalStore:
    """Made by `LocalStore.open`. Several processes may have the same root open.

    `allocate` makes the buffers that are read into. Zeroing a mebibyte that is filled at once takes
    longer than filling it, and holds up every other thread meanwhile. Objects and ranges of
    `direct_from` bytes and more go past the page cache; None: all go through it."""

    def __init__(
        self,
        root: str,
        runtime: Runtime,
        disk: Disk,
        incoming: IncomingFile,
        allocate: Callable[[int], bytearray] = bytearray,
        direct_from: int | None = WORTHWHILE,
        second_names: str = "",
    ) -> None:
        """`second_names`: objects with this prefix have one (`second_names.py`)."""
        self._root = root
        self._direct_from = direct_from
        self._allocate = allocate
        self._runtime = runtime
        self._disk = disk
        self._incoming = incoming
        self._directories = Directories(disk, root, _OPEN_DIRECTORIES, runtime.monotonic)
        self._second = None
        if second_names:
            self._second = SecondNames(disk, root, second_names, self._directories, runtime.monotonic)
        self._files = OpenFiles(disk, self._open_object, _OPEN_OBJECTS, runtime.monotonic)
        self._direct_files = OpenFiles(disk, self._open_directly, _OPEN_OBJECTS, runtime.monotonic)
        self._gate = _Gate()
        self._idle_timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        root: str | os.PathLike[str],
        runtime: Runtime,
        disk: Disk | None = None,
        allocate: Callable[[int], bytearray] = bytearray,
        direct_from: int | None = WORTHWHILE,
        second_names: str = "",
    ) -> LocalStore:
        """Make the root if it is missing, and sweep what crashed processes left half written."""
        opened = os.fspath(root), runtime, disk or SystemDisk(), allocate, direct_from, second_names
        return await runtime.in_thread(cls._open, *opened)

    @classmethod
    def _open(
        cls,
        root: str,
        runtime: Runtime,
        disk: Disk,
        allocate: Callable[[int], bytearray],
        direct_from: int | None,
        second_names: str,
    ) -> LocalStore:
        root = os.path.abspath(root)
        with _errors("open the object store", root):
            make_root_lasting(disk, root)
            incoming = IncomingFile.open(disk, root, runtime)
            return cls(root, runtime, disk, incoming, allocate, direct_from, second_names)

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._runtime.in_thread(self._write, check_path(path), list(parts), True)

    async def put_if_absent(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._runtime.in_thread(self._write, check_path(path), list(parts), False)

    async def put_stream(self, path: str, pieces: AsyncIterator[Sequence[Buffer]]) -> None:
        growing = await self._runtime.in_thread(self._grow, check_path(path))
        try:
            async for parts in pieces:
                await self._runtime.in_thread(self._add, path, growing, parts)
            await self._runtime.in_thread(self._finish, path, growing)
        except BaseException:
            await asyncio.shield(self._runtime.in_thread(self._give_up, path, growing))
            raise

    async def get(self, path: str) -> Buffer:
        def read(file: Descriptor, size: int) -> Buffer:
            return read_ranges(self._disk, file, [(0, size)], self._allocate)[0]

        self._keep_open_for_a_while()
        return await self._runtime.in_thread(self._read, check_path(path), read, self._files)

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        return await self.with_ranges(path, ranges, _as_they_are)

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        wanted = check_ranges(path, ranges)

        def read(file: Descriptor, size: int) -> Sequence[OwnBuffer]:
            check_inside(path, size, wanted)
            return [*read_ranges(self._disk, file, wanted, self._allocate)]

        def read_directly(file: Descriptor, size: int) -> Sequence[OwnBuffer]:
            check_inside(path, size, wanted)
            return read_dense_ranges(partial(self._disk.read, file), wanted, self._allocate)

        self._keep_open_for_a_while()
        check_path(path)
        if self._worth_it(sum([length for _, length in wanted])) and are_dense(wanted):
            try:
                return await self._runtime.in_thread(
                    self._read_and, path, read_directly, self._direct_files, work
                )
            except _NoDirectAccess:
                self._direct_from = None
        return await self._runtime.in_thread(self._read_and, path, read, self._files, work)

    async def head(self, path: str) -> ObjectInfo:
        return await self._runtime.in_thread(self._head, check_path(path))

    async def delete(self, path: str) -> None:
        await self._runtime.in_thread(self._delete, check_path(path))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        folders = [check_prefix(prefix)]
        while folders:
            found, below = await self._runtime.in_thread(self._scan, folders.pop())
            folders += below
            for info in found:
                yield info

    async def close(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        await self._runtime.in_thread(self._close)

    # The methods that follow run in threads.

    def _write(self, path: str, parts: Sequence[Buffer], replace: bool) -> None:
        with self._gate, _errors("put", path):
            temporary = self._incoming.new_name()
            file = self._disk.create(self._incoming.descriptor, temporary)
            placed = False
            try:
                try:
                    self._fill(file, parts)
                    self._disk.sync(file)
                finally:
                    self._disk.close(file)
                self._place(path, temporary, replace)
                placed = replace
            finally:
                if not placed:
                    self._discard(temporary)
            self._forget_open(path)

    def _grow(self, path: str) -> GrowingFile:
        with self._gate, _errors("put", path):
            return GrowingFile(self._disk, self._incoming)

    def _add(self, path: str, growing: GrowingFile, parts: Sequence[Buffer]) -> None:
        with self._gate, _errors("put", path):
            growing.add(parts)

    def _finish(self, path: str, growing: GrowingFile) -> None:
        with self._gate, _errors("put", path):
            growing.finish()
            self._place(path, growing.name, replace=True)
            self._forget_open(path)

    def _give_up(self, path: str, growing: GrowingFile) -> None:
        with self._gate, _errors("put", path):
            growing.discard()

    def _fill(self, file: Descriptor, parts: Sequence[Buffer]) -> None:
        if self._worth_it(sum(map(len, parts))):
            if self._disk.write_directly(file, parts):
                return
            self._direct_from = None  # the file system has no such way: do not ask again
        write_all(self._disk, file, parts)

    def _worth_it(self, size: int) -> bool:
        return self._direct_from is not None and size >= self._direct_from

    def _forget_open(self, path: str) -> None:
        self._files.forget(path)
        self._direct_files.forget(path)

    def _place(self, path: str, temporary: str, replace: bool) -> None:
        folder, name = posixpath.split(path)
        try:
            self._place_in(folder, name, temporary, replace)
        except FileNotFoundError:
            # The folder was removed while we had it open.
            self._directories.forget(folder)
            self._place_in(folder, name, temporary, replace)
        if self._has_second(path):
            self._names.give(path)

    def _has_second(self, path: str) -> bool:
        return self._second is not None and self._second.covers(path)

    @property
    def _names(self) -> SecondNames:
        assert self._second is not None  # asked before
        return self._second

    def _place_in(self, folder: str, name: str, temporary: str, replace: bool) -> None:
        place = self._disk.rename if replace else self._disk.link
        with self._directories.borrow(folder) as directory:
            try:
                place(self._incoming.descriptor, temporary, directory, name)
            except FileExistsError:
                # The answer says that the object is there, so it has to stay there.
                self._disk.sync(directory)
                raise ObjectExists(f"{posixpath.join(folder, name)}: there is an object already") from None
            self._disk.sync(directory)

    def _discard(self, temporary: str) -> None:
        # It may have been renamed, and only the sync after it failed.
        with suppress(FileNotFoundError):
            self._disk.unlink(self._incoming.descriptor, temporary)

    def _read(self, path: str, read: Callable[[Descriptor, int], T], files: OpenFiles) -> T:
        with self._gate, _errors("get", path, missing=(FileNotFoundError, NotADirectoryError)):
            with files.borrow(path) as file:
                status = self._disk.status(file)
                if status.links:
                    return read(file, status.size)
            # The object was deleted or replaced since it was opened.
            files.forget(path)
            with files.borrow(path) as file:
                return read(file, self._disk.status(file).size)

    def _read_and(
        self,
        path: str,
        read: Callable[[Descriptor, int], Sequence[OwnBuffer]],
        files: OpenFiles,
        work: Callable[[Sequence[OwnBuffer]], T],
    ) -> T:
        return work(self._read(path, read, files))

    def _open_object(self, path: str) -> Descriptor:
        return self._checked(self._found(path, self._disk.open))

    def _open_directly(self, path: str) -> Descriptor:
        file = self._found(path, self._disk.open_directly)
        if file is None:
            raise _NoDirectAccess
        return self._checked(file)

    def _found(self, path: str, look: Callable[[str], T]) -> T:
        """An object that another program deleted is put back."""
        at = posixpath.join(self._root, path)
        try:
            return look(at)
        except (FileNotFoundError, NotADirectoryError):
            if not (self._has_second(path) and self._names.put_back(path)):
                raise
            return look(at)

    def _checked(self, file: Descriptor) -> Descriptor:
        if self._disk.status(file).is_file:
            return file
        self._disk.close(file)
        raise FileNotFoundError(errno.ENOENT, "a folder, not an object")

    def _head(self, path: str) -> ObjectInfo:
        with self._gate, _errors("head", path, missing=(FileNotFoundError, NotADirectoryError)):
            status = self._found(path, self._disk.status_of)
            if not status.is_file:
                raise FileNotFoundError(errno.ENOENT, "a folder, not an object")
            return ObjectInfo(path, status.size, status.modified_ms)

    def _delete(self, path: str) -> None:
        folder, name = posixpath.split(path)
        with self._gate, _errors("delete", path):
            if self._has_second(path):
                self._names.drop(path)  # first: what has it comes back
            try:
                directory = self._disk.open_directory(posixpath.join(self._root, folder))
            except (FileNotFoundError, NotADirectoryError):
                return
            try:
                # An earlier attempt may have got as far as the unlink: the sync is still due.
                with suppress(FileNotFoundError):
                    self._disk.unlink(directory, name)
                self._forget_open(path)
                self._disk.sync(directory)
            finally:
                self._disk.close(directory)

    def _scan(self, folder: str) -> tuple[Sequence[ObjectInfo], Sequence[str]]:
        """The objects right in a folder, and the folders right below it."""
        found: list[ObjectInfo] = []
        below: list[str] = []
        with self._gate, _errors("list", folder):
            try:
                names = self._disk.names(posixpath.join(self._root, folder))
            except (FileNotFoundError, NotADirectoryError):
                names = []
            if self._has_second(folder):
                names = [*names, *self._names.mend(folder, names)]
            for name in names:
                path = posixpath.join(folder, name)
                if path in (RESERVED, KEPT):
                    continue
                try:
                    status = self._disk.status_of(posixpath.join(self._root, path))
                except FileNotFoundError:
                    if self._has_second(folder):
                        below.append(path)  # a folder that is gone: what was in it comes back
                    continue
                if status.is_directory:
                    below.append(path)
                elif status.is_file:
                    found.append(ObjectInfo(path, status.size, status.modified_ms))
        return found, below

    def _close(self) -> None:
        self._gate.shut()
        with _errors("close the object store", self._root):
            self._files.close()
            self._direct_files.close()
            self._directories.close()
            if self._second is not None:
                self._second.close()
            self._incoming.close()

    # Objects that are not read are closed after a while: one deleted by another process would
    # otherwise keep its space on the disk.

    def _keep_open_for_a_while(self) -> None:
        if self._idle_timer is None:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(_IDLE_SECONDS, self._spawn_close_idle)

    def _spawn_close_idle(self) -> None:
        self._idle_timer = None
        run_once(self._runtime, "close idle objects", self._close_idle)

    async def _close_idle(self) -> None:
        moment = self._runtime.monotonic() - _IDLE_SECONDS
        for files in (self._files, self._direct_files):
            await self._runtime.in_thread(files.forget_unused_since, moment)
        if len(self._files) + len(self._direct_files):
            self._keep_open_for_a_while()


class _NoDirectAccess(Exception):
    """The file system has no way past its page cache."""


class _Gate:
    """Counts the operations under way. A caller that gave up waiting does not stop its thread, so
    closing has to wait for the threads themselves before it closes descriptors they use."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0
        self._shut = False

    def __enter__(self) -> None:
        with self._condition:
            if self._shut:
                raise ObjectError("the object store is closed")
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._condition:
            self._inside -= 1
            self._condition.notify_all()

    def shut(self) -> None:
        with self._condition:
            self._shut = True
            self._condition.wait_for(lambda: self._inside == 0)


def _as_they_are(buffers: Sequence[OwnBuffer]) -> Sequence[OwnBuffer]:
    return buffers


@contextmanager
def _errors(action: str, path: str, missing: tuple[type[OSError], ...] = ()) -> Iterator[None]:
    try:
        yield
    except missing as error:
        raise ObjectMissing(f"{path}: no such object") from error
    except OSError as error:
        raise ObjectError(f"cannot {action} {path}: {error.strerror or error}") from error
