"""`drayd bench`: how fast a running broker takes records, and gives them back."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
import uvloop

from dray.cli.bench_run import BenchPlan, BenchResult, run
from dray.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    parse_bootstrap,
    unreachable,
)
from dray.cli.output import print_json, print_table
from dray.client import ClientError, RequestFailed
from dray.config.kinds import GIB, Size
from dray.daemon.failures import USAGE, Failure


def bench(
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    records: Annotated[int, typer.Option("--records", "-n", min=1, help="How many records.")] = 1_000_000,
    size: Annotated[int, typer.Option("--size", "-s", min=1, max=1 << 20, help="Bytes of a value.")] = 1024,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, max=10_000, help="Of the topic that is made for it.")
    ] = 16,
    batch_bytes: Annotated[
        str, typer.Option(help="Records are sent in batches of about this size.", metavar="SIZE")
    ] = "128KiB",
    in_flight: Annotated[
        int, typer.Option(min=1, max=1000, help="Requests of a connection under way at once.")
    ] = 5,
    connections: Annotated[
        int, typer.Option(min=1, max=100, help="Connections to produce and fetch on.")
    ] = 2,
    topic: Annotated[str, typer.Option(help="Must not exist yet; deleted afterwards.")] = "dray-bench",
    json: JsonOption = False,
) -> None:
    """Produce records to a new topic, fetch them all, and say how fast that was.

    The client is small and runs in this one process: it tells what to expect, not what a broker can do
    at most. `make bench` drives a broker with a C client and compares it with Apache Kafka.

    [dim]Example:[/] drayd bench --records 1000000 --size 1024 --partitions 16
    """
    kind = Size(1024, GIB)
    try:
        wanted_bytes = kind.parse(batch_bytes)
    except ValueError as error:
        raise Failure(f"--batch-bytes = {batch_bytes!r}: must be {kind.allowed()}", USAGE) from error
    host, port = parse_bootstrap(bootstrap)[0]
    plan = BenchPlan(
        host=host,
        port=port,
        topic=topic,
        partitions=partitions,
        records=records,
        size=size,
        batch_records=max(1, min(records, wanted_bytes // (size + 16))),
        in_flight=in_flight,
        connections=min(connections, partitions),
    )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcomes = runner.run(run(plan))
    except RequestFailed as error:
        raise Failure(str(error)) from error
    except ClientError as error:
        raise unreachable(error) from error
    if json:
        print_json([outcome.as_plain() for outcome in outcomes])
    else:
        _print_outcomes(outcomes)


def _print_outcomes(outcomes: list[BenchResult]) -> None:
    measured = ["MB/s", "records/s", "request p50", "request p99"]
    print_table(
        ["", "records", *measured],
        [
            (
                outcome.name,
                outcome.records,
                f"{outcome.megabytes_per_second:.1f}",
                f"{outcome.records_per_second:,.0f}",
                f"{outcome.percentile(0.50) * 1000:.1f} ms",
                f"{outcome.percentile(0.99) * 1000:.1f} ms",
            )
            for outcome in outcomes
        ],
        right=measured,
    )
