"""A real Kafka as the source of a migration: what is read of it, fences, and a switch beside producers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.services.kafka import KafkaProcess
from tests.services.maven import require_kafka_jars
from tests.services.mirrored_log import Writers, consumed, embedded_log, read_log, read_source, transactional
from tests.unit.migration.entries.foreign_harness import EPOCH

from dray.base.runtime import SystemRuntime
from dray.kafka.client.admin import alter_configs, create_topic
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.connection import Dialer
from dray.kafka.client.errors import RequestFailed
from dray.kafka.records import Record, twin, validate
from dray.kafka.records.header import CONTROL
from dray.log import Log
from dray.log.types import AppendResult
from dray.migration.formats.batches import walk_batches
from dray.migration.live.leader_reads import MirrorLimits, MirrorMemory
from dray.migration.live.switch import Destination, SwitchFailed, TopicSwitch
from dray.migration.live.topic_mirror import TopicMirror
from dray.migration.source.fences import (
    AclFence,
    FenceRefused,
    SizeFence,
    StoppedFence,
    acls_before,
    is_fenced_by_acl,
    is_fenced_by_size,
    largest_batch_setting,
)
from dray.migration.source.mirror import MirrorOvertaken, MirrorPlace, MirrorReader, MirrorStopped
from dray.migration.source.source import Probe, SourceEnd, SourceProducer, SourceTopic, all_of

PARTITIONS = 2


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_kafka_jars()
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "auto.create.topics.enable": "false",
        "super.users": "User:nobody-of-this-test",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "200",
    }
    with KafkaProcess(tmp_path_factory.mktemp("upstream"), settings) as server:
        yield server.bootstrap


@asynccontextmanager
async def source_of(bootstrap: str, topic: str) -> AsyncIterator[tuple[Cluster, SourceTopic, SystemRuntime]]:
    host, port = bootstrap.rsplit(":", 1)
    runtime = SystemRuntime(threads=1)
    try:
        async with Cluster([(host, int(port))], Dialer(client_id="migrator"), runtime) as cluster:
            await create_topic(cluster, topic, partitions=PARTITIONS, replication_factor=1)
            source = SourceTopic(cluster, topic)
            deadline = runtime.monotonic() + 60
            while len(source.leaderships) < PARTITIONS and runtime.monotonic() < deadline:
                with suppress(RequestFailed):  # the broker has not heard of the topic yet
                    await source.learn()
                await runtime.sleep(0.02)
            yield cluster, source, runtime
    finally:
        runtime.close()


async def end_of(source: SourceTopic, partition: int) -> SourceEnd:
    return all_of(await source.measure([partition]))[partition]


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


class MirroredTopic(Destination):
    """Keeps what the mirror brings. The log of Dray takes this place."""

    def __init__(self, cluster: Cluster, source: SourceTopic) -> None:
        self._reader = MirrorReader(cluster, source, max_bytes=1 << 20, partition_bytes=1 << 19)
        self.places = dict.fromkeys(range(PARTITIONS), MirrorPlace(0))
        self.batches = {partition: bytearray() for partition in range(PARTITIONS)}
        self.aborted: list[tuple[int, int]] = []
        self.boundaries: dict[int, int] = {}
        self._reading = asyncio.Lock()  # partitions are asked for side by side

    async def read(self) -> None:
        async with self._reading:
            await self._read()

    async def _read(self) -> None:
        for leader, places in self._reader.by_leader(self.places).items():
            for piece in await self._reader.read(leader, places):
                self.batches[piece.partition] += piece.batches
                self.places[piece.partition] = piece.place
                self.aborted += piece.aborted

    async def end(self, partition: int) -> int:
        await self.read()
        return self.places[partition].offset

    async def last_epoch(self, partition: int) -> int | None:
        epoch = self.places[partition].epoch
        return None if epoch < 0 else epoch

    async def producers(self, partition: int) -> Collection[SourceProducer]:
        found = {}
        for batch in walk_batches(self.batches[partition]):
            header = batch.header
            if header.producer_id >= 0 and not header.attributes & CONTROL:
                last = header.base_sequence + header.last_offset_delta
                found[header.producer_id] = SourceProducer(header.producer_id, header.producer_epoch, last)
        return found.values()

    async def boundary(self, partition: int) -> int | None:
        return self.boundaries.get(partition)

    async def decide(
        self, partition: int, boundary: int, taken_over: Collection[SourceProducer] = (), _: object = None
    ) -> bool:
        if self.places[partition].offset != boundary:
            return False
        self.boundaries[partition] = boundary
        return True


def test_the_ends_and_producers_of_a_partition(kafka: str) -> None:
    async def look() -> None:
        async with source_of(kafka, "ends") as (_, source, _):
            await asyncio.to_thread(produce, kafka, "ends", 10)
            end = await end_of(source, 0)
            assert (end.start, end.last_stable, end.high_watermark, end.log_end) == (0, 5, 5, 5)
            assert end.is_settled
            leadership, producers = all_of(await source.producers([0]))[0]
            assert leadership == end.leadership
            assert [(each.epoch, each.last_sequence) for each in producers] == [(0, 4)]
            assert await source.ends_of_epochs({0: leadership.epoch}) == {0: 5}

            producer = await asyncio.to_thread(transactional, kafka, "open")
            producer.begin_transaction()
            producer.produce("ends", b"undecided", partition=0)
            await asyncio.to_thread(producer.flush, 60)
            end = await end_of(source, 0)
            assert (end.last_stable, end.high_watermark, end.log_end) == (5, 6, 6)
            assert not end.is_settled
            assert await source.open_transactions() == ["open"]
            await asyncio.to_thread(producer.abort_transaction, 60)

    asyncio.run(look())


def test_a_mirror_is_byte_for_byte_and_names_what_was_aborted(kafka: str) -> None:
    async def look() -> None:
        async with source_of(kafka, "mirrored") as (cluster, source, _):
            await asyncio.to_thread(produce, kafka, "mirrored", 20)
            producer = await asyncio.to_thread(transactional, kafka, "mirrored")
            for text, ends in ((b"gone", producer.abort_transaction), (b"kept", producer.commit_transaction)):
                producer.begin_transaction()
                producer.produce("mirrored", text, partition=0)
                await asyncio.to_thread(producer.flush, 60)
                await asyncio.to_thread(ends, 60)
            mirror = MirroredTopic(cluster, source)
            end = (await end_of(source, 0)).log_end
            for _ in range(100):
                if await mirror.end(0) == end:
                    break
            assert end == 14, "ten records, two of transactions, and their markers"
            batches = list(walk_batches(mirror.batches[0]))
            assert batches[-1].last_offset == 13
            assert [batch.is_control for batch in batches][-4:] == [False, True, False, True]
            assert mirror.aborted == [(batches[-4].header.producer_id, 10)]

    asyncio.run(look())


async def acl_fence(cluster: Cluster, topic: str, runtime: SystemRuntime) -> AclFence:
    return AclFence(cluster, topic, runtime, allows_rest=(await acls_before(cluster, topic)).needs_rest)


async def probed(source: SourceTopic, expected: Probe) -> None:
    """A fence takes effect some time after the call that put it up or lifted it."""
    for _ in range(600):
        found = all_of(await source.probe(range(PARTITIONS)))
        if [probe for _, probe in found.values()] == [expected] * PARTITIONS:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never {expected.value}")


@pytest.mark.parametrize("kind", ["acl", "size"])
def test_a_fence_is_seen_by_the_probe_and_leaves_no_trace(kafka: str, kind: str) -> None:
    async def look() -> None:
        topic = f"fenced-{kind}"
        async with source_of(kafka, topic) as (cluster, source, runtime):
            await asyncio.to_thread(produce, kafka, topic, 4)
            fence = (
                await acl_fence(cluster, topic, runtime) if kind == "acl" else SizeFence(cluster, topic, None)
            )
            is_fenced = is_fenced_by_acl if kind == "acl" else is_fenced_by_size
            await fence.check(source)
            await probed(source, Probe.OPEN)
            assert not await is_fenced(cluster, topic)
            for _ in range(2):  # each act may be repeated by a successor
                await fence.put_up()
            await probed(source, Probe.FENCED)
            assert await is_fenced(cluster, topic)
            assert (await end_of(source, 0)).log_end == 2, "a probe is never stored"
            with pytest.raises(KafkaException) as refused:
                await asyncio.to_thread(produce_loudly, kafka, topic)
            expected = {"acl": KafkaError.TOPIC_AUTHORIZATION_FAILED, "size": KafkaError.MSG_SIZE_TOO_LARGE}
            assert refused.value.args[0].code() == expected[kind]
            for _ in range(2):
                await fence.lift()
            await probed(source, Probe.OPEN)
            assert not await is_fenced(cluster, topic)
            assert await largest_batch_setting(cluster, topic) is None
            assert (await acls_before(cluster, topic)).needs_rest, "no ACL is left"
            await asyncio.to_thread(produce, kafka, topic, 4)

    asyncio.run(look())


def produce_loudly(bootstrap: str, topic: str) -> None:
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"refused", partition=0, on_delivery=note)
    producer.flush(60)
    for failure in failures:
        raise KafkaException(failure)


def test_a_fence_that_would_leave_a_transaction_hanging_is_refused(kafka: str) -> None:
    async def look() -> None:
        async with source_of(kafka, "hanging") as (cluster, source, _):
            producer = await asyncio.to_thread(transactional, kafka, "hanging")
            producer.begin_transaction()
            producer.produce("hanging", b"undecided", partition=0)
            await asyncio.to_thread(producer.flush, 60)
            with pytest.raises(FenceRefused, match=r"transactions are open at the source \(hanging\)"):
                await SizeFence(cluster, "hanging", None).check(source)
            await asyncio.to_thread(producer.commit_transaction, 60)

    asyncio.run(look())


def test_a_switch_beside_a_producer_loses_nothing(kafka: str) -> None:
    """What was acknowledged at the source is below the boundary, and nothing at the source is above it."""
    acknowledged: list[tuple[int, int]] = []
    stop = Event()

    def work() -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                place = (message.partition(), message.offset())
                assert None not in place
                acknowledged.append(place)  # type: ignore[arg-type]
            else:
                stop.set()

        producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True, "linger.ms": 1})
        number = 0
        while not stop.is_set():
            try:
                producer.produce("switched", str(number), partition=number % PARTITIONS, on_delivery=note)
            except KafkaException:
                break  # librdkafka has heard of the fence
            except BufferError:
                producer.poll(0.1)
                continue
            number += 1
            producer.poll(0.0005)
        producer.flush(60)

    async def look() -> None:
        async with source_of(kafka, "switched") as (cluster, source, runtime):
            worker = Thread(target=work)
            worker.start()
            try:
                while len(acknowledged) < 200 and worker.is_alive():
                    await runtime.sleep(0.02)
                assert worker.is_alive()
                target = MirroredTopic(cluster, source)
                fence = await acl_fence(cluster, "switched", runtime)
                found = await TopicSwitch(source, target, fence, runtime, give_up_seconds=60).run()
            finally:
                stop.set()
                await asyncio.to_thread(worker.join)
            assert {partition: (await end_of(source, partition)).log_end for partition in found} == found
            for partition, boundary in found.items():
                offsets = [offset for place, offset in acknowledged if place == partition]
                assert offsets == list(range(boundary)), "each once, none beyond"
                assert [batch.last_offset for batch in walk_batches(target.batches[partition])][-1:] == [
                    boundary - 1
                ]
            await probed(source, Probe.FENCED)

    asyncio.run(look())


def test_a_topic_is_mirrored_into_the_log_and_switched_beside_its_producers(
    kafka: str, tmp_path: Path
) -> None:
    """Below the boundary are the source's bytes, and the committed records are the source's; a retry of what
    the source acknowledged last is answered with its old offset."""
    topic = "moved"

    async def look() -> None:
        async with (
            source_of(kafka, topic) as (cluster, source, runtime),
            embedded_log(tmp_path, runtime, PARTITIONS) as (log, streams),
        ):
            writers = Writers(kafka, topic, PARTITIONS)
            reader = MirrorReader(cluster, source, max_bytes=1 << 20, partition_bytes=1 << 19)
            limits = MirrorLimits(object_bytes=1 << 18, linger_seconds=0.2)
            mirror = TopicMirror(source, reader, log.mirror, streams, runtime, limits, MirrorMemory(1))
            mirroring = asyncio.ensure_future(mirror.run())
            writers.start()
            try:
                while (len(writers.acknowledged) < 500 or writers.transactions < 8) and writers.are_alive:
                    await runtime.sleep(0.02)
                assert writers.are_alive
                target = Destination(log.mirror, streams, mirror.hurry)
                fence = await acl_fence(cluster, topic, runtime)
                found = await TopicSwitch(source, target, fence, runtime, give_up_seconds=60).run()
            finally:
                mirroring.cancel()
                await asyncio.to_thread(writers.stop)
            assert not writers.failures
            for partition, boundary in found.items():
                assert (await end_of(source, partition)).log_end == boundary
                offsets = [offset for place, offset in writers.acknowledged if place == partition]
                assert max(offsets) < boundary
                await check_equal(kafka, cluster, topic, partition, boundary, log, streams[partition])

    asyncio.run(look())


def test_a_source_that_deletes_what_was_not_mirrored_yet_is_gone_on_with(kafka: str, tmp_path: Path) -> None:
    """Kafka answers OFFSET_OUT_OF_RANGE without any offset, whichever end was passed; and DeleteRecords ends
    within a batch."""
    topic = "overtaken"
    start = 123

    async def look() -> None:
        async with (
            source_of(kafka, topic) as (cluster, source, runtime),
            embedded_log(tmp_path, runtime, PARTITIONS) as (log, streams),
        ):
            await asyncio.to_thread(produce, kafka, topic, 1000)
            admin = AdminClient({"bootstrap.servers": kafka})
            [deleted] = admin.delete_records([TopicPartition(topic, 0, start)]).values()
            assert (await asyncio.to_thread(deleted.result, 60)).low_watermark == start
            reader = MirrorReader(cluster, source, max_bytes=1 << 20, partition_bytes=1 << 19)
            for place in (MirrorPlace(0), MirrorPlace(7, 0)):
                [leader] = reader.by_leader({0: place})
                assert await reader.read_each(leader, {0: place}) == {0: MirrorOvertaken(0, start)}
            lost = (await reader.read_each(leader, {1: MirrorPlace(501)}))[1]
            assert isinstance(lost, MirrorStopped)
            assert "it has lost records" in str(lost)
            mirror = TopicMirror(
                source, reader, log.mirror, streams, runtime, MirrorLimits(), MirrorMemory(1)
            )
            mirroring = asyncio.ensure_future(mirror.run())
            try:
                async with asyncio.timeout(60):
                    for partition, begins in ((0, start), (1, 0)):
                        while (bounds := await log.bounds(streams[partition])).end < 500:
                            await runtime.sleep(0.02)
                        while bounds.start < begins:
                            await runtime.sleep(0.02)
                            bounds = await log.bounds(streams[partition])
            finally:
                mirroring.cancel()
            assert mirror.progress[0].skipped == start
            assert mirror.progress[1].skipped == 0
            for partition, begins in ((0, start), (1, 0)):
                _, committed = await read_log(log, streams[partition], 500, begins)
                assert [offset for offset, _ in committed] == list(range(begins, 500))
                expected = await asyncio.to_thread(
                    consumed, kafka, topic, partition, 500, "read_committed", begins
                )
                assert committed == expected

    asyncio.run(look())


def delete_records(kafka: str, topic: str, ends: dict[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    wanted = [TopicPartition(topic, partition, end) for partition, end in ends.items()]
    for done in admin.delete_records(wanted).values():
        done.result(60)


@pytest.mark.parametrize("by", ["DeleteRecords", "retention"])
def test_a_topic_is_switched_whose_producers_outlive_their_records(
    kafka: str, tmp_path: Path, by: str
) -> None:
    """Kafka remembers a producer for a day after its last record. Nothing of this one is ever mirrored."""
    topic = f"outlived-by-{by}"

    async def look() -> None:
        async with source_of(kafka, topic) as (cluster, source, runtime):
            await asyncio.to_thread(produce, kafka, topic, 10)
            ends = {each: (await end_of(source, each)).log_end for each in range(PARTITIONS)}
            remembered = all_of(await source.producers(range(PARTITIONS)))
            gone = {each: next(iter(found)) for each, (_, found) in remembered.items()}
            if by == "DeleteRecords":
                await asyncio.to_thread(delete_records, kafka, topic, ends)
            else:
                await alter_configs(cluster, topic, {"retention.ms": "1"})
            deadline = runtime.monotonic() + 60
            while [(await end_of(source, each)).start for each in ends] != list(ends.values()):
                assert runtime.monotonic() < deadline
                await runtime.sleep(0.05)
            await alter_configs(cluster, topic, {"retention.ms": "-1"})
            await asyncio.to_thread(produce, kafka, topic, 4)
            host, port = kafka.rsplit(":", 1)
            async with (
                Cluster([(host, int(port))], Dialer(client_id="mirror"), runtime) as reading,
                embedded_log(tmp_path, runtime, PARTITIONS, ends) as (log, streams),
            ):
                read = SourceTopic(reading, topic)
                reader = MirrorReader(reading, read, max_bytes=1 << 20, partition_bytes=1 << 19)
                limits = MirrorLimits(linger_seconds=0.2)
                mirror = TopicMirror(read, reader, log.mirror, streams, runtime, limits, MirrorMemory(1))
                mirroring = asyncio.ensure_future(mirror.run())
                target = Destination(log.mirror, streams, mirror.hurry)
                fence = await acl_fence(cluster, topic, runtime)
                found = await TopicSwitch(source, target, fence, runtime, give_up_seconds=60).run()
                mirroring.cancel()
                assert found == {0: 7, 1: 7}
                for partition, stream in streams.items():
                    known = gone[partition]
                    assert known.last_sequence == 4
                    retry = await append(log, stream, known, 0, 5)
                    assert retry.base_offset == -1, "known as the last one, but not where it was"
                    assert (await append(log, stream, known, 5, 1)).base_offset == 7

    asyncio.run(look())


async def append(log: Log, stream: int, producer: SourceProducer, sequence: int, count: int) -> AppendResult:
    batch = twin.encode(
        [Record(number, 0, value=b"x") for number in range(count)],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
    )
    [valid] = validate(batch, max_batch_bytes=1 << 30, max_decompressed_bytes=1 << 30)
    return await log.append(stream, valid, memoryview(batch))


async def check_equal(
    kafka: str, cluster: Cluster, topic: str, partition: int, end: int, log: Log, stream: int
) -> None:
    theirs = bytearray(await read_source(cluster, topic, partition, end))
    batches = list(walk_batches(theirs))
    ours, committed = await read_log(log, stream, end)
    for batch in batches:
        theirs[batch.position + 12 : batch.position + 16] = EPOCH.to_bytes(4, "big")
    assert ours == bytes(theirs)
    expected = await asyncio.to_thread(consumed, kafka, topic, partition, end, "read_committed")
    assert committed == expected
    everything = await asyncio.to_thread(consumed, kafka, topic, partition, end, "read_uncommitted")
    assert len(everything) > len(expected), "some were aborted"
    last = [batch for batch in batches if not batch.is_transactional and batch.header.producer_id >= 0][-1]
    retry = bytearray(theirs[last.position : last.end])
    [valid] = validate(retry, max_batch_bytes=1 << 30, max_decompressed_bytes=1 << 30)
    answered = await log.append(stream, valid, memoryview(retry))
    assert answered.base_offset == last.header.base_offset
    fresh = twin.encode([Record(0, 0, value=b"first of Dray")])
    [valid] = validate(fresh, max_batch_bytes=1 << 30, max_decompressed_bytes=1 << 30)
    assert (await log.append(stream, valid, memoryview(fresh))).base_offset == end


def test_a_switch_that_fails_lifts_its_fence(kafka: str) -> None:
    class Forgetful(MirroredTopic):
        async def producers(self, partition: int) -> Collection[SourceProducer]:
            found = await super().producers(partition)
            return [each._replace(last_sequence=each.last_sequence - 1) for each in found]

    async def look() -> None:
        async with source_of(kafka, "failed") as (cluster, source, runtime):
            await asyncio.to_thread(produce, kafka, "failed", 4)
            target = Forgetful(cluster, source)
            fence = await acl_fence(cluster, "failed", runtime)
            with pytest.raises(SwitchFailed, match=r"producers differ from the source's: producer \d+"):
                await TopicSwitch(source, target, fence, runtime, give_up_seconds=60).run()
            assert target.boundaries == {}
            await probed(source, Probe.OPEN)

    asyncio.run(look())


def test_producers_that_were_stopped_by_hand(kafka: str) -> None:
    async def look() -> None:
        async with source_of(kafka, "stopped") as (cluster, source, runtime):
            await asyncio.to_thread(produce, kafka, "stopped", 6)
            fence = StoppedFence(moment_seconds=0.2)
            switch = TopicSwitch(source, MirroredTopic(cluster, source), fence, runtime, give_up_seconds=60)
            assert await switch.run() == {0: 3, 1: 3}

    asyncio.run(look())
