"""How fast the records core is, beside its plain-Python twin.

    python -m bench.record_core

One process, one core; every figure is the best of five runs. Records/s and GB/s count uncompressed bytes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.table import Table

from dray.kafka.records import Codec, crc32c, decode, encode, twin, validate
from dray.kafka.records._core import HARDWARE_CRC, crc32c_software
from dray.kafka.records.columns import Record

RUNS = 5
SECONDS_PER_RUN = 0.1
LIMITS = {"max_batch_bytes": 1 << 30, "max_decompressed_bytes": 1 << 30}


def seconds(work: Callable[[], object]) -> float:
    """Of one call, the best of several runs."""
    started = time.perf_counter()
    work()
    repeat = max(1, int(SECONDS_PER_RUN / max(time.perf_counter() - started, 1e-9)))
    best = float("inf")
    for _ in range(RUNS if repeat > 1 else 1):
        started = time.perf_counter()
        for _ in range(repeat):
            work()
        best = min(best, (time.perf_counter() - started) / repeat)
    return best


def make_records(count: int, value_size: int) -> list[Record]:
    """Values that compress about as text does."""
    chance = random.Random(1)
    words = [chance.randbytes(6).hex().encode() for _ in range(200)]
    return [
        Record(
            n, 1_700_000_000_000 + n, None, b" ".join(chance.choices(words, k=value_size // 12))[:value_size]
        )
        for n in range(count)
    ]


def checksums() -> Iterator[tuple[str, int, int, float, float | None]]:
    data = random.Random(1).randbytes(1 << 20)
    name = "crc32c, hardware" if HARDWARE_CRC else "crc32c, no hardware"
    small = memoryview(data)[: 16 * 1024]
    yield f"{name}, 16 KiB", 0, len(small), seconds(lambda: crc32c(small)), None
    yield f"{name}, 1 MiB", 0, len(data), seconds(lambda: crc32c(data)), seconds(lambda: twin.crc32c(data))
    yield "crc32c, tables, 1 MiB", 0, len(data), seconds(lambda: crc32c_software(data)), None


def batches(count: int, value_size: int) -> Iterator[tuple[str, int, int, float, float | None]]:
    records = make_records(count, value_size)
    plain = bytes(twin.encode(records))
    columns = decode(plain)
    size = len(plain)
    label = f"{count:,} x {value_size} B"
    yield (
        f"validate, {label}",
        count,
        size,
        seconds(lambda: validate(plain, **LIMITS)),
        seconds(lambda: twin.validate(plain, **LIMITS)),
    )
    yield (
        f"decode, {label}",
        count,
        size,
        seconds(lambda: decode(plain)),
        seconds(lambda: twin.decode(plain)),
    )
    yield (
        f"encode, {label}",
        count,
        size,
        seconds(lambda: encode(columns, batch_bytes=1 << 30)),
        seconds(lambda: twin.encode(records)),
    )


def compressed(count: int, value_size: int) -> Iterator[tuple[str, int, int, float, float | None]]:
    columns = decode(twin.encode(make_records(count, value_size)))
    size = len(encode(columns, batch_bytes=1 << 30))
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        batch = encode(columns, codec=codec, batch_bytes=1 << 30)

        def check(batch: bytearray = batch) -> object:
            return validate(batch, **LIMITS)

        def pack(codec: Codec = codec) -> object:
            return encode(columns, codec=codec, batch_bytes=1 << 30)

        name = codec.name.lower()
        yield f"validate {name}, {count:,} x {value_size} B", count, size, seconds(check), None
        yield f"encode {name}, {count:,} x {value_size} B", count, size, seconds(pack), None


def main() -> None:
    table = Table(
        "what", *("M records/s", "GB/s", "µs", "twin, M records/s", "core / twin"), title="records core"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    measured = (
        checksums(),
        batches(150, 100),
        batches(10_000, 90),
        batches(1000, 1000),
        compressed(10_000, 90),
    )
    for figures in measured:
        for what, count, size, core, plain in figures:
            table.add_row(
                what,
                f"{count / core / 1e6:.1f}" if count else "",
                f"{size / core / 1e9:.2f}",
                f"{core * 1e6:.1f}",
                f"{count / plain / 1e6:.3f}" if plain and count else "",
                f"{plain / core:,.0f}x" if plain else "",
            )
        table.add_section()
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
