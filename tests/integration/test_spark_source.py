"""The log read by real Spark through our data source: all of it, a part of it, and as a stream that is
started again. What needs no Spark is asked of the parts themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.services.consumers import wait_for
from tests.services.dray import DrayProcess
from tests.services.local_compactor import LocalCompactor
from tests.services.spark_sql import SparkError, SparkSql
from tests.services.topics import TopicMaker, create_topic

from dray.tables.spark_source.log import TopicLog
from dray.tables.spark_source.options import SourceOptions
from dray.tables.spark_source.ranges import Range, RecordsGone, SourceError
from dray.tables.spark_source.source import LogStreamReader, RangePartition, asked, rows

T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSql]:
    with SparkSql(tmp_path_factory.mktemp("spark"), {}) as started:
        yield started


def produce(bootstrap: str, topic: str, partition: int, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": "zstd"})
    for number in range(first, first + count):
        producer.produce(
            topic,
            value=None if number % 7 == 6 else f"value {number}".encode(),
            key=None if number % 5 == 4 else f"key {number}".encode(),
            headers=[("h", b"1"), ("h", None)] if number % 2 else [],
            partition=partition,
            timestamp=T0 + number,
        )
    assert producer.flush(60) == 0


def options(bootstrap: str, topic: str, **more: str) -> dict[str, str]:
    return {"bootstrap.servers": bootstrap, "topic": topic, **more}


def places(rows: list[list[object]]) -> list[list[object]]:
    return [row[:2] for row in rows]


def test_a_batch_is_what_the_log_holds(spark: SparkSql, bootstrap: str, make_topic: TopicMaker) -> None:
    topic = make_topic(2)
    produce(bootstrap, topic, 0, 0, 50)
    produce(bootstrap, topic, 1, 100, 10)
    found = spark.log(options(bootstrap, topic))
    assert places(found) == [[0, offset] for offset in range(50)] + [[1, offset] for offset in range(10)]
    for partition, offset, timestamp, key, value, headers, *_, attributes, name, time_type in found:
        number = offset if partition == 0 else offset + 100
        assert timestamp == (T0 + number) * 1000
        assert key == (None if number % 5 == 4 else {"hex": f"key {number}".encode().hex()})
        assert value == (None if number % 7 == 6 else {"hex": f"value {number}".encode().hex()})
        assert headers == ([["h", {"hex": "31"}], ["h", None]] if number % 2 else [])
        assert attributes & 7 == 0
        assert (name, time_type) == (topic, 0)

    # Less of it: by option, by filter, by time; and in smaller pieces.
    part = options(bootstrap, topic, startingOffsets='{"0": 45, "1": 8}', endingOffsets='{"0": 47}')
    assert places(spark.log(part)) == [[0, 45], [0, 46], [1, 8], [1, 9]]
    everything = options(bootstrap, topic)
    assert places(spark.log(everything, "partition = 1 and offset >= 8")) == [[1, 8], [1, 9]]
    assert spark.tasks(everything) == 2
    assert spark.tasks(everything, "partition = 1 and offset >= 8") == 1
    assert spark.tasks(everything | {"recordsPerTask": "20"}) == 4
    late = options(bootstrap, topic, startingTimestamp=str(T0 + 48))
    assert places(spark.log(late))[:2] == [[0, 48], [0, 49]]
    with pytest.raises(SparkError, match="option startingOffsets: latest would read nothing"):
        spark.log(options(bootstrap, topic, startingOffsets="latest"))
    with pytest.raises(SparkError, match="there is no topic nowhere"):
        spark.log(options(bootstrap, "nowhere"))


def test_a_read_with_nothing_to_read_is_empty(
    spark: SparkSql, bootstrap: str, make_topic: TopicMaker, tmp_path: Path
) -> None:
    empty = options(bootstrap, make_topic(1))
    assert spark.log(empty) == []
    assert spark.log_stream(empty, tmp_path) == []
    topic = make_topic(1)
    produce(bootstrap, topic, 0, 0, 10)
    everything = options(bootstrap, topic)
    assert spark.log(everything, "partition = 99") == []
    assert spark.log(everything, "offset >= 10") == []
    assert spark.log(everything | {"startingOffsets": '{"0": 10}'}) == []
    assert spark.log(everything | {"startingTimestamp": str(T0 + 10**9)}) == []


def test_a_filter_on_time_and_an_ending_time_narrow_the_offsets(
    spark: SparkSql, bootstrap: str, make_topic: TopicMaker
) -> None:
    topic = make_topic(1)
    produce(bootstrap, topic, 0, 0, 50)
    cut = options(bootstrap, topic, endingTimestamp=str(T0 + 5), recordsPerTask="10")
    assert places(spark.log(cut)) == [[0, offset] for offset in range(5)]
    pieces = options(bootstrap, topic, recordsPerTask="10")
    late = f"timestamp >= timestamp_millis({T0 + 37})"
    assert places(spark.log(pieces, late)) == [[0, offset] for offset in range(37, 50)]
    assert (spark.tasks(pieces), spark.tasks(pieces, late)) == (5, 2)


def first_form(offsets: Path, topic: str) -> None:
    """Makes a batch's end what it was when a stream had one topic."""
    *before, end = offsets.read_text().splitlines()
    noted = json.loads(end)
    old = {"topic_id": noted["topic_ids"][topic], "offsets": noted["offsets"][topic]}
    offsets.write_text("\n".join([*before, json.dumps(old)]))
    offsets.with_name(f".{offsets.name}.crc").unlink()


