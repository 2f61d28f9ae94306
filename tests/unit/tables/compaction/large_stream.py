"""A stream of several GiB that is compacted by key, in a process of its own: prints what it came to, as JSON.

python -m tests.unit.tables.compaction.large_stream DIRECTORY GIBIBYTES
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path
from random import Random
from uuid import UUID

from tests.services import room_settings
from tests.services.compaction_cluster import FixedTopics

from dray.base.runtime import SystemRuntime
from dray.broker.topics.model import Topic, TopicSettings
from dray.kafka.records import Codec, Record, twin, validate
from dray.log import Log
from dray.log.stream_store import StreamStore
from dray.metadata.memory import MemoryStore
from dray.objects import LocalStore
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.writing.executor import LocalUnitWriter

KEYS = 300_000
VALUE = b"v" * 8100
BATCH = 128  # records, so about a mebibyte
MOST = 1 << 30


async def main(directory: Path, gibibytes: float) -> None:
    runtime = SystemRuntime(threads=4)
    objects = await LocalStore.open(directory, runtime)
    store = MemoryStore(runtime)
    log = Log(store, objects, runtime, 1, room_settings.log())
    config = {"cleanup.policy": "compact", "retention.ms": "-1", "dray.iceberg.enabled": "false"}
    [stream] = await log.create_streams(1)
    topic = Topic("large", UUID(int=1), (stream,), config, 0, TopicSettings.of(config, {}))
    streams = StreamStore(store, 1, room_settings.log().producer_expiry_ms)
    stores = CompactorStores(streams, objects)
    settings = room_settings.compaction()
    topics = FixedTopics([topic])
    compactor = Compactor(
        stores, runtime, LocalUnitWriter(objects, runtime), None, topics, settings, room_settings.log()
    )
    random = Random(1)
    last: dict[bytes, int] = {}
    end = 0
    for number in range(int(gibibytes * 1024)):
        now = runtime.wall_ms()
        keys = [b"key %d" % random.randrange(KEYS) for _ in range(BATCH)]
        rows = [Record(place, now, key, b"%d" % number + VALUE, ()) for place, key in enumerate(keys)]
        data = twin.encode(rows, codec=Codec.ZSTD)
        [batch] = validate(data, max_batch_bytes=MOST, max_decompressed_bytes=MOST)
        await log.append(stream, batch, memoryview(data))
        last |= {key: end + place for place, key in enumerate(keys)}
        end += BATCH
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    summary = await compactor.run_cycle(everything=True)
    view = await streams.view(stream)
    assert view is not None
    entries = [entry.value for entry in view.split()[0]]
    found = {
        "records": end,
        "keys": len(last),
        "left": sum(entry.record_count for entry in entries),
        "files": len(entries),
        "rounds": summary.key_rounds,
        "clean": view.cleaned.end,
        "troubles": [str(trouble) for trouble in summary.troubles],
        "mebibytes_before": before >> 10,
        "mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "seconds": round(summary.seconds, 1),
    }
    print(json.dumps(found))
    await log.stop()
    await objects.close()
    runtime.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
