"""How much of what was read is unfolded at once."""

from __future__ import annotations

from typing import Final

MIB: Final = 1 << 20
# What several batches may unfold to in one part, with what each record takes beside its key and value. A
# single batch may be as large as a broker accepts.
UNFOLDED_BYTES: Final = 64 * MIB
ROW_BYTES: Final = 64
ONE_BATCH_MOST: Final = 2**31 - 1


class UnfoldsTooFar(Exception):
    """Several batches that are more together than is held at once."""
