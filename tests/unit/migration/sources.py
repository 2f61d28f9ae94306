"""Sources for tests: the fixtures in memory, and segments that tests make up."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from struct import pack_into
from uuid import UUID

from tests.unit.migration.formats.fixture_files import AIVEN, KAFSCALE, LOCAL

from dray.base.runtime import SystemRuntime
from dray.kafka.records import Record, twin
from dray.migration.attach.found import FoundSegment
from dray.migration.attach.reading import SourceReader
from dray.migration.formats.kafka_files import AbortedTransaction, EpochStart
from dray.objects.memory import MemoryObjects

ALL = "all of the topic"


async def in_memory(files: Iterable[tuple[str, bytes]]) -> SourceReader:
    store = MemoryObjects(SystemRuntime(threads=1))
    for path, data in files:
        await store.put(path, [data])
    return SourceReader(store)


def files_below(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


def local_files() -> dict[str, bytes]:
    return files_below(LOCAL)


def aiven_files() -> dict[str, bytes]:
    return {path: data for path, data in files_below(AIVEN).items() if not path.endswith(".der")}


def aiven_key() -> bytes:
    return (AIVEN / "throwaway-key.der").read_bytes()


def kafscale_files(topic: str = "orders", partition: int = 0) -> dict[str, bytes]:
    return {f"production/{topic}/{partition}/{path}": data for path, data in files_below(KAFSCALE).items()}


def log_dir_files(topic: str = "orders") -> dict[str, bytes]:
    """The tiered segments of the fixture as the broker had them on its disk."""
    found: dict[str, bytes] = {}
    for path, data in local_files().items():
        home, _, name = path.partition("/")
        base = name.partition("-")[0]
        partition = home.split("-")[1]
        ending = name.rpartition(".")[2]
        if ending == "leader_epoch_checkpoint":
            found[f"{topic}-{partition}/leader-epoch-checkpoint"] = data
        else:
            found[f"{topic}-{partition}/{base}.{ending}"] = data
        topic_id = home.split("-", 2)[2]
        found[f"{topic}-{partition}/partition.metadata"] = f"version: 0\ntopic_id: {topic_id}".encode()
    return found


def a_batch(
    base: int, count: int = 3, producer_id: int = -1, sequence: int = -1, attributes: int = 0
) -> bytes:
    records = [Record(base + number, 1_000 + base + number, b"k", b"v%d" % number) for number in range(count)]
    batch = twin.encode(
        records,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )
    pack_into(">q", batch, 0, base)
    return bytes(batch)


def a_segment(
    start: int,
    end: int,
    epochs: Iterable[tuple[int, int]] = ((0, 0),),
    number: int = 0,
    size: int = 0,
    aborted: Iterable[tuple[int, int, int]] = (),
) -> FoundSegment:
    return FoundSegment(
        segment_id=UUID(int=1_000_000 * number + start),
        path=f"{start:020d}-{end}-{number}.log",
        object_size=size or end - start,
        segment_size=size or end - start,
        start=start,
        end=end,
        max_timestamp=end,
        epochs=tuple(EpochStart(*row) for row in epochs),
        aborted=tuple(AbortedTransaction(*row, row[2] + 1) for row in aborted),
    )
