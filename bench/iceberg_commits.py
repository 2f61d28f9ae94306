"""How long a commit to a topic's table takes, from the first to the thousandth.

    python -m bench.iceberg_commits [--commits 1000] [--partitions 4] [--maintain-every 20]
                                    [--rewrite-every 25]

Each commit adds one file per partition, from the writer's own statistics (the files themselves are not
needed, so none is written), to a table in a SQLite catalog on this disk, everything synced. Every so many
commits the snapshots but the newest are expired, and every so many the last files of each partition are
replaced by one, as compaction does it. With `--maintain-every 0` nothing ever expires: that is what it would
cost.

Flat means: the median of the last hundred commits is no more than half as much again as that of the second
hundred.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from bench.compare import describe_machine
from dray.base.runtime.system import SystemRuntime
from dray.log.jobs.values import WrittenFile
from dray.tables.contract import CommitOutcome, TableChange, TableFile, TopicTable
from dray.tables.iceberg.locations import locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

RESULTS = Path(__file__).parent / "results"
BLOCK = 100
GOAL = 1.5
RECORDS = 1000
T0 = 1_700_000_000_000


def a_file(partition: int, start: int, count: int) -> TableFile:
    written = WrittenFile(
        stream=partition,
        job=1,
        path=f"compaction/v1/topic=bench/partition={partition}/{uuid4().hex}.parquet",
        parquet_id=uuid4(),
        file_size=count * 500,
        footer_length=100,
        record_count=count,
        start=start,
        end=start + count,
        row_groups=(),
        min_timestamp=T0 + start,
        max_timestamp=T0 + start + count - 1,
        columns=(),
        split_offsets=(4,),
    )
    return TableFile(partition, written)


async def still_ours(_: TableChange) -> bool:
    return True


class Run:
    def __init__(self, tables: IcebergTables, partitions: int) -> None:
        self.tables = tables
        self.topic = TopicTable("bench", uuid4())
        self.files: list[list[TableFile]] = [[] for _ in range(partitions)]
        self.commit_seconds: list[float] = []
        self.maintain_seconds: list[float] = []

    async def commit(self, number: int, rewrite: int) -> None:
        changes = []
        for partition, files in enumerate(self.files):
            start = files[-1].last_offset + 1 if files else 0
            removed: tuple[str, ...] = ()
            if rewrite and number % rewrite == rewrite - 1:
                old = files[-rewrite + 1 :]
                added = a_file(partition, old[0].first_offset, start - old[0].first_offset)
                removed = tuple(file.path for file in old)
                del files[-rewrite + 1 :]
            else:
                added = a_file(partition, start, RECORDS)
            files.append(added)
            changes.append(TableChange(f"{partition}-{number}", (added,), removed))
        begun = time.perf_counter()
        outcomes = await self.tables.commit(self.topic, changes, still_ours)
        self.commit_seconds.append(time.perf_counter() - begun)
        assert set(outcomes.values()) == {CommitOutcome.COMMITTED}

    async def maintain(self) -> None:
        begun = time.perf_counter()
        await self.tables.maintain(self.topic, [], 2**62)
        self.maintain_seconds.append(time.perf_counter() - begun)


async def measure(
    directory: Path, commits: int, partitions: int, maintain_every: int, rewrite_every: int
) -> Run:
    runtime = SystemRuntime()
    settings = CatalogSettings("sql", f"sqlite:///{directory / 'catalog.sqlite'}", "bench")
    tables = IcebergTables(settings, locations(f"file:{directory / 'objects'}", {}, {}), "bench", runtime)
    run = Run(tables, partitions)
    try:
        await tables.ensure(run.topic)
        for number in range(commits):
            await run.commit(number, rewrite_every)
            if maintain_every and number % maintain_every == maintain_every - 1:
                await run.maintain()
        live = await tables.live_files(run.topic)
        wanted = {file.path for files in run.files for file in files}
        assert wanted <= (live or set()), "files are missing in the table"
    finally:
        await tables.close()
        runtime.close()
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--maintain-every", type=int, default=20)
    parser.add_argument("--rewrite-every", type=int, default=25)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as directory:
        run = asyncio.run(
            measure(
                Path(directory),
                chosen.commits,
                chosen.partitions,
                chosen.maintain_every,
                chosen.rewrite_every,
            )
        )
    blocks = [run.commit_seconds[at : at + BLOCK] for at in range(0, len(run.commit_seconds), BLOCK)]
    table = Table("commits", "median ms", "90% ms", "most ms", title="commits to one table")
    for number, block in enumerate(blocks):
        ranked = sorted(block)
        table.add_row(
            f"{number * BLOCK} to {number * BLOCK + len(block) - 1}",
            f"{statistics.median(ranked) * 1000:.1f}",
            f"{ranked[len(ranked) * 9 // 10] * 1000:.1f}",
            f"{ranked[-1] * 1000:.1f}",
        )
    console = Console()
    console.print(table)
    medians = [statistics.median(block) for block in blocks]
    ratio = medians[-1] / medians[min(1, len(medians) - 1)]
    if run.maintain_seconds:
        console.print(f"maintenance: median {statistics.median(run.maintain_seconds) * 1000:.0f} ms")
    console.print(f"last hundred / second hundred: {ratio:.2f} (goal: at most {GOAL})")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"iceberg-commits-{stamp}.json").write_text(
        json.dumps(
            {
                "machine": describe_machine(),
                "settings": vars(chosen),
                "median_ms": [round(median * 1000, 2) for median in medians],
                "ratio": round(ratio, 3),
            },
            indent=2,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
