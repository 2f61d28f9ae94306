"""A thousand topics: how long a cycle and a round of collection take where catalog and store are far away.

    python -m bench.many_topics [--topics 1000] [--partitions 4] [--cycles 12] [--compactors 2] [--away 0.03]

Every topic gets a record in each partition per minute, and so a commit of its table per cycle. Requests take
their time on the simulation's clock, and processor time is the real one, of all compactors together; what it
costs to write the files is told apart, since that is Spark's. Compactors have a machine each, so a cycle
takes no longer than its waiting and its share of the processor time, one after the other.

Goals, of 1,000 topics of 4 partitions and two compactors: a cycle in 40 s, a round of collection in 300 s.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.services import room_settings
from tests.services.slow_lake import SlowLake, slow_files

from dray.tables.compaction.summary import CycleSummary
from dray_simulation.kernel.loop import SimulationLoop

MINUTE = 60.0


class Run:
    def __init__(self, lake: SlowLake, table: Table) -> None:
        self.lake = lake
        self.table = table

    async def measured(self, what: str, work: object) -> list[CycleSummary]:
        lake = self.lake
        loop = asyncio.get_running_loop()
        lake.requests.take()
        written = sum(writer.seconds for writer in lake.writers)
        began, cpu = loop.time(), time.process_time()
        summaries: list[CycleSummary] = await work  # type: ignore[misc]
        waited, cpu = loop.time() - began, time.process_time() - cpu
        files = sum(writer.seconds for writer in lake.writers) - written
        asked = lake.requests.take()
        troubles = sum(len(each.troubles) for each in summaries)
        each = waited + (cpu - files) / len(lake.compactors)
        self.table.add_row(
            what,
            f"{waited:.1f}",
            f"{cpu - files:.1f}",
            f"{files:.1f}",
            f"{each:.1f}",
            told(asked),
            str(troubles),
        )
        return summaries


def told(asked: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in asked.most_common())


async def measure(chosen: argparse.Namespace, folder: Path, table: Table) -> None:
    settings = room_settings.compaction(wal_max_age=0.0, snapshot_keep_ms=int(chosen.keep * MINUTE * 1000))
    lake = SlowLake(folder, chosen.compactors, settings, chosen.away)
    run = Run(lake, table)
    with slow_files(lake.requests):
        await lake.topics(chosen.topics, chosen.partitions)
        for number in range(chosen.cycles):
            await lake.produce()
            await run.measured(f"cycle {number + 1}", lake.cycle())
            if (number + 1) % 10 == 0:
                await run.measured("collection", lake.collect())
            await asyncio.sleep(MINUTE)
        await run.measured("collection", lake.collect())
        await run.measured("collection, nothing new", lake.collect())
        await run.measured("cycle, nothing new", lake.cycle())
        await lake.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--cycles", type=int, default=12)
    parser.add_argument("--compactors", type=int, default=2)
    parser.add_argument("--away", type=float, default=0.03, help="seconds to the catalog and the store")
    parser.add_argument("--keep", type=float, default=60.0, help="minutes for which snapshots stay")
    chosen = parser.parse_args()
    table = Table(
        "",
        "waiting s",
        "CPU s",
        "CPU s of files",
        "a compactor s",
        "requests",
        "troubles",
        title=f"{chosen.topics} topics of {chosen.partitions} partitions, {chosen.compactors} compactors",
    )
    with (
        tempfile.TemporaryDirectory(prefix="dray-bench-") as directory,
        asyncio.Runner(loop_factory=SimulationLoop) as runner,
    ):
        runner.run(measure(chosen, Path(directory), table))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
