"""What real clients encode is good here, and what is encoded here they read."""

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
import pytest

from dray.kafka.records import Codec, decode, encode, twin, validate
from dray.kafka.records.columns import Record

LIMITS = {"max_batch_bytes": 1 << 24, "max_decompressed_bytes": 1 << 24}
START = 1_700_000_000_000
RECORDS = [
    Record(0, START, b"key", b"value", [("h", b"v"), ("h", b""), ("nothing", None)]),
    Record(1, START + 200_000, None, b"only a value" * 20, []),
    Record(2, START - 50, b"only a key", None, []),
    Record(3, START, b"", b"", [("größe", bytes(300))]),
    *(Record(n, START + n, b"%d" % n, b"and %d more" % n * 40, []) for n in range(4, 300)),
]

# kafka-python finds no library for the other three here; aiokafka takes all of them from cramjam.
CLIENTS = [
    *((aiokafka_records, codec) for codec in Codec),
    (kafka_records, Codec.NONE),
    (kafka_records, Codec.GZIP),
]
NAMES = [f"{client.__name__.split('.')[0]}-{codec.name}" for client, codec in CLIENTS]
each_client = pytest.mark.parametrize(("client", "codec"), CLIENTS, ids=NAMES)


def build(client, codec, records=RECORDS, transactional=False) -> bytes:
    builder = client.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=transactional,
        producer_id=12,
        producer_epoch=3,
        base_sequence=45,
        batch_size=1 << 24,
    )
    for record in records:
        assert builder.append(
            record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    return bytes(builder.build())


@each_client
def test_their_batches_are_good(client, codec):
    batch = build(client, codec)
    [facts] = validate(batch, **LIMITS)
    assert facts.codec == codec
    assert facts.record_count == len(RECORDS)
    assert (facts.min_timestamp, facts.max_timestamp) == (START - 50, START + 200_000)
    assert facts.max_timestamp_delta == 1
    assert (facts.producer_id, facts.producer_epoch, facts.base_sequence) == (12, 3, 45)
    assert list(decode(batch).records()) == RECORDS


@each_client
def test_they_read_our_batches(client, codec):
    columns = decode(twin.encode(RECORDS, producer_id=12, producer_epoch=3, base_sequence=45))
    batch = client.DefaultRecordBatch(bytes(encode(columns, codec=codec)))
    assert batch.validate_crc()
    assert batch.compression_type == codec
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (12, 3, 45)
    assert [
        Record(record.offset, record.timestamp, record.key, record.value, list(record.headers))
        for record in batch
    ] == RECORDS


@pytest.mark.parametrize("client", [aiokafka_records, kafka_records])
def test_the_same_records_make_the_same_bytes(client):
    """All but the leader epoch, which is no client's to know."""
    batch = build(client, Codec.NONE)
    ours = encode(decode(batch))
    assert (ours[:12], ours[16:]) == (batch[:12], batch[16:])


def test_their_transactional_batches_are_refused():
    with pytest.raises(Exception, match="transactional"):
        validate(build(kafka_records, Codec.NONE, transactional=True), **LIMITS)


def test_lz4_batches_of_many_blocks():
    """Over 64 KiB, where a frame whose blocks depend on each other would show."""
    records = [Record(n, START, None, b"%d" % n * 200, []) for n in range(2000)]
    batch = build(aiokafka_records, Codec.LZ4, records)
    assert list(decode(batch).records()) == records
    again = encode(decode(batch), codec=Codec.LZ4, batch_bytes=1 << 24)
    assert [record.value for record in aiokafka_records.DefaultRecordBatch(bytes(again))] == [
        record.value for record in records
    ]
