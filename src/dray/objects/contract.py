"""The object contract: what Dray asks of S3, GCS, Azure, a local disk or memory.

Objects are immutable: a path is written once and then only read or deleted. `put` returns when the
object is durable. Paths are relative to the store's root or prefix, with `/` between their parts; any
that breaks the rules below is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar

from dray.base.runtime import Runtime

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview
OwnBuffer: TypeAlias = bytearray | memoryview
"""One that its receiver may change."""

WORTH_A_THREAD: Final = 128 * 1024
"""Work on fewer bytes than that may be done on the event loop by `with_ranges`."""


class ObjectError(Exception):
    """The object store did not do what was asked; for a put or a delete, it may yet happen."""

    advice: str | None = None
    """Advice on what a person may do about it, as one phrase, where that is known."""

    is_passing = False
    """Is it likely to pass by itself, such as an overload?"""


class ObjectMissing(ObjectError):
    """There is no object at that path."""


class ObjectExists(ObjectError):
    """`put_if_absent` found an object there and left it alone."""


class Unsupported(ObjectError):
    """The store has no such operation, and did nothing: `put_if_absent`, where there are no conditional
    puts."""


class RangeOutside(ObjectError):
    """The range asked for reaches past the object's end."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    path: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        """Write the concatenation of `parts`, durably, in multiple uploads if it is large. They must
        not change before this returns, nor after it was cancelled: the bytes may still be on their way."""

    async def put_if_absent(self, path: str, parts: Sequence[Buffer]) -> None:
        """The same, or `ObjectExists`. Of several who try at once, one succeeds."""

    async def put_stream(self, path: str, pieces: AsyncIterator[Sequence[Buffer]]) -> None:
        """The same as `put` for what does not fit into memory: written as it comes. An error of `pieces` is
        raised, and then there is no object."""

    async def get(self, path: str) -> Buffer: ...

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        """One buffer per (start, length), each the caller's own to change; near ranges may be
        read together. All of them or an error, never a short one; what reaches past the object's end
        is `RangeOutside` before anything of that length is allocated. An empty range is never outside."""

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        """The result of `work` on the buffers that `get_ranges` returns, or its error. It may be run in a
        thread, where a store reads in one: then it costs the event loop nothing. On `WORTH_A_THREAD` bytes
        and more it is."""

    async def head(self, path: str) -> ObjectInfo: ...

    async def delete(self, path: str) -> None:
        """Gone when this returns; deleting what is not there is no error."""

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Every object below the folder `prefix`, in no particular order."""

    async def close(self) -> None: ...


# --- paths and ranges: one rule for every engine
#
# The rule is what S3, GCS, Azure and a POSIX file system all keep apart and give back unchanged. It is
# checked before an engine is asked, so a path can never climb out of a local root or be normalised into
# another object's path by a remote one.


# One name on a POSIX file system, and one key on S3.
_LONGEST_NAME = 255
_LONGEST_PATH = 1000

RESERVED = ".dray-incoming"
"""The local engine keeps unfinished objects under this name, in its root: no object may live there."""
KEPT = ".dray-kept"
"""And under this one second names of objects."""


def check_path(path: str) -> str:
    """The path itself, or `ValueError` saying what is wrong with it."""
    names = path.split("/")
    for name in names:
        if name in ("", ".", ".."):
            raise ValueError(f"object path {path!r}: a part may not be {name!r}")
        if "\\" in name:
            raise ValueError(f"object path {path!r}: Azure takes a backslash for a slash")
        if not name.isprintable():
            raise ValueError(f"object path {path!r}: only printable characters are allowed")
        if len(name.encode()) > _LONGEST_NAME:
            raise ValueError(f"object path {path!r}: a part is longer than {_LONGEST_NAME} bytes")
    if len(path.encode()) > _LONGEST_PATH:
        raise ValueError(f"object path {path[:80]!r}...: longer than {_LONGEST_PATH} bytes")
    if names[0] in (RESERVED, KEPT):
        raise ValueError(f"object path {path!r}: {names[0]!r} is reserved")
    return path


def check_prefix(prefix: str) -> str:
    """The folder `prefix` without its trailing slash; the empty one is the whole store."""
    return check_path(prefix.removesuffix("/")) if prefix else ""


def check_ranges(path: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    for start, length in ranges:
        if start < 0 or length < 0:
            raise ValueError(f"object {path!r}: the range ({start}, {length}) has a negative number")
    return list(ranges)


def check_inside(path: str, size: int, ranges: Sequence[tuple[int, int]]) -> None:
    """Done before anything is allocated, since the lengths may come from a corrupt object. An empty
    range is never outside."""
    for start, length in ranges:
        if length and start + length > size:
            raise outside(path, size, start, length)


def outside(path: str, size: int, start: int, length: int) -> RangeOutside:
    return RangeOutside(f"{path}: it has {size} bytes, {start} to {start + length} were asked for")


# --- the time that a store has: when it says it took an object of ours


CLOCKS: Final = "clocks/v1/"

_LEFT_OVER_MS: Final = 3600 * 1000


async def read_clock(objects: ObjectStore, runtime: Runtime) -> int:
    """Milliseconds since the epoch, by the store's clock. Raises `ObjectError`.

    An object is written for it and deleted again. One that a process left behind, since it died in between,
    is deleted by the next one: its age is judged by the store's clock alone.
    """
    path = f"{CLOCKS}{runtime.uuid().hex}"
    await objects.put(path, [b"-"])
    try:
        now_ms = (await objects.head(path)).modified_ms
        left_over = [info async for info in objects.list(CLOCKS) if info.modified_ms < now_ms - _LEFT_OVER_MS]
    finally:
        await objects.delete(path)
    for info in left_over:
        await objects.delete(info.path)
    return now_ms
