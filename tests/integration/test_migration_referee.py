"""The tier of three Kafkas that are gone, attached: every answer is compared with what they said while they
lived, and the table with what they had committed.

What differs, and rightly:

- leader epochs: Dray has one for the whole topic, above all of the source's. Batches carry it, and the end of
  any epoch up to it is the end of the log: a consumer that comes with an older one is never told to go back.
- what was not tiered when the source died is not there: the log ends where the tier did.
- so -4, where local records began at the source, and -5, the last tiered offset, are the source's own
  answers; -1 is the end of the tier, and -3 the youngest record below it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from pyiceberg.catalog import load_catalog
from tests.services.attached_broker import STORE, AttachedBroker, attached_broker
from tests.services.cluster_history import ASSIGNED, ClusterHistory
from tests.services.compactor import CompactorProcess
from tests.services.iceberg_rest import require_spark_jars
from tests.services.log_referee import (
    EARLIEST,
    EARLIEST_LOCAL,
    ISOLATIONS,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    FoundOffset,
    PartitionAnswers,
    SeenBatch,
    ask_all,
)
from tests.services.spark_sql import SparkSql
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tiered_cluster import VERSIONS, TieredCluster
from tests.services.tiered_history import COMPACTED, TOPIC, checksums, commit, committed, read_all, wait_for
from tests.services.tiered_kafka import require_tiering

from dray.kafka.records import decode
from dray.migration.entries.pieces import as_data
from dray.migration.formats.batches import walk_batches
from dray.tables.iceberg.settings import CATALOG_NAME

pytestmark = [
    pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts brokers of its own"),
    pytest.mark.soak,  # three Kafkas, started again and again
]

TOPICS = {TOPIC: len(ASSIGNED), COMPACTED: 1}
GROUP = "billing"
OFFSETS = {0: 100, 1: 200}
EPOCHS = 40
"""More than the source had: what is beyond is asked for as well."""
SECONDS = 300.0


@dataclass(frozen=True)
class DeadCluster:
    version: str
    tier: Path
    logs: Path
    """Of the node that was there all the time."""
    lost: int
    said: dict[str, dict[int, PartitionAnswers]]
    offsets: dict[int, int]


@pytest.fixture(scope="module", params=VERSIONS)
def dead(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DeadCluster:
    version: str = request.param
    require_tiering(version)
    with TieredCluster(tmp_path_factory.mktemp("kafka"), version) as kafka:
        history = ClusterHistory(kafka)
        history.write()
        history.write_compacted()
        commit(kafka.bootstrap, GROUP, TOPIC, OFFSETS)
        for topic, partitions in TOPICS.items():
            history.until_tiered(topic, partitions)
        said = {
            topic: ask_all(kafka.bootstrap, topic, partitions, epochs=EPOCHS)
            for topic, partitions in TOPICS.items()
        }
        offsets = committed(kafka.bootstrap, GROUP, TOPIC)
        kafka.stop()
    return DeadCluster(version, kafka.tier, kafka.logs(1), history.lost, said, offsets)


@pytest.fixture(scope="module")
def attached(dead: DeadCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttachedBroker]:
    directory = tmp_path_factory.mktemp("attached")
    offsets = directory / "offsets.csv"
    offsets.write_text("".join(f"{GROUP},{TOPIC},{each},{at}\n" for each, at in dead.offsets.items()))
    before = checksums(dead.tier)
    with attached_broker(directory, dead.tier) as found:
        for topic in TOPICS:
            found.attach(topic, "--remote-metadata", str(dead.logs), "--offsets", str(offsets))
        yield found
        log = found.broker.log_path.read_text()
    assert checksums(dead.tier) == before, "of the source nothing may change"
    assert "Traceback" not in log


class Compared(NamedTuple):
    topic: str
    partition: int
    end: int
    """Where the tier ended."""
    kafka: PartitionAnswers
    dray: PartitionAnswers


@pytest.fixture(scope="module")
def compared(dead: DeadCluster, attached: AttachedBroker) -> list[Compared]:
    found = []
    for topic, partitions in TOPICS.items():
        said = dead.said[topic]
        answers = ask_all(attached.bootstrap, topic, partitions, epochs=EPOCHS, like=said)
        for number, each in said.items():
            end = each.named[LATEST_TIERED, "read_uncommitted"].offset + 1
            found.append(Compared(topic, number, end, each, answers[number]))
    return found


def below(batches: list[SeenBatch], end: int) -> list[SeenBatch]:
    return [batch for batch in batches if batch.last_offset < end]


def test_the_history_is_what_it_should_be(dead: DeadCluster) -> None:
    """Else the rest proves little."""
    first, second = (dead.said[TOPIC][number] for number in range(2))
    assert dead.lost > 1_000, "records were acknowledged that the next leader did not have"
    for answers in (first, second):
        ends = {epoch: end for epoch, end in answers.epochs.values() if end > 0}
        assert len(ends) >= 3, "leaders changed twice at least"
        tiered = answers.named[LATEST_TIERED, "read_uncommitted"].offset
        assert len([end for end in ends.values() if end <= tiered]) >= 2, "within what is tiered"
        assert len([place for _, place in answers.aborted if place < tiered]) >= 4
    [compacted] = dead.said[COMPACTED].values()
    seen = compacted.batches["read_uncommitted"]
    tiered = compacted.named[LATEST_TIERED, "read_uncommitted"].offset
    records = sum(
        batch.header.record_count for each in below(seen, tiered) for batch in walk_batches(each.data)
    )
    assert records < tiered, "of compaction, in the tier"


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_fetches_are_answered_byte_for_byte(compared: list[Compared], isolation: str) -> None:
    for each in compared:
        wanted = below(each.kafka.batches[isolation], each.end)
        found = each.dray.batches[isolation]
        assert [batch[:2] for batch in found] == [batch[:2] for batch in wanted], each[:3]
        assert found == wanted, each[:3]
        assert found[-1].last_offset == each.end - 1


def test_aborted_transactions_are_named_alike(compared: list[Compared]) -> None:
    for each in compared:
        wanted = {row for row in each.kafka.aborted if row[1] < each.end}
        assert each.dray.aborted == wanted, each[:3]


def test_a_fetch_anywhere_begins_with_the_same_batch(compared: list[Compared]) -> None:
    for each in compared:
        wanted = {place: base for place, base in each.kafka.places.items() if place < each.end}
        assert len(wanted) > 20
        assert {place: base for place, base in each.dray.places.items() if place in wanted} == wanted, each[
            :3
        ]


def test_offsets_of_times(compared: list[Compared]) -> None:
    assert sum(len(each.kafka.times) for each in compared) > 100
    for each in compared:
        for moment, said in each.kafka.times.items():
            wanted = said if said.offset < each.end else FoundOffset(-1, -1)
            assert each.dray.times[moment] == wanted, (each[:3], moment)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_offsets_by_name(compared: list[Compared], isolation: str) -> None:
    for each in compared:
        kafka, dray = each.kafka.named, each.dray.named
        for name in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED):
            assert dray[name, isolation] == kafka[name, isolation], (each[:3], name)
        assert dray[LATEST, isolation].offset == each.end
        youngest = max(
            batch.header.max_timestamp
            for seen in below(each.kafka.batches["read_uncommitted"], each.end)
            for batch in walk_batches(seen.data)
        )
        assert dray[MAX_TIMESTAMP, isolation].timestamp == youngest


def test_ends_of_epochs_never_send_a_consumer_back(compared: list[Compared]) -> None:
    for each in compared:
        for epoch, (_, end) in each.kafka.epochs.items():
            answered, found = each.dray.epochs[epoch]
            assert (answered, found) == (epoch, each.end), (each[:3], epoch)
            assert found >= min(end, each.end)


def test_committed_offsets(dead: DeadCluster, attached: AttachedBroker) -> None:
    """One below the log's start is raised to it, as the plan says. After an unclean election of Kafka 4.2 the
    start is higher than it was."""
    assert dead.offsets == OFFSETS
    starts = {
        number: answers.named[EARLIEST, "read_committed"].offset
        for number, answers in dead.said[TOPIC].items()
    }
    assert committed(attached.bootstrap, GROUP, TOPIC) == {
        number: max(offset, starts[number]) for number, offset in dead.offsets.items()
    }


def test_without_the_metadata_of_the_tier_the_plan_is_the_same(
    dead: DeadCluster, attached: AttachedBroker
) -> None:
    place = ("--from", STORE, "--layout", "kafka-tiered", "--json")
    plans = [
        json.loads(attached.run("migrate", "plan", TOPIC, *place, *more))
        for more in ((), ("--remote-metadata", str(dead.logs)))
    ]
    assert plans[0]["partitions"] == plans[1]["partitions"]


class Row(NamedTuple):
    partition: int
    offset: int
    microseconds: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]


def hexed(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).hex()


def unhexed(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)


def rows_of(answers: PartitionAnswers, partition: int, end: int) -> list[Row]:
    """The records that a consumer is given which reads what was committed."""
    rows = []
    open_aborted: set[int] = set()
    for seen in below(answers.batches["read_committed"], end):
        [batch] = walk_batches(seen.data)
        header = batch.header
        if batch.is_control:
            open_aborted.discard(header.producer_id)
            continue
        if batch.is_transactional:
            if any(
                producer == header.producer_id and first == seen.base_offset
                for producer, first in answers.aborted
            ):
                open_aborted.add(header.producer_id)
            if header.producer_id in open_aborted:
                continue
        for record in decode(as_data(seen.data), sparse=True).records():
            held = tuple((key, hexed(value)) for key, value in record.headers)
            rows.append(
                Row(
                    partition,
                    record.offset,
                    record.timestamp * 1000,
                    hexed(record.key),
                    hexed(record.value),
                    held,
                )
            )
    return rows


@pytest.fixture(scope="module")
def expected(dead: DeadCluster, compared: list[Compared]) -> dict[str, list[Row]]:
    return {
        topic: [
            row
            for each in compared
            if each.topic == topic
            for row in rows_of(each.kafka, each.partition, each.end)
        ]
        for topic in TOPICS
    }


def rows_in_table(attached: AttachedBroker, topic: str) -> int:
    data = attached.broker.data_directory
    catalog = load_catalog("dray", type="sql", uri=f"sqlite:///{data / 'catalog.sqlite'}")
    name = f"{CATALOG_NAME}.{topic}"
    return catalog.load_table(name).scan().count() if catalog.table_exists(name) else 0


@pytest.fixture(scope="module")
def compacted(attached: AttachedBroker, expected: dict[str, list[Row]]) -> Iterator[AttachedBroker]:
    """By `drayd compactor`, on Spark."""
    require_spark_jars()
    settings = {
        "DRAY_CONFIG": str(attached.config),
        "DRAY_COMPACTION__INTERVAL": "1s",
        "DRAY_COMPACTION__WAL_MAX_AGE": "0s",
    }
    with CompactorProcess(attached.broker.directory, attached.broker, settings) as compactor:
        for topic, rows in expected.items():

            def is_complete(topic: str = topic, count: int = len(rows)) -> bool:
                assert compactor.alive, compactor.log_tail()
                return rows_in_table(attached, topic) == count

            wait_for(f"{topic} is a table", is_complete, SECONDS)
        yield attached


def test_the_table_is_what_was_committed_by_duckdb(
    compacted: AttachedBroker, expected: dict[str, list[Row]]
) -> None:
    for topic, rows in expected.items():
        asked = (
            'select partition, "offset", epoch_us(timestamp) as microseconds, hex(key) as key, '
            "hex(value) as value, "
            "list_transform(headers, lambda h: {'key': h.key, 'value': hex(h.value)}) as headers "
            f'from "{topic}" order by partition, "offset"'
        )
        found = [
            Row(
                row["partition"],
                row["offset"],
                row["microseconds"],
                None if row["key"] is None else row["key"].lower(),
                None if row["value"] is None else row["value"].lower(),
                tuple(
                    (held["key"], None if held["value"] is None else held["value"].lower())
                    for held in row["headers"]
                ),
            )
            for row in compacted.query(asked)
        ]
        assert found == rows


def test_the_table_is_what_was_committed_by_spark(
    compacted: AttachedBroker, expected: dict[str, list[Row]], tmp_path: Path
) -> None:
    data = compacted.broker.data_directory
    catalog = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{data / 'catalog.sqlite'}",
        "warehouse": str(data / "objects"),
        "jdbc.schema-version": "V1",
        "cache-enabled": "false",
    }
    with SparkSql(tmp_path, {CATALOG_NAME: catalog}) as spark:
        for topic, rows in expected.items():
            found = spark.rows(
                "select partition, offset, unix_micros(timestamp), lower(hex(key)), lower(hex(value)), "
                "transform(headers, h -> struct(h.key, lower(hex(h.value)))) "
                f"from {CATALOG_NAME}.dray.`{topic}` order by partition, offset"
            )
            assert [
                Row(number, offset, at, key, value, tuple((name, held) for name, held in headers))
                for number, offset, at, key, value, headers in found
            ] == rows


def test_a_topic_that_became_a_table_is_read_as_before(
    compacted: AttachedBroker, compared: list[Compared], expected: dict[str, list[Row]]
) -> None:
    for topic, rows in expected.items():
        ends = {each.partition: each.end for each in compared if each.topic == topic}
        read = read_all(compacted.bootstrap, topic, ends, "read_committed")
        found = [
            (number, record.offset, record.timestamp[1], record.key, record.value)
            for number, records in read.items()
            for record in records
        ]
        assert found == [
            (row.partition, row.offset, row.microseconds // 1000, unhexed(row.key), unhexed(row.value))
            for row in rows
        ]
