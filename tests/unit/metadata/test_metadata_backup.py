"""Backups of a metadata store: whole, whatever moves meanwhile, and refused where they are not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dray.metadata import keys
from dray.metadata.backup import BackedUp, BackupDecoder, BackupHeader, encode, read_all
from dray.metadata.contract import Put, Unavailable
from dray.metadata.memory import MemoryState, MemoryStore
from dray.metadata.values import FormatTooNew, ValueCorrupt
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

HEADER = BackupHeader("mine-mine-mine-mine-mi", 2, 1_700_000_000_000, "0.1.0")
RECORDS = [
    BackedUp(0, keys.CLUSTER, b"cluster", 1),
    BackedUp(0, keys.high_watermark(2), b"", 5),
    BackedUp(1, keys.high_watermark(1), bytes(range(256)) * 40, 1 << 40),
]


async def _pages(records: list[BackedUp]) -> AsyncIterator[list[BackedUp]]:
    for record in records:
        yield [record]


def encoded(records: list[BackedUp] = RECORDS) -> bytes:
    async def whole() -> bytes:
        return b"".join([piece async for piece in encode(HEADER, _pages(records))])

    return run(whole())


def decoded(data: bytes, step: int) -> list[BackedUp]:
    decoder = BackupDecoder()
    found: list[BackedUp] = []
    for start in range(0, len(data), step):
        found += decoder.feed(data[start : start + step])
    assert decoder.finish() == HEADER
    return found


@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 20])
def test_what_goes_in_comes_out(step: int) -> None:
    assert decoded(encoded(), step) == RECORDS


def test_one_that_is_not_whole_is_refused() -> None:
    data = encoded()
    for short in (0, 5, 20, 100, len(data) - 13, len(data) - 1):
        with pytest.raises(ValueCorrupt):
            decoded(data[:short], 1 << 20)
    with pytest.raises(ValueCorrupt):
        decoded(data + b"x", 1 << 20)


def test_no_byte_of_it_may_be_another() -> None:
    data = encoded()
    for place in [*range(200), *range(200, len(data), 101), *range(len(data) - 16, len(data))]:
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises((ValueCorrupt, FormatTooNew)):
            decoded(bytes(damaged), 1 << 20)


class _Moving(MemoryStore):
    """The job of a stream moves whenever the stream is read."""

    moves = 0

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list:  # type: ignore[type-arg]
        found = await super().scan(domain, start, end, limit)
        if start == keys.stream(2) and self.moves:
            self.moves -= 1
            await self.write(0, [Put(keys.high_watermark(2), b"end %d" % self.moves)])
            await self.write(0, [Put(keys.job(2), b"job %d" % self.moves)])
        return found


async def _filled(store: MemoryStore) -> None:
    await store.write(0, [Put(keys.CLUSTER, b"c"), Put(keys.broker(1), b"b"), Put(keys.clock("x"), b"")])
    await store.write(
        0, [Put(keys.high_watermark(2), b"end"), Put(keys.job(2), b"job"), Put(keys.job(4), b"4")]
    )
    await store.write(0, [Put(keys.index_entry(2, number, number), b"") for number in range(2500)])
    await store.write(1, [Put(keys.high_watermark(1), b"end"), Put(keys.carried_hint(1), b"")])


def test_all_of_a_store_but_what_sessions_hold() -> None:
    async def read() -> list[str]:
        store = MemoryStore(SimulatedRuntime(1), MemoryState())
        await _filled(store)
        return [record.key async for page in read_all(store, 2) for record in page]

    found = run(read())
    assert len(found) == len(set(found)) == 2500 + 6
    assert keys.job(4) in found, "of a stream that is gone"
    assert not any(key.startswith((keys.BROKERS, keys.CLOCKS)) for key in found)


def test_a_stream_and_its_job_are_of_one_moment() -> None:
    async def read(moves: int) -> dict[str, bytes]:
        store = _Moving(SimulatedRuntime(1), MemoryState())
        await _filled(store)
        store.moves = moves
        return {record.key: record.value async for page in read_all(store, 2) for record in page}

    found = run(read(5))
    assert (found[keys.high_watermark(2)], found[keys.job(2)]) == (b"end 0", b"job 0")
    with pytest.raises(Unavailable):
        run(read(1000))
