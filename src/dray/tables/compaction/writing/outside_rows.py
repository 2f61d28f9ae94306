"""A unit's questions to the object that reads entries of a kind that the log does not read itself
(`log/outside_entries.py`); and how much of what was read is unfolded at once, by whatever reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from dray.base.runtime import Runtime
from dray.log.entries import IndexEntry
from dray.log.outside_table import OutsideTable
from dray.objects.contract import ObjectStore

if TYPE_CHECKING:
    import pyarrow


class OutsidePiece(NamedTuple):
    """The piece behind one row of an entry's table."""

    entry: IndexEntry
    table: OutsideTable
    number: int

    @property
    def is_last(self) -> bool:
        """Of its entry."""
        return self.number == len(self.table.rows) - 1


class FetchedRows(Protocol):
    """A piece as it was read, to be turned into rows."""

    def cut(self) -> Sequence[FetchedRows]:
        """Into parts that say they unfold to no more than is held at once, or cannot be cut."""

    def halves(self) -> Sequence[FetchedRows]: ...

    def following(self, expected: int, count: int, /) -> int:
        """The offset after these rows, of which there are so many."""

    def compressed_bytes(self) -> int: ...

    def decode(self, expected: int) -> pyarrow.RecordBatch:
        """The rows from the offset on that is expected next. It belongs in a thread."""


class OutsideRows(Protocol):
    async def fetch(self, piece: OutsidePiece, partition: int) -> FetchedRows:
        """Raises `OutsideFault`, `ObjectMissing`, `LogUnavailable`."""

    async def close(self) -> None: ...


class OutsideAddress(Protocol):
    """How a worker in another process comes to read such entries. It is pickled, secrets and all."""

    async def open(self, own: ObjectStore, runtime: Runtime) -> OutsideRows:
        """`own`: the cluster's store. Raises `ValueError` with one line."""


# --- unfolding

MIB: Final = 1 << 20
# The bytes to which several batches may unfold in one part, with what each record takes beside its key and
# value. A single batch may be as large as a broker accepts.
UNFOLDED_BYTES: Final = 64 * MIB
ROW_BYTES: Final = 64
ONE_BATCH_MOST: Final = 2**31 - 1


class UnfoldsTooFar(Exception):
    """Several batches that are more together than is held at once."""
