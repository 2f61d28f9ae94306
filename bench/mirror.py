"""Mirroring a topic of a real Kafka into a log of Dray, and a plain consumer of the same topic beside it.

python -m bench.mirror [--megabytes 2048] [--size 1024] [--partitions 4] [--runs 5] [--profile FILE]

The consumer is librdkafka, driven from C: it reads from the beginning to the end, and keeps nothing. The
mirror reads the same, checks every batch, and puts all of it into files and SQLite, both synced, in a process
that is set up as that of `drayd migrator`. Both run alone, in turns, against one node of Kafka; the ratio is
of their times. Half a gigabyte is read in half a second, of which the beginning takes a part.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import uvloop
from tests.services.kafka import KafkaProcess
from tests.services.mirrored_log import embedded_log

from bench import driver
from dray.base.runtime import SystemRuntime
from dray.daemons.assembly.process import tune_memory
from dray.kafka.client.admin import create_topic
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.connection import Dialer
from dray.log import Log
from dray.migration.live.leader_reads import MirrorLimits, MirrorMemory
from dray.migration.live.topic_mirror import TopicMirror
from dray.migration.source.mirror import MirrorReader
from dray.migration.source.source import SourceEnd, SourceTopic

TOPIC = "mirrored"


async def mirror_once(bootstrap: str, folder: Path, partitions: int) -> tuple[float, float, int]:
    """Seconds, CPU seconds and bytes."""
    host, port = bootstrap.rsplit(":", 1)
    runtime = SystemRuntime(threads=8)
    try:
        async with (
            Cluster([(host, int(port))], Dialer(client_id="bench"), runtime) as cluster,
            embedded_log(folder, runtime, partitions) as (log, streams),
        ):
            source = SourceTopic(cluster, TOPIC)
            await source.learn()
            measured = await source.measure(range(partitions))
            ends = {
                partition: end.log_end for partition, end in measured.items() if isinstance(end, SourceEnd)
            }
            assert len(ends) == partitions, measured
            limits = MirrorLimits()
            reader = MirrorReader(
                cluster,
                source,
                max_bytes=limits.answer_bytes,
                partition_bytes=limits.partition_bytes,
                checksums=False,
            )
            mirror = TopicMirror(source, reader, log.mirror, streams, runtime, limits, MirrorMemory(1))
            mirror.hurry()
            began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
            task = asyncio.ensure_future(mirror.run())
            while any(
                partition not in mirror.progress or mirror.progress[partition].end < end
                for partition, end in ends.items()
            ):
                assert not task.done(), task.result()
                await asyncio.sleep(0.005)
            seconds, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
            task.cancel()
            cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
            return seconds, cpu, await _size(log, streams)
    finally:
        runtime.close()


async def _size(log: Log, streams: dict[int, int]) -> int:
    return sum([await log.size(stream) for stream in streams.values()])


async def make_topic(bootstrap: str, partitions: int) -> None:
    host, port = bootstrap.rsplit(":", 1)
    runtime = SystemRuntime(threads=1)
    try:
        async with Cluster([(host, int(port))], Dialer(client_id="bench"), runtime) as cluster:
            await create_topic(cluster, TOPIC, partitions=partitions, replication_factor=1)
    finally:
        runtime.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.mirror", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args()
    uvloop.install()
    tune_memory()
    parent = Path(tempfile.mkdtemp(prefix="dray-mirror-"))
    records = options.megabytes * 1_000_000 // options.size
    try:
        with KafkaProcess(parent / "kafka") as server:
            asyncio.run(make_topic(server.bootstrap, options.partitions))
            produced = {"records": records, "size": options.size, "partitions": options.partitions}
            driver.produce(server.bootstrap, TOPIC, timeout=600, **produced).result(660)
            ratios = []
            for number in range(options.runs):
                plain = driver.fetch(server.bootstrap, TOPIC, timeout=600, **produced).result(660)
                folder = parent / f"log-{number}"
                folder.mkdir()
                if options.profile is not None:
                    profile = cProfile.Profile()
                    profile.enable()
                seconds, cpu, size = asyncio.run(mirror_once(server.bootstrap, folder, options.partitions))
                if options.profile is not None:
                    profile.disable()
                    profile.dump_stats(options.profile)
                shutil.rmtree(folder, ignore_errors=True)
                ratios.append(plain.seconds / seconds)
                print(
                    f"consumer {plain.bytes / plain.seconds / 1e6:6.0f} MB/s {plain.cpu_seconds:5.2f} CPU s  "
                    f"mirror {size / seconds / 1e6:6.0f} MB/s {cpu:5.2f} CPU s   ratio {ratios[-1]:.2f}",
                    flush=True,
                )
            print(f"median ratio {statistics.median(ratios):.2f}")
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
