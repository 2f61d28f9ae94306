"""The object contract: what Dray asks of S3, GCS, Azure, a local disk or memory.

Objects are immutable: a path is written once and then only read or deleted. `put` returns when the
object is durable. Paths are relative to the store's root or prefix, with `/` between their parts;
`names` says which ones there are, and any other is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview
OwnBuffer: TypeAlias = bytearray | memoryview
"""One that its receiver may change."""

WORTH_A_THREAD: Final = 128 * 1024
"""Work on fewer bytes than that may be done on the event loop by `with_ranges`."""


class ObjectError(Exception):
    """The object store did not do what was asked; for a put or a delete, it may yet happen."""


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
        """The same as `put` for what does not fit into memory: written as it comes. What `pieces` raises
        is raised, and then there is no object."""

    async def get(self, path: str) -> Buffer: ...

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        """One buffer per (start, length), each the caller's own to change; near ranges may be
        read together. All of them or an error, never a short one; what reaches past the object's end
        is `RangeOutside` before anything of that length is allocated. An empty range is never outside."""

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        """What `work` makes of the buffers that `get_ranges` returns, or what it raises. It may be run in a
        thread, where a store reads in one: then it costs the event loop nothing. On `WORTH_A_THREAD` bytes
        and more it is."""

    async def head(self, path: str) -> ObjectInfo: ...

    async def delete(self, path: str) -> None:
        """Gone when this returns; deleting what is not there is no error."""

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Every object below the folder `prefix`, in no particular order."""

    async def close(self) -> None: ...
