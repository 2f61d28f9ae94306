"""The demo: its stream of orders, its steps, and its words about them."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import sys
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dray.base.runtime import SystemRuntime
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.words import about_size
from dray.daemons.supervisor.processes import Child, Supervisor
from dray.kafka.client import Cluster, Dialer, RequestFailed
from dray.kafka.client.admin import create_topic
from dray.kafka.client.errors import check
from dray.kafka.client.records import count_records, fetch, produce
from dray.kafka.records import BytesColumn, Columns, encode
from dray.tables.compaction.packages import missing_packages

# --- the stream: orders of a web shop, as JSON, with busy and quiet moments


TOPIC: Final = "orders"
PARTITIONS: Final = 4

_PRODUCTS: Final = (
    ("tea", 4.5),
    ("coffee", 9.9),
    ("cup", 7.0),
    ("kettle", 39.0),
    ("grinder", 89.0),
    ("book", 19.5),
)
_COUNTRIES: Final = ("DE", "FR", "IT", "JP", "US", "BR")
_CUSTOMERS: Final = 500


def rate_at(moment: float, usual: int) -> int:
    """Records per second: a slow wave, and a rush every twenty seconds."""
    wave = 1.0 + 0.4 * math.sin(moment / 6.0)
    rush = 2.5 if moment % 20.0 > 17.0 else 1.0
    return round(usual * wave * rush)


def make_orders(count: int, random: Random, now_ms: int) -> bytes:
    """A batch of so many orders. The header says who wrote it, as tracing headers do."""
    keys, values = [], []
    for _ in range(count):
        # Few customers order a lot.
        customer = int(_CUSTOMERS * random.random() ** 3)
        product, price = random.choice(_PRODUCTS)
        quantity = random.choice((1, 1, 1, 2, 3))
        keys.append(f"customer-{customer:03d}".encode())
        order = {
            "customer": customer,
            "country": _COUNTRIES[customer % len(_COUNTRIES)],
            "product": product,
            "quantity": quantity,
            "amount": round(price * quantity, 2),
        }
        values.append(json.dumps(order, separators=(",", ":")).encode())
    return bytes(encode(_columns(keys, values, now_ms), batch_bytes=1 << 24))


def _columns(keys: list[bytes], values: list[bytes], now_ms: int) -> Columns:
    count = len(keys)
    none_each = array("i", [-1] * count).tobytes()
    return Columns(
        row_count=count,
        header_count=count,
        offsets=array("q", range(count)).tobytes(),
        timestamps=array("q", [now_ms] * count).tobytes(),
        producer_ids=array("q", [-1] * count).tobytes(),
        producer_epochs=none_each,
        base_sequences=none_each,
        attributes=bytes(4 * count),
        keys=_bytes_column(keys),
        values=_bytes_column(values),
        headers=array("i", range(count + 1)).tobytes(),
        header_keys=_bytes_column([b"source"] * count),
        header_values=_bytes_column([b"web-shop"] * count),
    )


def _bytes_column(items: list[bytes]) -> BytesColumn:
    offsets = array("i", [0])
    for item in items:
        offsets.append(offsets[-1] + len(item))
    return BytesColumn(offsets.tobytes(), b"".join(items), None)


# --- the steps


_TICK_SECONDS = 0.1
_FETCH_BYTES = 8 << 20
_HEIGHT = 6
_MOST_WIDE = 100
_QUIET = {"DRAY_LOGGING__LEVEL": "warning"}

_QUESTIONS = (
    (
        "how the table looks",
        'select partition, count(*) as records, min("offset") as first, max("offset") as last, '
        "max(timestamp) as newest from orders group by partition order by partition",
    ),
    (
        "the best customers",
        "select decode(key) as customer, count(*) as orders, "
        "round(sum(cast(json_extract(decode(value), '$.amount') as double)), 2) as amount "
        "from orders group by customer order by amount desc limit 5",
    ),
    (
        "what sells",
        "select json_extract_string(decode(value), '$.product') as product, "
        "sum(cast(json_extract(decode(value), '$.quantity') as int)) as sold "
        "from orders group by product order by sold desc",
    ),
)


@dataclass
class DemoMeasurements:
    """The measurements of the demo, tick by tick."""

    produced: int = 0
    produced_bytes: int = 0
    consumed: int = 0
    rates: list[float] = field(default_factory=list)  # records per second
    lags: list[float] = field(default_factory=list)  # records


def run(*, seconds: int, rate: int, keep: Path | None) -> None:
    missing = missing_packages()
    if missing is not None:
        raise Failure(f"the demo cannot run: {missing}")
    directory = _directory(keep)
    try:
        try:
            asyncio.run(_run(directory, seconds, rate))
        except RequestFailed as error:
            raise Failure(str(error)) from error
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    if keep is not None:
        Console(highlight=False).print(f"\nEverything is in {keep}: go on with drayd up --data-dir {keep}")


def _directory(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="dray-demo-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise Failure(f"--keep {keep}: it is not empty; choose a new directory", USAGE)
    except OSError as error:
        raise Failure(f"--keep {keep}: {error.strerror}", USAGE) from error
    return keep


async def _run(directory: Path, seconds: int, rate: int) -> None:
    runtime = SystemRuntime()
    console = Console(highlight=False)
    arguments = ("broker", "--data-dir", str(directory), "--listen", "127.0.0.1:0", "--http", "off")
    supervisor = Supervisor([Child("the broker", arguments, _QUIET)], runtime)
    [ready] = await supervisor.start()
    try:
        address = ready["X_DRAY_KAFKA"]
        console.print(f"[bold]1[/]  a broker serves at {address}, with its data in {directory}")
        measured = await _stream(address, seconds, rate, runtime, console)
        await _compact(directory, console)
        await _ask(directory, console)
        _tell(measured, directory, seconds, console)
    finally:
        await supervisor.stop()
        runtime.close()


# --- produce and consume


async def _stream(
    address: str, seconds: int, rate: int, runtime: SystemRuntime, console: Console
) -> DemoMeasurements:
    host, _, port = address.rpartition(":")
    dial = Dialer(client_id="drayd-demo")
    # A consumer waits for records: it has connections of its own, so that the producer does not wait with it.
    producing, consuming = [Cluster([(host, int(port))], dial, runtime) for _ in range(2)]
    measured = DemoMeasurements()
    async with producing, consuming:
        await create_topic(producing, TOPIC, partitions=PARTITIONS)
        await producing.learn([TOPIC])
        topic_id = producing.view.topic_ids[TOPIC]
        console.print(
            f"[bold]2[/]  orders are produced for {seconds} s, into {PARTITIONS} partitions of the topic "
            f"'{TOPIC}', and consumed as they come"
        )
        live = Live(console=console, transient=True, refresh_per_second=4)
        with live if console.is_terminal else _Still() as shown:
            reader = runtime.spawn(_consume(consuming, topic_id, measured), "demo consumer")
            await _produce(producing, topic_id, seconds, rate, measured, runtime, shown)
            while measured.consumed < measured.produced and not reader.done():
                await runtime.sleep(_TICK_SECONDS)
        reader.cancel()
        await asyncio.wait({reader})
        if not reader.cancelled() and (error := reader.exception()) is not None:
            raise error
    for line in _picture(measured, console.width):
        console.print(line)
    return measured


async def _produce(
    cluster: Cluster,
    topic_id: UUID,
    seconds: int,
    rate: int,
    measured: DemoMeasurements,
    runtime: SystemRuntime,
    shown: Live | _Still,
) -> None:
    began = runtime.monotonic()
    owed, last, due = 0.0, began, began
    while (now := runtime.monotonic()) - began < seconds:
        owed += rate_at(now - began, rate) * (now - last)
        count, last = int(owed), now
        owed -= count
        if count:
            await _send(cluster, topic_id, count, measured, runtime)
        took = max(runtime.monotonic() - now, _TICK_SECONDS)
        measured.rates.append(count / took)
        measured.lags.append(measured.produced - measured.consumed)
        shown.update(Text("\n".join(_picture(measured, 100))))
        due = max(due + _TICK_SECONDS, runtime.monotonic())
        await runtime.sleep(due - runtime.monotonic())


async def _send(
    cluster: Cluster,
    topic_id: UUID,
    count: int,
    measured: DemoMeasurements,
    runtime: SystemRuntime,
) -> None:
    shares = [count // PARTITIONS + (index < count % PARTITIONS) for index in range(PARTITIONS)]
    batches = {
        index: make_orders(share, runtime.random, runtime.wall_ms())
        for index, share in enumerate(shares)
        if share
    }
    await produce(cluster, TOPIC, topic_id, batches)
    measured.produced += count
    measured.produced_bytes += sum(map(len, batches.values()))


async def _consume(cluster: Cluster, topic_id: UUID, measured: DemoMeasurements) -> None:
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    while True:
        for data in await fetch(cluster, TOPIC, topic_id, offsets, max_bytes=_FETCH_BYTES):
            check(f"cannot fetch from {TOPIC}-{data.partition_index}", data.error_code)
            count, upto = count_records(data.records)
            if count:
                offsets[data.partition_index] = upto
                measured.consumed += count


# --- compact and ask


async def _compact(directory: Path, console: Console) -> None:
    console.print("[bold]3[/]  Spark starts, and the log becomes Parquet files and an Iceberg table")
    await _drayd(directory, "compactor", "--once")


async def _ask(directory: Path, console: Console) -> None:
    console.print("[bold]4[/]  the table is asked, with drayd query")
    for about, statement in _QUESTIONS:
        console.print(f"\n   {about}: [dim]{statement}[/]")
        await _drayd(directory, "query", statement)


async def _drayd(directory: Path, *arguments: str) -> None:
    """Run a command, as a user would type it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dray.cli.main", *arguments, "--data-dir", str(directory)),
        stdin=asyncio.subprocess.DEVNULL,
        env=os.environ | _QUIET,
    )
    if await process.wait():
        raise Failure(f"drayd {arguments[0]} failed, see above")


