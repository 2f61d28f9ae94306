"""The parts of the data source that ask nobody: options, ranges, filters, and batches in a fetch's bytes."""

from __future__ import annotations

import json
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
from tests.services.batches import CONTROL, batch, plain

from dray.client.properties import ClientSecurity
from dray.security.sasl.client import ClientCredential
from dray.spark_source import source
from dray.spark_source.log import TopicLog, TopicState, whole_batches
from dray.spark_source.options import OptionRefused, SourceOptions
from dray.spark_source.ranges import Offset, Range, between, limited, split
from dray.spark_source.source import BatchReader, LogStreamReader

TOPIC_ID = UUID(int=5)
OFFSETS = st.dictionaries(st.integers(0, 5), st.integers(0, 1000), min_size=1)


class TestOptions:
    def test_defaults(self) -> None:
        chosen = SourceOptions.parse({"path": "orders"}, streaming=False)
        assert chosen.bootstrap == (("127.0.0.1", 9092),)
        assert (chosen.topic, chosen.partitions, chosen.starting, chosen.ending) == (
            "orders",
            None,
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
        assert chosen.starting == {0: 7}
        assert chosen.partitions == {0, 3}
        assert not chosen.fail_on_data_loss

    @pytest.mark.parametrize(
        ("options", "streaming", "line"),
        [
            ({}, False, "option topic: it is needed"),
            ({"topic": "t", "startingOfsets": "earliest"}, False, "there is no such option"),
            ({"topic": "t", "bootstrap.servers": "a"}, False, "'a' is not HOST:PORT"),
            ({"topic": "t", "startingOffsets": "soon"}, False, "neither earliest, latest, nor offsets"),
            ({"topic": "t", "startingOffsets": '{"0": -2}'}, False, "neither earliest, latest, nor offsets"),
            ({"topic": "t", "startingOffsets": "[1]"}, False, "neither earliest, latest, nor offsets"),
            ({"topic": "t", "startingOffsets": "latest"}, False, "would read nothing"),
            ({"topic": "t", "endingOffsets": "earliest"}, False, "would read nothing"),
            ({"topic": "t", "endingOffsets": '{"0": 1}'}, True, "a stream has no end"),
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
    def test_pieces_cover_a_batch_once(self, start: dict[int, int], end: dict[int, int], most: int) -> None:
        wanted = {
            (partition, offset)
            for partition, stop in end.items()
            for offset in range(start.get(partition, 0), stop)
        }
        pieces = split(between(start, end), most)
        read = [(each.partition, offset) for each in pieces for offset in range(each.start, each.end)]
        assert sorted(read) == sorted(wanted)
        assert all(0 < each.end - each.start <= most for each in pieces)

    @given(OFFSETS, OFFSETS, st.integers(1, 300))
    def test_limited_batches_reach_the_end(
        self, start: dict[int, int], end: dict[int, int], most: int
    ) -> None:
        end = {partition: max(stop, start.get(partition, 0)) for partition, stop in end.items()}
        position, rounds = dict(start), 0
        while any(position.get(partition, 0) < stop for partition, stop in end.items()):
            following = limited(position, end, most)
            assert all(position.get(p, 0) <= following[p] <= end[p] for p in end)
            count = sum(following[p] - position.get(p, 0) for p in end)
            assert 0 < count <= most + len(end)
            position |= following
            rounds += 1
            assert rounds < 7000
        assert Offset.from_json(Offset("id", position).to_json()) == Offset("id", position)


class TestFilters:
    @pytest.mark.parametrize(
        ("filters", "left"),
        [
            ([EqualTo(("partition",), 1)], [Range(1, 0, 50)]),
            ([In(("partition",), (0, 7)), LessThan(("offset",), 10)], [Range(0, 0, 10)]),
            ([GreaterThan(("offset",), 48)], [Range(0, 49, 100), Range(1, 49, 50)]),
            ([GreaterThanOrEqual(("offset",), 50)], [Range(0, 50, 100)]),
            ([LessThanOrEqual(("offset",), 0)], [Range(0, 0, 1), Range(1, 0, 1)]),
            ([EqualTo(("offset",), 60)], [Range(0, 60, 61)]),
            ([In(("offset",), (3, 9))], [Range(0, 3, 10), Range(1, 3, 10)]),
            ([EqualTo(("partition",), 0), EqualTo(("partition",), 1)], []),
            ([EqualTo(("key",), b"x"), EqualTo(("offset",), None)], [Range(0, 0, 100), Range(1, 0, 50)]),
            ([GreaterThan(("headers", "offset"), 5)], [Range(0, 0, 100), Range(1, 0, 50)]),
        ],
    )
    def test_narrow_what_is_read(self, filters: list[Filter], left: list[Range]) -> None:
        reader = BatchReader(SourceOptions.parse({"topic": "t"}, streaming=False))
        assert list(reader.pushFilters(filters)) == filters  # Spark checks the rows again
        assert reader.bounds.applied([Range(0, 0, 100), Range(1, 0, 50)]) == left


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

    def test_nothing(self) -> None:
        assert whole_batches(b"") == ([], None)

    def test_a_length_that_leads_nowhere_ends_it(self) -> None:
        assert whole_batches(bytes(200)) == ([], None)


class TestLatest:
    """A stream from the latest offsets: the calls that Spark makes, in the orders in which it makes them."""

    @pytest.fixture
    def log(self, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
        """Where a topic ends now."""
        ends: dict[int, int] = {0: 10, 1: 0}

        def asked(_: SourceOptions, question: object) -> object:
            state = TopicState(TOPIC_ID, dict.fromkeys(ends, 0), dict(ends))
            return state if question is TopicLog.state else (state, dict(ends))

        monkeypatch.setattr(source, "asked", asked)
        return ends

    @staticmethod
    def reader(**more: str) -> LogStreamReader:
        chosen = {"topic": "t", "startingOffsets": "latest", **more}
        return LogStreamReader(SourceOptions.parse(chosen, streaming=True))

    @staticmethod
    def planned(reader: LogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        kept_start, kept_end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
        return [each.wanted for each in reader.partitions(kept_start, kept_end)]

    @pytest.mark.parametrize("start_first", [True, False])
    def test_it_begins_where_the_log_ended(self, log: dict[int, int], start_first: bool) -> None:
        reader = self.reader()
        if start_first:
            start, end = reader.initialOffset(), reader.latestOffset()
        else:
            end, start = reader.latestOffset(), reader.initialOffset()
        assert self.planned(reader, start, end) == []
        log[0] = 12
        assert self.planned(reader, end, reader.latestOffset()) == [Range(0, 10, 12)]

    def test_what_came_before_the_first_batch_was_noted_is_in_it(self, log: dict[int, int]) -> None:
        reader = self.reader()
        start = reader.initialOffset()
        log[0] = 12
        assert self.planned(reader, start, reader.latestOffset()) == [Range(0, 10, 12)]

    def test_a_first_batch_that_was_not_finished_is_the_same_batch(self, log: dict[int, int]) -> None:
        first = self.reader()
        first.initialOffset()
        log[0] = 12
        noted = first.latestOffset()
        log[0] = 20  # latest is later now
        again = self.reader()
        assert self.planned(again, noted, noted) == []  # as Spark says what it has seen
        assert self.planned(again, again.initialOffset(), noted) == [Range(0, 10, 12)]
        assert self.planned(again, noted, again.latestOffset()) == [Range(0, 12, 20)]

    def test_a_stream_that_is_started_again_goes_on_where_it_was(self, log: dict[int, int]) -> None:
        first = self.reader()
        noted = first.latestOffset()
        log[0] = 20
        again = self.reader()
        assert self.planned(again, noted, again.latestOffset()) == [Range(0, 10, 20)]

    def test_nothing_new_is_the_same_offset_and_no_empty_batch(self, log: dict[int, int]) -> None:
        first = self.reader()
        noted = first.latestOffset()
        assert first.latestOffset() == noted
        again = self.reader()
        self.planned(again, noted, noted)
        assert again.latestOffset() == noted
        log[2] = 5
        assert self.planned(again, noted, again.latestOffset()) == [Range(2, 0, 5)], "a partition that is new"

    def test_batches_are_limited_from_the_start_on(self, log: dict[int, int]) -> None:
        reader = self.reader(maxOffsetsPerTrigger="3")
        start = reader.initialOffset()
        log[0] = 20
        assert self.planned(reader, start, reader.latestOffset()) == [Range(0, 10, 13)]
