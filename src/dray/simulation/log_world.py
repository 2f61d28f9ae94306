"""A cluster of logs in bad weather: brokers that crash, producers that try again, collectors, retention.

Everything goes through the real code of `dray.log`. After every step of consequence the oracle looks at the
stores; at the end the weather calms, everything late arrives, and nothing may be left over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from dray.log import Collector, Log, LogSettings
from dray.log.entries import HighWatermark
from dray.log.retention import Retention
from dray.log.stream_state import load_stream_state
from dray.log.stream_store import StreamStore
from dray.log.types import LogError, LogUnavailable, OffsetOutOfRange, ReadRequest
from dray.metadata import keys
from dray.metadata.contract import MetadataError, Operation, Outcome, Record
from dray.metadata.memory import MemoryState, MemoryStore
from dray.objects.contract import ObjectError
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray.records import Record as LogRecord
from dray.records import decode, twin, validate
from dray.simulation.faults import FaultyObjects, FaultyStore, Weather
from dray.simulation.log_truth import LogTruth, Violation, identity_of
from dray.simulation.loop import run
from dray.simulation.runtime import SimulatedRuntime

DOMAINS = 2
STREAMS = 3
MANY = 1 << 30
PLAIN = "plain"


class Broker:
    """One simulated process: its own clients of the shared stores, and a log on them."""

    def __init__(self, world: LogWorld, seed: int) -> None:
        self.runtime = SimulatedRuntime(seed)
        inner = MemoryStore(self.runtime, world.state)
        self.store = FaultyStore(inner, world.apply, world.weather)
        self.objects = FaultyObjects(
            MemoryObjects(self.runtime, world.bucket), world.store_object, world.delete_object, world.weather
        )
        self.log = Log(self.store, self.objects, self.runtime, DOMAINS, world.settings)

    def crash(self) -> None:
        self.store.cut_off = self.objects.cut_off = True
        self.runtime.kill()


@dataclass
class LogWorld:
    seed: int
    seconds: float = 12.0
    random: Random = field(init=False)
    weather: Weather = field(init=False)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.weather = Weather(Random(self.seed + 1))
        orphan_seconds = self.random.choice((0.2, 0.6, 2.0))
        self.settings = LogSettings(
            retry_seconds=0.01,
            retry_limit=3,
            settle_seconds=0.05,
            snapshot_every_entries=self.random.choice((3, 10)),
            orphan_seconds=orphan_seconds,
            grace_seconds=0.0,
            collect_seconds=0.15,
            audit_every_rounds=3,
            tail_cache_bytes=self.random.choice((0, 2_000, 1_000_000)),
            segment_cache_bytes=self.random.choice((0, 1_000_000)),
            index_cache_entries=self.random.choice((2, 512)),
        )
        self.state = MemoryState()
        self.bucket = MemoryBucket()
        self.truth = LogTruth()
        self.streams: list[int] = []
        self.brokers: list[Broker] = []
        self.violation: Violation | None = None

    # --- the shared stores, at the moment something happens

    def apply(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        outcomes = self.state.apply(domain, operations, None, asyncio.get_running_loop().time())
        self._judged(lambda: self.truth.applied(operations, outcomes))
        return outcomes

    def store_object(self, path: str, data: bytes) -> None:
        self._judged(lambda: self.truth.uploaded(path, data))
        self.bucket.put(path, data, SimulatedRuntime(0).wall_ms())

    def delete_object(self, path: str) -> None:
        self.bucket.delete(path)
        self.check()

    def _judged(self, act: Callable[[], None]) -> None:
        """A violation is kept, and ends the run: raised into the code under test, it might be caught."""
        try:
            act()
        except Violation as violation:
            self.violation = self.violation or violation

    # --- the run

    async def play(self) -> None:
        for number in range(self.random.choice((1, 2, 3))):
            self.brokers.append(Broker(self, self.seed * 1000 + number))
        await self._create_streams()
        for broker in self.brokers:
            await broker.log.start()
        players = [self._play_chaos(), self._play_retention(), self._play_sealer(), self._play_watchman()]
        for stream in self.streams:
            players += [self._play_idempotent(stream, producer) for producer in (1, 2)]
            players += [self._play_plain(stream), self._play_consumer(stream)]
        tasks = [asyncio.ensure_future(player) for player in players]
        ended, _ = await asyncio.wait(tasks, timeout=self.seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in ended:
            task.result()
        await self._calm_down()

    async def _create_streams(self) -> None:
        """In the same weather: ids whose creation is unclear are never used."""
        while not self.streams:
            try:
                self.streams = await self.brokers[0].log.create_streams(STREAMS)
            except LogUnavailable:
                self.counts["streams burnt"] += STREAMS
        self.truth.create(self.streams)

    async def _play_watchman(self) -> None:
        while self.violation is None:
            await asyncio.sleep(0.05)
            self.check()
            for broker in self.brokers:
                for failure in broker.runtime.failures:
                    raise failure
        raise self.violation

    async def _play_chaos(self) -> None:
        """Crash a broker now and then, and start another in its place."""
        while True:
            await asyncio.sleep(self.random.uniform(0.2, 2.0))
            place = self.random.randrange(len(self.brokers))
            self.brokers[place].crash()
            self.counts["crashes"] += 1
            self.brokers[place] = Broker(self, self.random.getrandbits(48))
            await self.brokers[place].log.start()

    async def _play_idempotent(self, stream: int, producer: int) -> None:
        sequence, batch_number = 0, 0
        while True:
            await asyncio.sleep(self.random.uniform(0.0, 0.2))
            count = self.random.randint(1, 3)
            values = [b"p%d:%d:%d" % (producer, batch_number, place) for place in range(count)]
            data = _batch(values, producer=(producer, 0, sequence))
            while not await self._append(stream, data, values):
                self.counts["tried again"] += 1
            sequence += count
            batch_number += 1

    async def _play_plain(self, stream: int) -> None:
        number = 0
        while True:
            await asyncio.sleep(self.random.uniform(0.0, 0.15))
            values = [b"%s%d:%d:%d" % (PLAIN.encode(), stream, number, place) for place in range(2)]
            await self._append(stream, _batch(values), values)
            number += 1

    async def _append(self, stream: int, data: bytearray, values: Sequence[bytes]) -> bool:
        broker = self.random.choice(self.brokers)
        data = bytearray(data)
        [batch] = validate(data, max_batch_bytes=MANY, max_decompressed_bytes=MANY)
        try:
            appended = await asyncio.wait_for(broker.log.append(stream, batch, memoryview(data)), 1.5)
        except (LogUnavailable, TimeoutError):
            self.counts["append errors"] += 1
            return False
        except LogError as error:
            raise Violation(f"stream {stream}: a good batch was refused: {error}") from error
        self.truth.acknowledged(stream, appended, values)
        self.counts["acknowledged"] += 1
        return True

    async def _play_consumer(self, stream: int) -> None:
        """Read the stream from its start, again and again, through whichever broker."""
        while True:
            offset = self.truth.starts[stream]
            while offset < len(self.truth.records[stream]) or self.random.random() < 0.7:
                await asyncio.sleep(self.random.uniform(0.0, 0.1))
                broker = self.random.choice(self.brokers)
                request = ReadRequest(stream, offset, self.random.choice((1, 500, MANY)))
                try:
                    [result] = await asyncio.wait_for(
                        broker.log.fetch([request], min_bytes=1, max_bytes=MANY, max_wait_ms=200), 2.0
                    )
                except (TimeoutError, asyncio.CancelledError) as error:
                    if isinstance(error, asyncio.CancelledError) and not broker.store.cut_off:
                        raise
                    continue  # the broker crashed under it
                if isinstance(result.error, OffsetOutOfRange) and offset < self.truth.starts[stream]:
                    break
                if isinstance(result.error, LogError) and not isinstance(result.error, LogUnavailable):
                    raise Violation(f"stream {stream}: reading at {offset} failed: {result.error}")
                for buffer in result.buffers:
                    for record in decode(buffer).records():
                        self._consumed(stream, offset, record)
                        offset = max(offset, record.offset + 1)

    def _consumed(self, stream: int, offset: int, record: LogRecord) -> None:
        if record.offset > offset:
            raise Violation(f"stream {stream}: a consumer at {offset} was given {record.offset}")
        if self.truth.records[stream][record.offset] != identity_of(record.value or b""):
            raise Violation(f"stream {stream}: offset {record.offset} was read as {record.value!r}")
        self.counts["consumed"] += 1

    async def _play_retention(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.3, 1.5))
            stream = self.random.choice(self.streams)
            before = self.random.randint(self.truth.starts[stream], len(self.truth.records[stream]))
            broker = self.random.choice(self.brokers)
            try:
                await asyncio.wait_for(broker.log.delete_records(stream, before), 3.0)
                self.counts["records deleted"] += 1
            except (LogError, TimeoutError):
                self.counts["retention errors"] += 1
            except asyncio.CancelledError:
                if not broker.store.cut_off:
                    raise

    async def _play_sealer(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.1, 0.8))
            broker = self.random.choice(self.brokers)
            store = StreamStore(broker.store, DOMAINS, self.settings.producer_expiry_ms)
            stream = self.random.choice(self.streams)
            try:
                found = await store.high_watermark(stream)
                if found is not None and found.value.head is not None:
                    await store.write(stream, store.advance(stream, found, found.value.sealed()))
            except MetadataError:
                continue
            except asyncio.CancelledError:
                if not broker.store.cut_off:
                    raise

    # --- the end

    async def _calm_down(self) -> None:
        """Brokers die, late writes arrive while a collector works, then all quiesces."""
        for broker in self.brokers:
            broker.crash()
        self.weather.calm()
        last = Broker(self, self.seed)
        self.brokers = [last]
        store = StreamStore(last.store, DOMAINS, self.settings.producer_expiry_ms)
        collector = Collector(store, last.objects, last.runtime, self.settings)
        retention = Retention(store, last.runtime, self.settings)
        rounds = 0
        while self.weather.pending or rounds < 8:
            rounds = 0 if self.weather.pending else rounds + 1
            try:
                for stream in self.streams:
                    await retention.raise_start(stream, self.truth.starts[stream])
                await collector.run()
            except (MetadataError, ObjectError, LogError) as error:
                raise Violation(f"calm, but {error}") from error
            await asyncio.sleep(self.settings.orphan_seconds)
            self.check()
            if self.violation is not None:
                raise self.violation
        await self._check_leftovers(store)

    async def _check_leftovers(self, store: StreamStore) -> None:
        live: dict[str, set[int]] = {}
        paths = set()
        for stream in self.streams:
            high_watermark, index = self._records_of(stream)
            found = self.truth.live_objects(stream, high_watermark, index)
            paths |= set(found.values())
            for wal_id in found:
                live.setdefault(wal_id.hex, set()).add(stream)
            heads = 0 if HighWatermark.decode(high_watermark.value).head is None else 1
            if len(index) != len(found) - heads:
                raise Violation(f"stream {stream}: {len(index)} entries filed, {len(found)} live")
            state = await load_stream_state(store, stream)
            for producer in (1, 2):
                last = state.producers.get(producer)
                expected = self.truth.last_sequence(stream, f"p{producer}")
                if (last is None) != (expected < 0):
                    raise Violation(f"stream {stream}: the state of producer {producer} is lost")
        if (left := set(self.bucket.objects) - paths) or (left := paths - set(self.bucket.objects)):
            raise Violation(f"objects left over or missing: {sorted(left)[:3]}")
        referenced: dict[str, set[int]] = {}
        for record in self._scan(keys.REFERENCES):
            parts = record.key.split("/")
            referenced.setdefault(parts[5], set()).add(int(parts[6]))
        if referenced != live:
            raise Violation("references left over or missing")
        if self._scan(keys.STAGING):
            raise Violation("staging marks left over")
        if {record.key.split("/")[5] for record in self._scan(keys.OBJECTS)} != set(live):
            raise Violation("object keys left over or missing")

    # --- looking at the stores

    def check(self) -> None:
        if self.violation is None:
            for stream in self.streams:
                high_watermark, index = self._records_of(stream)
                objects = set(self.bucket.objects)
                self._judged(partial(self.truth.check_readable, stream, high_watermark, index, objects))

    def _records_of(self, stream: int) -> tuple[Record, list[Record]]:
        domain = self.state.domain(stream % DOMAINS, asyncio.get_running_loop().time())
        prefix = keys.offset_index(stream)
        index = [domain.entries[key].record for key in domain.keys if key.startswith(prefix)]
        return domain.entries[keys.high_watermark(stream)].record, index

    def _scan(self, prefix: str) -> list[Record]:
        found = []
        for number in range(DOMAINS):
            domain = self.state.domain(number, asyncio.get_running_loop().time())
            found += [domain.entries[key].record for key in domain.keys if key.startswith(prefix)]
        return found


def _batch(values: Sequence[bytes], producer: tuple[int, int, int] = (-1, -1, -1)) -> bytearray:
    producer_id, epoch, sequence = producer
    records = [LogRecord(place, 1000, None, value) for place, value in enumerate(values)]
    return twin.encode(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def simulate_log(seed: int, seconds: float = 12.0) -> Counter[str]:
    """One run; raises what it found, or returns what it covered."""
    world = LogWorld(seed, seconds)
    run(world.play())
    return world.counts