def test_a_stream_restarts_without_loss_or_duplicates(
    spark: SparkSql, bootstrap: str, make_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = make_topic(2)
    chosen = options(bootstrap, topic)
    produce(bootstrap, topic, 0, 0, 20)
    produce(bootstrap, topic, 1, 0, 10)
    seen = spark.log_stream(chosen, tmp_path)
    assert seen == [[0, offset] for offset in range(20)] + [[1, offset] for offset in range(10)]
    # More comes, and the stream goes on where its checkpoint is, one of the form without topics' names too.
    first_form(tmp_path / "checkpoint" / "offsets" / "0", topic)
    produce(bootstrap, topic, 0, 20, 5)
    seen = spark.log_stream(chosen, tmp_path)
    assert seen == [[0, offset] for offset in range(25)] + [[1, offset] for offset in range(10)]
    # A crash before the last batch was noted: the very same batch again, though more has come since.
    produce(bootstrap, topic, 1, 10, 5)
    assert spark.log_stream(chosen, tmp_path, fail=True) == seen
    seen = spark.log_stream(chosen, tmp_path)
    assert seen == [[0, offset] for offset in range(25)] + [[1, offset] for offset in range(15)]


def test_a_stream_from_the_latest_offsets_on(
    spark: SparkSql, bootstrap: str, make_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = make_topic(2)
    chosen = options(bootstrap, topic, startingOffsets="latest")
    produce(bootstrap, topic, 0, 0, 20)
    assert spark.log_stream(chosen, tmp_path) == []
    produce(bootstrap, topic, 0, 20, 5)
    produce(bootstrap, topic, 1, 0, 3)
    # A crash before the first batch was noted: the same batch again, though latest is later now.
    assert spark.log_stream(chosen, tmp_path, fail=True) == []
    seen = spark.log_stream(chosen, tmp_path)
    assert seen == [[0, offset] for offset in range(20, 25)] + [[1, offset] for offset in range(3)]
    produce(bootstrap, topic, 1, 3, 1)
    assert spark.log_stream(chosen, tmp_path) == [*seen, [1, 3]]


def test_a_run_that_ends_in_limited_batches_and_its_progress(
    spark: SparkSql, bootstrap: str, make_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = make_topic(1)
    produce(bootstrap, topic, 0, 0, 25)
    chosen = options(bootstrap, topic, maxOffsetsPerTrigger="10", endingOffsets="latest")
    assert spark.log_batches(chosen, tmp_path) == [[10, True, 15], [10, True, 5], [5, True, 0]]


def test_several_topics(
    spark: SparkSql, bootstrap: str, make_topic: TopicMaker, admin: AdminClient, tmp_path: Path
) -> None:
    """As Kafka's own source names them: batch, and a stream to which topics and partitions are added."""
    one, two = sorted((make_topic(1), make_topic(2)))
    one_long, two_long = (f"{one}.long", f"{two}.long")
    produce(bootstrap, one, 0, 0, 4)
    produce(bootstrap, two, 0, 0, 3)
    cluster = {"bootstrap.servers": bootstrap}
    expected = [[one, 0, offset] for offset in range(4)] + [[two, 0, offset] for offset in range(3)]

    def rows_of(where: str = "true", **more: str) -> list[list[object]]:
        found = spark.log(cluster | more, where, schema="topic string, partition int, offset bigint")
        return sorted(found)

    assert rows_of(subscribe=f"{two},{one}") == expected
    assert rows_of(f"topic = '{two}'", subscribe=f"{two},{one}") == expected[4:]
    assert rows_of(subscribePattern=f"({one}|{two})") == expected
    assert rows_of(subscribePattern=f"{one}.nothing") == []
    assert rows_of(assign=json.dumps({one: [0], two: [0]})) == expected
    part = {"startingOffsets": json.dumps({one: {"0": 3}}), "endingOffsets": json.dumps({two: {"0": 1}})}
    assert rows_of(subscribe=f"{two},{one}", **part) == [[one, 0, 3], [two, 0, 0]]

    pattern = cluster | {"subscribePattern": f"({one}|{two})(.long)?", "maxOffsetsPerTrigger": "100"}
    columns = ["topic", "partition", "offset"]
    assert spark.log_stream(pattern, tmp_path, columns=columns) == expected
    create_topic(bootstrap, one_long, 1, {})
    create_topic(bootstrap, two_long, 1, {})
    produce(bootstrap, one_long, 0, 0, 2)
    [deleted] = admin.delete_records([TopicPartition(one_long, 0, 1)]).values()
    deleted.result(60)
    produce(bootstrap, two_long, 0, 0, 1)
    expected = sorted([*expected, [one_long, 0, 1], [two_long, 0, 0]])
    assert spark.log_stream(pattern, tmp_path, columns=columns) == expected
    # A topic is deleted: one clear line, or the others go on.
    [gone] = admin.delete_topics([two_long]).values()
    gone.result(60)
    produce(bootstrap, one, 0, 4, 1)
    with pytest.raises(SparkError, match=f"topic {two_long} was deleted since this read began"):
        spark.log_stream(pattern, tmp_path, columns=columns)
    expected = sorted([*expected, [one, 0, 4]])
    assert spark.log_stream(pattern | {"failOnDataLoss": "false"}, tmp_path, columns=columns) == expected


def test_files_of_the_table_and_the_log_behind_it(spark: SparkSql, tmp_path: Path) -> None:
    with DrayProcess(tmp_path / "broker") as broker:
        create_topic(broker.bootstrap, "orders", 2, {})
        produce(broker.bootstrap, "orders", 0, 0, 40)
        data = broker.data_directory
        of_tables = {
            "objects.url": f"file://{data / 'objects'}",
            "iceberg.uri": f"sqlite:///{data / 'catalog.sqlite'}",
        }
        everything = options(broker.bootstrap, "orders")
        with LocalCompactor(tmp_path / "compactor", broker):
            table = everything | of_tables | {"compacted": "true"}
            wait_for("all of it in the table", lambda: compacted_rows(spark, table) == 40)
        produce(broker.bootstrap, "orders", 0, 40, 5)
        produce(broker.bootstrap, "orders", 1, 0, 5)
        assert spark.log(everything | of_tables) == spark.log(everything)
        assert places(spark.log(table)) == [[0, offset] for offset in range(40)]
        few = {"recordsPerTask": "5", "startingOffsets": '{"0": 20}'}
        assert spark.tasks(everything | few) == 6
        assert spark.tasks(everything | of_tables | few) == 3, "a file, and twice the log"
        within = spark.log(everything | of_tables | few, "partition = 0 and offset < 42")
        assert places(within) == [[0, offset] for offset in range(20, 42)]


def compacted_rows(spark: SparkSql, table: dict[str, str]) -> int:
    try:
        return len(spark.log(table))
    except SparkError as error:
        if "topic orders: it has no table yet" not in str(error):
            raise
        return 0


def parsed(bootstrap: str, topic: str, **more: str) -> SourceOptions:
    return SourceOptions.parse(options(bootstrap, topic, **more), streaming=False)


def offsets_of(chosen: SourceOptions, topic_id: UUID, wanted: Range) -> list[int]:
    return [
        offset
        for batch in rows(chosen, RangePartition(topic_id, wanted))
        for offset in batch["offset"].to_pylist()
    ]


def test_records_that_are_gone(bootstrap: str, make_topic: TopicMaker, admin: AdminClient) -> None:
    topic = make_topic(1)
    produce(bootstrap, topic, 0, 0, 30)
    chosen = parsed(bootstrap, topic)
    state = asked(chosen, TopicLog.state)
    assert (dict(state.starts), dict(state.ends)) == ({(topic, 0): 0}, {(topic, 0): 30})
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 12)]).values()
    deleted.result(60)
    with pytest.raises(RecordsGone, match="offset 5 is no longer in the log, which starts at 12"):
        offsets_of(chosen, state.topic_ids[topic], Range(topic, 0, 5, 20))
    tolerant = parsed(bootstrap, topic, failOnDataLoss="false")
    assert offsets_of(tolerant, state.topic_ids[topic], Range(topic, 0, 5, 20)) == list(range(12, 20))