# --- say what happened


def _tell(measured: DemoMeasurements, directory: Path, seconds: int, console: Console) -> None:
    objects = directory / "objects"
    wal, parquet = (_size_of(objects / part) for part in ("wal", "compaction"))
    console.print(
        f"\n[bold]5[/]  what happened: {measured.produced:,} records ({about_size(measured.produced_bytes)}) "
        f"were produced in {seconds} s and all {measured.consumed:,} consumed as they came, at most "
        f"{max(measured.lags, default=0):,.0f} behind. The log's objects hold {about_size(wal)}; the table's "
        f"files, which consumers read from now on too, {about_size(parquet)}."
    )


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _picture(measured: DemoMeasurements, width: int) -> Sequence[str]:
    room = min(_MOST_WIDE, max(20, width - 18))
    return [
        f"{'':>15} records produced per second",
        *chart(measured.rates, width=room, height=_HEIGHT, unit="/s"),
        f"{'':>15} records that the consumer is behind",
        *chart(measured.lags, width=room, height=_HEIGHT, unit="behind"),
    ]


class _Still:
    """In place of a live picture, where there is no terminal."""

    def __enter__(self) -> _Still:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, _: Text) -> None:
        pass


# --- curves in a terminal: a column per moment, eighths of a character high

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def chart(values: Sequence[float], *, width: int, height: int, unit: str) -> list[str]:
    """The lines of a chart from zero up to the greatest value, which stands beside its top."""
    columns = _fit(values, width)
    top = max(columns, default=0.0)
    scale = height * 8 / top if top > 0 else 0.0
    lines = []
    for row in range(height - 1, -1, -1):
        cells = [_EIGHTHS[max(0, min(8, round(value * scale) - row * 8))] for value in columns]
        label = f"{top:,.0f} {unit}" if row == height - 1 else "0" if row == 0 else ""
        lines.append(f"{label:>14} │{''.join(cells)}")
    return lines


def _fit(values: Sequence[float], width: int) -> list[float]:
    """The greatest of the values that fall into each column: a peak is never smoothed away."""
    if len(values) <= width:
        return list(values)
    bounds = [round(index * len(values) / width) for index in range(width + 1)]
    return [max(values[start:end]) for start, end in pairwise(bounds)]
