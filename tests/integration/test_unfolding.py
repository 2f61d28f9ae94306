"""A client that sends little that unfolds to much, from outside: others are answered, and memory has a bound.

How long others wait is not measured by the clock: that no turn of the broker's loop took long is what every
test here asserts (`no_turn_is_long`).
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from pathlib import Path

import cramjam
import pytest
from tests.services.batches import GZIP, ZSTD, batch, plain, record
from tests.services.dray import DrayProcess
from tests.services.marks import longer
from tests.services.topics import KEPT, create_topic

from dray.kafka.client import KafkaConnection
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest
from dray.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from dray.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

MIB = 1 << 20
UNFOLDED = 126 * MIB
PARTITIONS = 180
IN_A_REQUEST = 512 * MIB
"""Four times what one batch may grow to (`decompressed_bytes`)."""
TIMESTAMP = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrayProcess]:
    directory: Path = tmp_path_factory.mktemp("unfolding")
    with DrayProcess(directory, settings={"DRAY_BROKER__SESSION_TTL": "3s"}) as process:
        create_topic(process.bootstrap, "far", PARTITIONS)
        yield process


@pytest.fixture(scope="module")
def far() -> bytes:
    """A few kilobytes."""
    section = record((None, bytes(UNFOLDED), ()), 0)
    return batch(plain(b""), attributes=ZSTD, body=bytes(cramjam.zstd.compress(section, level=3)))


async def connected(broker: DrayProcess) -> KafkaConnection:
    return await KafkaConnection.connect("127.0.0.1", broker.port)


def produce(records: bytes, partitions: int) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index in range(partitions)]
    return ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="far", partition_data=data)]
    )


def codes(response: ProduceResponse) -> list[int]:
    return [part.error_code for topic in response.responses for part in topic.partition_responses]


async def answered_meanwhile(broker: DrayProcess, work: asyncio.Future[ProduceResponse]) -> int:
    answers = 0
    async with await connected(broker) as other:
        while not work.done():
            await other.request(ApiVersionsRequest(), 0)
            answers += 1
    return answers


def peak_memory(broker: DrayProcess) -> int:
    [line] = [
        line
        for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    ]
    return int(line.split()[1]) * 1024


async def test_a_megabyte_that_unfolds_to_gigabytes_holds_up_no_other_client(
    broker: DrayProcess, far: bytes
) -> None:
    async with await connected(broker) as connection:
        request = produce(far, PARTITIONS)
        assert len(far) * PARTITIONS < 3 * MIB
        work = asyncio.ensure_future(connection.request(request, 9))
        assert await answered_meanwhile(broker, work) > 3
    taken = IN_A_REQUEST // UNFOLDED
    assert codes(await work) == [0] * taken + [ErrorCode.MESSAGE_TOO_LARGE] * (PARTITIONS - taken)
    message = work.result().responses[0].partition_responses[-1].error_message
    assert message is not None
    assert f"may decompress to {IN_A_REQUEST} bytes together" in message
    assert "registers again" not in broker.log_path.read_text(), "it kept its session"


async def test_many_such_requests_at_once_have_a_bound_in_memory(broker: DrayProcess, far: bytes) -> None:
    """Twelve of them would be 1.5 GiB: twice 128 MiB are unfolded at any one time."""
    connections = [await connected(broker) for _ in range(12)]
    try:
        work = asyncio.ensure_future(
            asyncio.gather(*[connection.request(produce(far, 1), 9) for connection in connections])
        )
        assert await answered_meanwhile(broker, work) > 3  # type: ignore[arg-type]
        assert [codes(answer) for answer in await work] == [[0]] * len(connections)
    finally:
        for connection in connections:
            await connection.close()
    assert peak_memory(broker) < 600 * MIB


async def test_frames_that_lie_are_unfolded_in_a_thread(broker: DrayProcess) -> None:
    """The last member of a gzip stream says how long that member is. By their word these are of one byte."""
    section = record((None, bytes(24 * MIB), ()), 0)
    lying = batch(plain(b""), attributes=GZIP, body=gzip.compress(section) + gzip.compress(b""))
    assert len(lying) < 32 * 1024
    async with await connected(broker) as connection:
        work = asyncio.ensure_future(connection.request(produce(lying, 20), 9))
        await answered_meanwhile(broker, work)
    assert codes(await work) == [0] * 20


async def test_looking_up_times_in_them_holds_up_no_other_client(broker: DrayProcess, far: bytes) -> None:
    async with await connected(broker) as connection:
        assert codes(await connection.request(produce(far, 4), 9)) == [0] * 4
        asked = [ListOffsetsPartition(partition_index=index, timestamp=TIMESTAMP) for index in range(4)]
        answer: ListOffsetsResponse = await connection.request(
            ListOffsetsRequest(topics=[ListOffsetsTopic(name="far", partitions=asked)]), 5
        )
    [topic] = answer.topics
    assert [(part.error_code, part.offset) for part in topic.partitions] == [(0, 0)] * 4


async def test_many_small_batches_of_one_request_take_several_turns(broker: DrayProcess) -> None:
    """Each is judged on the loop, and made so that it takes some milliseconds: 180 of them would hold it."""
    slow = gzip.compress(b"") * 1500 + gzip.compress(record((None, b"value", ()), 0))
    small = batch(plain(b""), attributes=GZIP, body=slow)
    assert len(small) < 32 * 1024
    async with await connected(broker) as connection:
        assert codes(await connection.request(produce(small, PARTITIONS), 9)) == [0] * PARTITIONS


@pytest.mark.parametrize("many", [4000, longer(10_000)])
async def test_requests_of_thousands_of_partitions_take_several_turns(broker: DrayProcess, many: int) -> None:
    async with await connected(broker) as connection:
        kept = [CreatableTopicConfig(name=name, value=value) for name, value in KEPT.items()]
        new = CreatableTopic(name=f"wide-{many}", num_partitions=many, replication_factor=1, configs=kept)
        created = await connection.request(CreateTopicsRequest(topics=[new], timeout_ms=60_000), 5)
        assert created.topics[0].error_code == 0
        small = batch(plain(b"value"))
        data = [PartitionProduceData(index=index, records=small) for index in range(many)]
        sent = ProduceRequest(
            acks=-1,
            timeout_ms=60_000,
            topic_data=[TopicProduceData(name=f"wide-{many}", partition_data=data)],
        )
        assert codes(await connection.request(sent, 9)) == [0] * many
        for timestamp in (-1, TIMESTAMP):
            asked = [
                ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(many)
            ]
            offsets: ListOffsetsResponse = await connection.request(
                ListOffsetsRequest(topics=[ListOffsetsTopic(name=f"wide-{many}", partitions=asked)]), 5
            )
            expected = 1 if timestamp < 0 else 0
            assert [part.offset for part in offsets.topics[0].partitions] == [expected] * many
        wanted = [
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=MIB) for index in range(many)
        ]
        fetched: FetchResponse = await connection.request(
            FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=32 * MIB,
                topics=[FetchTopic(topic=f"wide-{many}", partitions=wanted)],
            ),
            11,
        )
        assert sum(len(part.records or b"") for part in fetched.responses[0].partitions) == many * len(small)