def test_another_topic_of_the_same_name_is_not_read(
    bootstrap: str, make_topic: TopicMaker, admin: AdminClient
) -> None:
    topic = make_topic(1)
    produce(bootstrap, topic, 0, 0, 10)
    stream = LogStreamReader(SourceOptions.parse(options(bootstrap, topic), streaming=True))
    start = stream.initialOffset()
    old = asked(stream.options, TopicLog.state).topic_ids[topic]
    [gone] = admin.delete_topics([topic]).values()
    gone.result(60)
    create_topic(bootstrap, topic, 1, {})
    produce(bootstrap, topic, 0, 0, 10)
    with pytest.raises(SourceError, match="was deleted and created again since this read began"):
        stream.partitions(start, stream.latestOffset())
    with pytest.raises(SourceError, match="was deleted and created again since this read began"):
        offsets_of(stream.options, old, Range(topic, 0, 0, 10))


def test_batches_of_a_stream_are_limited_and_cover_new_partitions(
    bootstrap: str, make_topic: TopicMaker, admin: AdminClient
) -> None:
    topic = make_topic(1)
    produce(bootstrap, topic, 0, 0, 30)
    stream = LogStreamReader(
        SourceOptions.parse(options(bootstrap, topic, maxOffsetsPerTrigger="20"), streaming=True)
    )
    first = stream.initialOffset()
    second = stream.latestOffset()
    assert [each.wanted for each in stream.partitions(first, second)] == [Range(topic, 0, 0, 20)]
    [grown] = admin.create_partitions([NewPartitions(topic, 2)]).values()
    grown.result(60)
    produce(bootstrap, topic, 1, 0, 10)
    third = stream.latestOffset()
    assert [each.wanted for each in stream.partitions(second, third)] == [
        Range(topic, 0, 20, 30),
        Range(topic, 1, 0, 10),
    ]
    assert stream.partitions(third, stream.latestOffset()) == []


def test_a_broker_that_is_not_there() -> None:
    chosen = SourceOptions.parse(
        {"bootstrap.servers": "127.0.0.1:9", "topic": "t", "timeout": "1"}, streaming=False
    )
    with pytest.raises(SourceError, match="topic t could not be read for 1 s: cannot reach"):
        asked(chosen, TopicLog.state)
