"""Hints at streams that carry: keys by which packers find what others have carried, and those before them.

*A stream that carries has a hint, at every moment:*

- A carried commit puts the hint, in the same write, unless its committer has put it before and every commit
  of the stream since then was its own (`StreamState.hinted_at`). Whoever else moves the high watermark takes
  that knowledge away: a commit that loses its race loads the state anew, and puts the hint.
- A hint is deleted in this order (`packing_rounds.py`): read it; seal the stream, and be told that the seal
  applied; then see that the stream carries nothing; delete the hint *at the version that was read*. What was
  carried before the seal is seen then. What is carried after it puts the hint after it, and so at another
  version.

No clock is asked for that. A hint is put again every half hour only so that others leave it alone: one that
has stood for an hour is of a broker that no longer carries, or no longer is.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.values import ValueCorrupt, seal, unseal

FORMAT: Final = 1
_HINT: Final = Struct(">q")


def put_hint(stream: int, now_ms: int) -> Put:
    return Put(keys.carried_hint(stream), encode_hint(now_ms))


def encode_hint(now_ms: int) -> bytes:
    """The time is for people."""
    return seal(FORMAT, _HINT.pack(now_ms))


def check_hint(value: bytes) -> None:
    """Raises `UnreadableValue`: the hint of another build may ask for something else."""
    _, body = unseal("a hint at carried entries", value, FORMAT)
    if len(body) != _HINT.size:
        raise ValueCorrupt("a hint at carried entries", f"it has {len(body)} bytes")
