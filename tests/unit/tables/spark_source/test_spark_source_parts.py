"""The parts of the data source that ask nobody: options, ranges, filters, and batches in a fetch's bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType
from tests.services.batches import CONTROL, TRANSACTIONAL, batch, plain

from dray.kafka.client.cluster import Place
from dray.kafka.client.properties import ClientSecurity
from dray.kafka.records import decode
from dray.kafka.records.arrow import Uncommitted, whole_batches
from dray.kafka.sasl.client import ClientCredential
from dray.tables.spark_source import source
from dray.tables.spark_source.log import LogState, TopicLog
from dray.tables.spark_source.options import OptionRefused, SourceOptions
from dray.tables.spark_source.ranges import Offset, Range, SourceError, between, limited, split
from dray.tables.spark_source.source import BatchReader, LogStreamReader, wanted_columns

PLACES = st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 3))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 1000), min_size=1)


class TestOptions:
    def test_defaults(self) -> None:
        chosen = SourceOptions.parse({"path": "orders"}, streaming=False)
        assert chosen.bootstrap == (("127.0.0.1", 9092),)
        assert (chosen.topics, chosen.partitions, chosen.starting, chosen.ending) == (
            ("orders",),
            {},
            "earliest",
            "latest",
        )
        assert chosen.fail_on_data_loss
        assert chosen.security == ClientSecurity()

    def test_properties_of_kafkas_clients(self, tmp_path: Path) -> None:
        secret = tmp_path / "password"
        secret.write_text("hunter2")
        given = {
            "kafka.security.protocol": "SASL_SSL",
            "Kafka.Sasl.Mechanism": "SCRAM-SHA-512",
            "kafka.username": "alice",
            "kafka.password.file": str(secret),
        }
        chosen = SourceOptions.parse({"topic": "t"} | given, streaming=True)
        assert chosen.security.tls is not None
        assert chosen.security.credential == ClientCredential("SCRAM-SHA-512", "alice", "hunter2")
        assert "hunter2" not in repr(chosen)

    def test_names_are_as_spark_has_them_in_any_case(self) -> None:
        chosen = SourceOptions.parse(
            {
                "Bootstrap.Servers": "a:1, [::1]:2",
                "TOPIC": "t",
                "StartingOffsets": '{"0": 7}',
                "partitions": "0, 3",
                "FailOnDataLoss": "FALSE",
            },
            streaming=False,
        )
        assert chosen.bootstrap == (("a", 1), ("::1", 2))
        assert chosen.starting == {("t", 0): 7}
        assert chosen.partitions == {"t": {0, 3}}
        assert not chosen.fail_on_data_loss

    def test_topics_as_kafkas_source_has_them(self) -> None:
        several = SourceOptions.parse(
            {"subscribe": "b, a", "startingOffsets": '{"a": {"0": -1}, "b": {"1": 5}}'}, streaming=True
        )
        assert several.topics == ("a", "b")
        assert several.starting == {("a", 0): -1, ("b", 1): 5}
        assert several.begins_late
        assert SourceOptions.parse({"path": "a,b"}, streaming=True).topics == ("a", "b")
        matching = SourceOptions.parse({"subscribePattern": "a.*"}, streaming=True)
        assert [name for name in ("a", "abc", "ba") if matching.chosen(name)] == ["a", "abc"]
        assigned = SourceOptions.parse({"assign": '{"b": [0], "a": [2, 1]}'}, streaming=False)
        assert (assigned.topics, assigned.partitions) == (("a", "b"), {"a": {1, 2}, "b": {0}})
        task = matching.of("abc")
        assert (task.topics, task.pattern, task.subject) == (("abc",), None, "topic abc")

    @pytest.mark.parametrize(
        ("options", "streaming", "line"),
        [
            ({}, False, "option topic: it is needed"),
            ({"topic": "t", "subscribe": "u"}, False, "options topic and subscribe: topics are named by one"),
            ({"subscribe": " , "}, False, "option topic: it is needed"),
            ({"subscribePattern": "("}, False, "option subscribePattern: it is no regular expression"),
            ({"subscribePattern": "t", "partitions": "0"}, False, "assign alone says which partitions"),
            ({"assign": '{"t": []}'}, False, "option assign: '{\"t\": []}' is not partitions such as"),
            ({"assign": "t"}, False, "option assign: 't' is not partitions such as"),
            ({"subscribe": "t,u", "partitions": "0"}, False, "for partitions of several there is assign"),
            ({"subscribe": "t,u", "startingOffsets": '{"0": 5}'}, False, 'such as {"orders": {"0": 23'),
            ({"topic": "t", "startingOffsets": '{"t": {"0": -1}}'}, False, "latest would read nothing"),
            ({"topic": "t", "endingOffsets": '{"t": {"0": -2}}'}, False, "earliest would read nothing"),
            ({"topic": "t", "startingOfsets": "earliest"}, False, "there is no such option"),
            ({"topic": "t", "bootstrap.servers": "a"}, False, "'a' is not HOST:PORT"),
            ({"topic": "t", "startingOffsets": "soon"}, False, "neither earliest, latest, nor offsets"),
            ({"topic": "t", "startingOffsets": '{"0": -3}'}, False, "neither earliest, latest, nor offsets"),
            ({"topic": "t", "startingOffsets": "[1]"}, False, "neither earliest, latest, nor offsets"),
            ({"topic": "t", "startingOffsets": "latest"}, False, "would read nothing"),
            ({"topic": "t", "endingOffsets": "earliest"}, False, "would read nothing"),
            ({"topic": "t", "endingOffsets": '{"0": 1}'}, True, "no end but endingOffsets=latest"),
            ({"topic": "t", "isolation.level": "serializable"}, False, "neither read_committed nor"),
            ({"topic": "t", "endingTimestamp": "1"}, True, "option endingTimestamp: a stream has no end"),
            ({"topic": "t", "endingTimestamp": "1", "endingOffsets": "latest"}, False, "ends at one of them"),
            ({"topic": "t", "maxOffsetsPerTrigger": "5"}, False, "only streams have triggers"),
            ({"topic": "t", "recordsPerTask": "0"}, False, "not a whole number of 1 or more"),
            ({"topic": "t", "failOnDataLoss": "maybe"}, False, "neither true nor false"),
            ({"topic": "t", "kafka.acks": "all"}, False, "option kafka.acks: there is no such option"),
            (
                {"topic": "t", "kafka.sasl.mechanism": "PLAIN"},
                False,
                "option kafka.sasl.mechanism: has no effect, since security.protocol is PLAINTEXT",
            ),
            (
                {"topic": "t", "startingOffsets": "earliest", "startingTimestamp": "5"},
                False,
                "starts at one of them",
            ),
        ],
    )
    def test_refused_in_one_line(self, options: dict[str, str], streaming: bool, line: str) -> None:
        with pytest.raises(OptionRefused) as caught:
            SourceOptions.parse(options, streaming=streaming)
        assert line in str(caught.value)
        assert "\n" not in str(caught.value)


class TestRanges:
    @given(OFFSETS, OFFSETS, st.integers(1, 300))
    def test_pieces_cover_a_batch_once(
        self, start: dict[Place, int], end: dict[Place, int], most: int
    ) -> None:
        wanted = {
            (place, offset) for place, stop in end.items() for offset in range(start.get(place, 0), stop)
        }
        pieces = split(between(start, end), most)
        read = [(each.place, offset) for each in pieces for offset in range(each.start, each.end)]
        assert sorted(read) == sorted(wanted)
        assert all(0 < each.end - each.start <= most for each in pieces)

    @given(OFFSETS, OFFSETS, st.integers(1, 300))
    def test_limited_batches_reach_the_end(
        self, start: dict[Place, int], end: dict[Place, int], most: int
    ) -> None:
        end = {place: max(stop, start.get(place, 0)) for place, stop in end.items()}
        position, rounds = dict(start), 0
        while any(position.get(place, 0) < stop for place, stop in end.items()):
            following = limited(position, end, most)
            assert all(position.get(place, 0) <= following[place] <= end[place] for place in end)
            count = sum(following[place] - position.get(place, 0) for place in end)
            assert 0 < count <= most + len(end)
            position |= following
            rounds += 1
            assert rounds < 7000
        noted = Offset({"t": "id"}, position, start)
        assert Offset.from_json(json.loads(json.dumps(noted.to_json())), None) == noted

    def test_an_offset_has_the_shape_of_kafkas_source(self) -> None:
        noted = Offset({"u": "2", "t": "1"}, {("u", 0): 7, ("t", 10): 5, ("t", 2): 4}).to_json()
        same = Offset({"t": "1", "u": "2"}, {("t", 2): 4, ("t", 10): 5, ("u", 0): 7}).to_json()
        assert noted["offsets"] == {"t": {"2": 4, "10": 5}, "u": {"0": 7}}
        assert json.dumps(noted) == json.dumps(same), "Spark compares texts"


class TestFilters:
    @pytest.mark.parametrize(
        ("filters", "left"),
        [
            ([EqualTo(("partition",), 1)], [Range("t", 1, 0, 50)]),
            ([In(("partition",), (0, 7)), LessThan(("offset",), 10)], [Range("t", 0, 0, 10)]),
            ([GreaterThan(("offset",), 48)], [Range("t", 0, 49, 100), Range("t", 1, 49, 50)]),
            ([GreaterThanOrEqual(("offset",), 50)], [Range("t", 0, 50, 100)]),
            ([LessThanOrEqual(("offset",), 0)], [Range("t", 0, 0, 1), Range("t", 1, 0, 1)]),
            ([EqualTo(("offset",), 60)], [Range("t", 0, 60, 61)]),
            ([In(("offset",), (3, 9))], [Range("t", 0, 3, 10), Range("t", 1, 3, 10)]),
            ([EqualTo(("topic",), "t"), In(("partition",), (1,))], [Range("t", 1, 0, 50)]),
            ([In(("topic",), ("u", "v"))], []),
            ([EqualTo(("partition",), 0), EqualTo(("partition",), 1)], []),
            (
                [EqualTo(("key",), b"x"), EqualTo(("offset",), None)],
                [Range("t", 0, 0, 100), Range("t", 1, 0, 50)],
            ),
            ([GreaterThan(("headers", "offset"), 5)], [Range("t", 0, 0, 100), Range("t", 1, 0, 50)]),
        ],
    )
    def test_narrow_what_is_read(self, filters: list[Filter], left: list[Range]) -> None:
        reader = BatchReader(SourceOptions.parse({"topic": "t"}, streaming=False))
        assert list(reader.pushFilters(filters)) == filters  # Spark checks the rows again
        assert reader.bounds.applied([Range("t", 0, 0, 100), Range("t", 1, 0, 50)]) == left


class TestBatches:
    FIRST = batch(plain(b"a", b"b"), base_offset=10)
    SECOND = batch(plain(b"c"), base_offset=12)
    MARKER = batch(plain(b"end"), base_offset=13, attributes=CONTROL)
    LAST = batch(plain(b"d"), base_offset=14)

    def test_runs_of_records(self) -> None:
        runs, following = whole_batches(self.FIRST + self.SECOND)
        assert ([bytes(run) for run in runs], following) == ([self.FIRST + self.SECOND], 13)

    def test_control_batches_are_stepped_over(self) -> None:
        runs, following = whole_batches(self.FIRST + self.MARKER + self.LAST)
        assert ([bytes(run) for run in runs], following) == ([self.FIRST, self.LAST], 15)
        runs, following = whole_batches(self.SECOND + self.MARKER)
        assert ([bytes(run) for run in runs], following) == ([self.SECOND], 14)
        assert whole_batches(self.MARKER) == ([], 14)

    @given(st.integers(1, 200))
    def test_a_batch_cut_off_is_left_for_the_next_fetch(self, cut: int) -> None:
        data = self.FIRST + self.SECOND
        cut = min(cut, len(self.SECOND))
        runs, following = whole_batches(data[: len(data) - cut])
        assert ([bytes(run) for run in runs], following) == ([self.FIRST], 12)

    def test_what_was_not_committed(self) -> None:
        """Producer 1 aborts two transactions and commits the one between them; 2 commits; 3 has none."""
        made = [
            (1, "a"),
            (2, "b"),
            (1, ""),
            (1, "c"),
            (3, "d"),
            (1, ""),
            (1, "e"),
            (2, ""),
            (1, "f"),
            (1, ""),
        ]
        data = b"".join(
            batch(
                plain(value.encode()),
                base_offset=offset,
                producer=producer,
                epoch=0,
                sequence=0,
                attributes=(TRANSACTIONAL if producer < 3 else 0) | (0 if value else CONTROL),
            )
            for offset, (producer, value) in enumerate(made)
        )

        def values(start: int, aborted: list[tuple[int, int]]) -> bytes:
            size = len(data) // len(made) if start else 0
            runs, following = whole_batches(data[start * size :], Uncommitted(aborted))
            assert following == len(made)
            return b"".join(row.value or b"" for run in runs for row in decode(run, sparse=True).records())

        assert values(0, [(1, 0), (1, 6)]) == b"bcd"
        assert values(0, [(1, 6), (1, 3)]) == b"abd", "in whatever order they are named"
        assert values(0, []) == b"abcdef"

    def test_nothing(self) -> None:
        assert whole_batches(b"") == ([], None)

    def test_a_length_that_leads_nowhere_ends_it(self) -> None:
        assert whole_batches(bytes(200)) == ([], None)


TOPIC_ID, OTHER_ID = UUID(int=5), UUID(int=6)


class Topics:
    """The topics of a cluster, as a source finds them: their ids, where partitions start and end."""

    def __init__(self) -> None:
        self.ids = {"t": TOPIC_ID}
        self.starts: dict[Place, int] = {}
        self.ends: dict[Place, int] = {("t", 0): 10, ("t", 1): 0}
        self.firsts: dict[Place, int] = {}
        """The first record that is as late as the time that is asked for."""
        self.known: Mapping[str, UUID] | None = None
        """What the source said that it has read, when it asked last."""

    async def state(self) -> LogState:
        found = {place: end for place, end in self.ends.items() if place[0] in self.ids}
        return LogState(dict(self.ids), {each: self.starts.get(each, 0) for each in found}, found)

    async def offsets(self, _: int) -> dict[Place, int]:
        return self.firsts

    def asked(self, _: SourceOptions, question: Any, known: Mapping[str, UUID] | None = None) -> Any:
        self.known = known
        return asyncio.run(self.state() if question is TopicLog.state else question(self))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Topics:
    topics = Topics()
    monkeypatch.setattr(source, "asked", topics.asked)
    return topics


def stream(**options: str) -> LogStreamReader:
    return LogStreamReader(SourceOptions.parse(options, streaming=True))


def planned(reader: LogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
    kept_start, kept_end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    return [each.wanted for each in reader.partitions(kept_start, kept_end)]


class TestLatest:
    """A stream from the latest offsets: the calls that Spark makes, in the orders in which it makes them."""

    @staticmethod
    def reader(**more: str) -> LogStreamReader:
        return stream(topic="t", startingOffsets="latest", **more)

    @pytest.mark.parametrize("start_first", [True, False])
    def test_it_begins_where_the_log_ended(self, log: Topics, start_first: bool) -> None:
        reader = self.reader()
        if start_first:
            start, end = reader.initialOffset(), reader.latestOffset()
        else:
            end, start = reader.latestOffset(), reader.initialOffset()
        assert planned(reader, start, end) == []
        log.ends["t", 0] = 12
        assert planned(reader, end, reader.latestOffset()) == [Range("t", 0, 10, 12)]

    def test_what_came_before_the_first_batch_was_noted_is_in_it(self, log: Topics) -> None:
        reader = self.reader()
        start = reader.initialOffset()
        log.ends["t", 0] = 12
        assert planned(reader, start, reader.latestOffset()) == [Range("t", 0, 10, 12)]

    def test_a_first_batch_that_was_not_finished_is_the_same_batch(self, log: Topics) -> None:
        first = self.reader()
        first.initialOffset()
        log.ends["t", 0] = 12
        noted = first.latestOffset()
        log.ends["t", 0] = 20  # latest is later now
        again = self.reader()
        assert planned(again, noted, noted) == []  # as Spark says what it has seen
        assert planned(again, again.initialOffset(), noted) == [Range("t", 0, 10, 12)]
        assert planned(again, noted, again.latestOffset()) == [Range("t", 0, 12, 20)]

    def test_a_stream_that_is_started_again_goes_on_where_it_was(self, log: Topics) -> None:
        first = self.reader()
        noted = first.latestOffset()
        log.ends["t", 0] = 20
        again = self.reader()
        assert planned(again, noted, again.latestOffset()) == [Range("t", 0, 10, 20)]

    def test_nothing_new_is_the_same_offset_and_no_empty_batch(self, log: Topics) -> None:
        first = self.reader()
        noted = first.latestOffset()
        assert first.latestOffset() == noted
        again = self.reader()
        planned(again, noted, noted)
        assert again.latestOffset() == noted
        log.ends["t", 2] = 5
        assert planned(again, noted, again.latestOffset()) == [Range("t", 2, 0, 5)], "a partition that is new"

    def test_batches_are_limited_from_the_start_on(self, log: Topics) -> None:
        reader = self.reader(maxOffsetsPerTrigger="3")
        start = reader.initialOffset()
        log.ends["t", 0] = 20
        assert planned(reader, start, reader.latestOffset()) == [Range("t", 0, 10, 13)]


def test_the_first_batch_of_a_new_stream_is_limited(log: Topics) -> None:
    """Spark asks for the latest before it asks for the start."""
    log.starts, log.ends = {("t", 0): 100}, {("t", 0): 120}
    reader = stream(topic="t", maxOffsetsPerTrigger="3")
    end, start = reader.latestOffset(), reader.initialOffset()
    assert planned(reader, start, end) == [Range("t", 0, 100, 103)]


def test_a_run_that_ends_reads_what_was_there_in_batches_that_are_limited(log: Topics) -> None:
    reader = stream(topic="t", endingOffsets="latest", maxOffsetsPerTrigger="4")
    ends = [reader.initialOffset(), reader.latestOffset()]
    while ends[-1] != ends[-2]:
        assert len(ends) < 10, "it ends, however much comes"
        log.ends["t", 0] += 5
        log.ends["t", 2] = 5
        ends.append(reader.latestOffset())
    pieces = [planned(reader, start, end) for start, end in pairwise(ends)]
    assert pieces == [[Range("t", 0, 0, 4)], [Range("t", 0, 4, 8)], [Range("t", 0, 8, 10)], []]
    assert [end.get("behind", 0) for end in ends[1:]] == [6, 2, 0, 0], "what is left, for who watches"
    again = stream(topic="t", endingOffsets="latest")
    assert planned(again, ends[-1], ends[-1]) == []
    later = [Range("t", 0, 10, log.ends["t", 0]), Range("t", 2, 0, 5)]
    assert planned(again, ends[-1], again.latestOffset()) == later, "another run goes further"


class TestTopicsThatComeAndGo:
    def test_a_new_topic_is_read_from_where_its_log_starts(self, log: Topics) -> None:
        reader = stream(subscribePattern="[tu]", maxOffsetsPerTrigger="100")
        start, end = reader.initialOffset(), reader.latestOffset()
        log.ids["u"] = OTHER_ID
        log.starts["u", 0], log.ends["u", 0] = 30, 40
        log.ends["t", 0] = 12
        later = reader.latestOffset()
        assert later["topic_ids"] == {"t": str(TOPIC_ID), "u": str(OTHER_ID)}
        new = [Range("t", 0, 10, 12), Range("u", 0, 30, 40)]
        assert planned(reader, end, later) == new
        log.starts["u", 0] = 35  # by now; a batch that is read again is the same
        again = stream(subscribePattern="[tu]")
        assert planned(again, later, later) == []
        assert planned(again, end, later) == new
        assert planned(again, start, end) == [Range("t", 0, 0, 10)]

    def test_a_new_topic_has_its_share_of_a_batch_that_is_limited(self, log: Topics) -> None:
        noted = stream(subscribePattern="[tu]").latestOffset()
        log.ids["u"] = OTHER_ID
        log.starts["u", 0], log.ends["u", 0] = 30, 40
        log.ends["t", 0] = 20
        again = stream(subscribePattern="[tu]", maxOffsetsPerTrigger="6")
        assert planned(again, noted, noted) == []
        later = again.latestOffset()
        assert log.known == {"t": TOPIC_ID}, "of these, it asks whether they are still the same"
        assert planned(again, noted, later) == [Range("t", 0, 10, 13), Range("u", 0, 30, 33)]

    def test_a_topic_that_is_gone_keeps_its_place(self, log: Topics) -> None:
        reader = stream(subscribePattern="[tu]", failOnDataLoss="false")
        log.ids["u"] = OTHER_ID
        log.ends["u", 0] = 40
        noted = reader.latestOffset()
        del log.ids["u"]
        assert reader.latestOffset() == noted
        log.ids["u"] = OTHER_ID  # a broker did not know of it
        log.ends["u", 0] = 41
        assert planned(reader, noted, reader.latestOffset()) == [Range("u", 0, 40, 41)]

    def test_a_topic_that_was_created_again_is_another(self, log: Topics) -> None:
        reader = stream(topic="t", failOnDataLoss="false")
        noted = reader.latestOffset()
        log.ids["t"] = OTHER_ID
        log.ends = {("t", 0): 3}
        later = reader.latestOffset()
        [piece] = reader.partitions(noted, later)
        assert (piece.topic_id, piece.wanted) == (OTHER_ID, Range("t", 0, 0, 3))
        assert later["offsets"] == {"t": {"0": 3}}

    def test_offsets_by_topic(self, log: Topics) -> None:
        log.ends["t", 1] = 10
        given = '{"t": {"0": 7, "1": -1}}'
        reader = stream(topic="t", startingOffsets=given)
        start = reader.initialOffset()
        log.ends["t", 1] = 12
        noted = reader.latestOffset()
        expected = [Range("t", 0, 7, 10), Range("t", 1, 10, 12)]
        assert planned(reader, start, noted) == expected
        again = stream(topic="t", startingOffsets=given)
        planned(again, noted, noted)
        assert planned(again, again.initialOffset(), noted) == expected, "latest is what it was then"
        with pytest.raises(
            SourceError, match="option startingOffsets: topic u has no partition 0 that is read"
        ):
            stream(topic="t", startingOffsets='{"u": {"0": 7}}').initialOffset()
        batch_reader = BatchReader(
            SourceOptions.parse({"topic": "t", "endingOffsets": '{"t": {"0": 5, "1": -1}}'}, streaming=False)
        )
        assert [each.wanted for each in batch_reader.partitions()] == [
            Range("t", 0, 0, 5),
            Range("t", 1, 0, 12),
        ]


class TestCheckpointsOfTheFirstForm:
    def test_they_go_on(self, log: Topics) -> None:
        kept = {"topic_id": str(TOPIC_ID), "offsets": {"0": 4, "1": 0}}
        reader = stream(topic="t")
        assert planned(reader, kept, kept) == []
        assert planned(reader, kept, reader.latestOffset()) == [Range("t", 0, 4, 10)]

    def test_a_first_batch_from_the_latest_on_is_the_same_batch(self, log: Topics) -> None:
        kept = {"topic_id": str(TOPIC_ID), "offsets": {"0": 9, "1": 0}, "began": {"0": 6, "1": 0}}
        reader = stream(topic="t", startingOffsets="latest")
        planned(reader, kept, kept)
        assert planned(reader, reader.initialOffset(), kept) == [Range("t", 0, 6, 9)]

    def test_with_several_topics_it_is_not_known_whose_they_are(self) -> None:
        kept = {"topic_id": str(TOPIC_ID), "offsets": {"0": 4}}
        with pytest.raises(
            SourceError, match="of a stream of one topic: let it go on with option topic alone"
        ):
            stream(subscribe="t,u").partitions(kept, kept)


def test_columns_that_the_schema_leaves_out_are_not_sent() -> None:
    chosen = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])
    assert wanted_columns(chosen) == ["value", "partition"]
    with pytest.raises(OptionRefused, match="there is no column value string; there are: partition int, "):
        wanted_columns(StructType([StructField("value", StringType())]))


def test_a_filter_on_time_is_a_first_offset_and_no_last_one() -> None:
    moment = datetime(2023, 11, 14, 22, 13, 20, 500, tzinfo=UTC)
    reader = BatchReader(SourceOptions.parse({"topic": "t"}, streaming=False))
    reader.pushFilters(
        [LessThan(("timestamp",), moment), GreaterThan(("timestamp",), moment.replace(tzinfo=None))]
    )
    assert reader.not_before is None, "later records may lie before; a time without a zone says nothing"
    reader.pushFilters(
        [GreaterThan(("timestamp",), moment), GreaterThanOrEqual(("timestamp",), moment.replace(year=2022))]
    )
    assert reader.not_before == 1_700_000_000_000


def test_an_ending_time_is_where_a_read_ends_and_nothing_to_read_is_no_rows(log: Topics) -> None:
    given = {"topic": "t", "endingTimestamp": "1700000000000"}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    log.firsts = {("t", 0): 4}
    assert [each.wanted for each in reader.partitions()] == [Range("t", 0, 0, 4)]
    log.firsts = {("t", 0): 0}
    assert reader.partitions() == []
    assert list(reader.read(None)) == [], "Spark asks so where there are no partitions"
