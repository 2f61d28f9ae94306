"""Lookups by time open batches in threads, by what they unfold to and within what may be unfolded at once."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.log.harness import World, append, batch_bytes

from dray.base.runtime import Allowance
from dray.kafka.records import Codec, crc32c, unfolds_to
from dray.log import Log
from dray.log.types import TimestampedOffset


def lying(data: bytearray) -> bytearray:
    """In gzip whose last member is empty: it says that it unfolds to nothing."""
    made = data[:61] + gzip.compress(bytes(data[61:])) + gzip.compress(b"")
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">h", made, 21, Codec.GZIP)
    struct.pack_into(">I", made, 17, crc32c(made[21:]))
    assert unfolds_to(made) == 1
    return made


@pytest.mark.parametrize("make", [bytearray, lying])
async def test_times_are_found_in_threads_and_within_the_allowance(
    make: Callable[[bytearray], bytearray], log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, make(batch_bytes([bytes(1000)] * 3, timestamps=[100, 300, 200])))
    await append(log, stream, make(batch_bytes([bytes(1000)] * 3, timestamps=[50, 150, 250])))
    held: list[int] = []
    in_thread = Allowance.in_thread

    async def noted(self: Allowance, runtime: Any, size: int, *rest: Any) -> Any:
        held.append(size)
        return await in_thread(self, runtime, size, *rest)

    monkeypatch.setattr(Allowance, "in_thread", noted)
    assert await log.find_timestamp(stream, 150) == TimestampedOffset(1, 300)
    assert len(held) == (2 if make is lying else 1)
    assert await log.delete_records(stream, 2) == 2
    assert await log.find_timestamp(stream, 150) == TimestampedOffset(2, 200)
    assert await log.find_max_timestamp(stream) == TimestampedOffset(5, 250)
    assert min(held) > 100
    if make is lying:
        assert max(held) > 1 << 30, "what may be anything is looked at alone"
