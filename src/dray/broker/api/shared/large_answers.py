"""Answers that are large: counted and reserved before they are encoded, and encoded some in each turn.

A small request may have a large answer: all there is, or one thing of which much is known. So its size is
found out first (`weigh`, which stops early), and what is above `AT_ONCE` is encoded in pieces: each piece
is reserved in the memory for answers, and what does not fit is refused before it takes memory. Answers with
records have their own way (`dray.log.read.poll`).
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dray.base.runtime import AT_A_TIME, CloseConnection, TurnShare, gather_some, owner_of
from dray.broker.security.acls.authorization import host_of
from dray.kafka.protocol import ENDLESS, Buffer, Struct
from dray.kafka.protocol.message import scatter
from dray.kafka.protocol.wire import Cuts

if TYPE_CHECKING:
    from dray.base.runtime import AnswerRoom, FairWork, Runtime
    from dray.broker.api.shared.context import ClientConnection

AT_ONCE: Final = 64 * 1024
"""Bytes that are encoded within one turn: some thousand small parts, a few milliseconds."""

BYTES_OF_A_PIECE: Final = 256
"""The bytes that take as long to encode as a piece of a crowd."""

ROOM_SECONDS: Final = 30.0
"""How long an answer may wait for memory, which others give back as their clients read."""

_FIXED: Final = frozenset({"int", "bool", "float", "UUID"})

T = TypeVar("T", bound=Struct)


class AnswerTooLarge(Exception):
    """The answer exceeds what one may have. The text says what to do."""


class WrittenPart(Struct):
    """Parts of a response that are encoded already: to encode the response puts them in their place, without
    a copy."""

    __slots__ = ("buffers", "size")

    def __init__(self, buffers: list[Buffer]) -> None:
        self.buffers = buffers
        self.size = sum(map(len, buffers))

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:  # noqa: ARG002 - as all parts
        if self.size:
            cuts.append((len(out), self.buffers))


_NOTHING: Final = WrittenPart([])
"""In the place of a part that was written together with one behind it."""


_shapes: dict[Any, tuple[int, tuple[str, ...]]] = {}


def _shape(kind: Any) -> tuple[int, tuple[str, ...]]:
    """The bytes of the fields that have a fixed size, roughly, and the names of the others."""
    shape = _shapes.get(kind)
    if shape is None:
        names = tuple(name for name in kind.__slots__ if kind.__annotations__.get(name) not in _FIXED)
        shape = _shapes[kind] = 1 + 6 * (len(kind.__slots__) - len(names)), names
    return shape


def weigh(struct: Any, most: int) -> int:
    """About how many bytes it has when it is encoded. Looks no further where that is above `most`."""
    if type(struct) is WrittenPart:
        return struct.size
    size, names = _shape(type(struct))
    for name in names:
        value = getattr(struct, name)
        if type(value) is list:
            size += _weigh_list(value, most - size)
        elif isinstance(value, Struct):
            size += weigh(value, most - size)
        elif value is not None:
            size += 2 + len(value)
        if size > most:
            break
    return size


def _weigh_list(values: list[Any], most: int) -> int:
    if not values:
        return 1
    first = values[0]
    if not isinstance(first, Struct):
        return 4 * len(values) if isinstance(first, int) else sum(map(len, values)) + 2 * len(values)
    size, names = _shape(first.__class__)
    if not names:
        return size * len(values)
    size = 0
    for value in values:
        size += weigh(value, most - size)
        if size > most:
            break
    return size


class LargeAnswer:
    """The answer to one request while it is made. A handler that makes much gives it the parts as they are
    made (`gather`, `write`)."""

    __slots__ = ("_connection", "_limit", "_room", "_runtime", "_share", "_size", "_version")

    def __init__(
        self, runtime: Runtime, version: int, connection: ClientConnection, limit: int, work: FairWork
    ) -> None:
        self._runtime = runtime
        self._version = version
        self._connection = connection
        self._limit = limit
        self._share = TurnShare(work, owner_of(host_of(connection.peer)))
        self._size = 0
        self._room: AnswerRoom | None = None

    async def gather(self, work: Iterable[Coroutine[Any, Any, T]], at_a_time: int = AT_A_TIME) -> list[T]:
        """As `gather_some`, for parts of the answer: where there are many, they are written as they come."""
        results: list[T] = []
        waiting = iter(work)
        while some := list(islice(waiting, at_a_time)):
            made = await gather_some(some)
            if len(some) == at_a_time:
                await self.write(made)
            results += made
        return results

    async def write(self, parts: list[Any]) -> None:
        """Put what is encoded in the place of parts of a list. Those with much in them stay, and their own
        parts are written. Such a one may weigh less after that, and then is put with others around it."""
        if not self._size:  # each further piece waits behind the one before it
            await self._share.go_on(AT_ONCE // BYTES_OF_A_PIECE)
        content, last = bytearray(), -1
        cuts: Cuts = []
        for place, part in enumerate(parts):
            is_written = type(part) is WrittenPart
            is_large = weigh(part, AT_ONCE) > AT_ONCE
            if is_written or is_large or len(content) >= AT_ONCE:
                await self._keep(parts, last, content, cuts)
                content, cuts = bytearray(), []
            if not is_written and is_large:
                await self.write_lists(part)
            elif not is_written:
                part.write(content, self._version, cuts)
                parts[place], last = _NOTHING, place
        await self._keep(parts, last, content, cuts)

    async def _keep(self, parts: list[Any], last: int, content: bytearray, cuts: Cuts) -> None:
        if content:
            await self._hold(len(content))
            parts[last] = WrittenPart(scatter(content, cuts) if cuts else [content])

    async def write_lists(self, struct: Any) -> None:
        """Write what is in the lists of a struct, and count what else is large in it."""
        for name in _shape(type(struct))[1]:
            value = getattr(struct, name)
            if isinstance(value, Struct):
                await self.write_lists(value)
            elif type(value) is list and value and isinstance(value[0], Struct):
                parts = value.copy()  # what the handler made it of may be kept elsewhere
                setattr(struct, name, parts)
                await self.write(parts)
            elif value:
                await self._hold(_weigh_list(value, ENDLESS) if type(value) is list else len(value))

    async def _hold(self, size: int) -> None:
        """Reserve so much more, before it is there for long; then others have a turn."""
        if self._room is None:
            await self._connection.turn()
            self._room = self._connection.room()
        self._size += size
        if self._size > self._limit:
            raise AnswerTooLarge(f"the answer would be larger than {self._limit} bytes: ask for less")
        if not (self._room.take(self._size) or await self._room.wait(self._size, ROOM_SECONDS)):
            # No error of Kafka's says so to all clients: they come again once they are disconnected.
            raise CloseConnection("there was no memory for the answer (limits.answer_bytes)")
        await self._share.go_on(min(size, AT_ONCE) // BYTES_OF_A_PIECE)
        await self._runtime.sleep(0)
