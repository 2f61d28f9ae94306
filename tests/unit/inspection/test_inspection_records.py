"""Records for people: nothing is missed, nothing is shown twice, and every answer says where it stopped."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.unit.inspection import inspection_fakes
from tests.unit.inspection.inspection_fakes import FakeBrokers, FakeKafka, FakePartition

from dray.inspection.records import reading
from dray.inspection.records import search as records
from dray.inspection.records.matching import matcher
from dray.inspection.records.passport import NoRecord, passport
from dray.inspection.records.reading import NoSuchPartition, NoSuchTopic, TopicReader
from dray.inspection.records.search import follow, newest, onwards, positions_in
from dray.kafka.protocol import ErrorCode
from dray.kafka.records import Record, twin


def reader_of(*partitions: FakePartition, fetch_bytes: int = 1 << 20) -> tuple[TopicReader, FakeKafka]:
    kafka = FakeKafka({"t": partitions})
    kafka.fetch_bytes = fetch_bytes
    return TopicReader(FakeBrokers(kafka), "t"), kafka


def filled(count: int, per_batch: int = 3) -> FakePartition:
    partition = FakePartition()
    partition.produce(count, per_batch)
    return partition


async def everything(reader: TopicReader, count: int, **more: object) -> list[tuple[int, int]]:
    """All answers, each from where the one before stopped."""
    positions = dict.fromkeys(await reader.partitions(), 0)
    seen: list[tuple[int, int]] = []
    while True:
        view = await onwards(reader, positions, count, **more)  # type: ignore[arg-type]
        seen += [(row.partition, row.offset) for row in view.rows]
        if view.continuation is None:
            return seen
        positions = positions_in(view.continuation)


@pytest.mark.parametrize("count", [1, 2, 7, 100])
@pytest.mark.parametrize("fetch_bytes", [1, 150, 1 << 20])
async def test_answers_that_go_on_show_every_record_once(count: int, fetch_bytes: int) -> None:
    reader, _ = reader_of(filled(10), filled(4, 2), FakePartition(), fetch_bytes=fetch_bytes)
    assert await everything(reader, count) == [(0, n) for n in range(10)] + [(1, n) for n in range(4)]


async def test_a_search_finds_what_is_there_however_little_an_answer_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "SEARCH_BYTES", 1)
    reader, _ = reader_of(filled(30), filled(30), fetch_bytes=1)
    found = await everything(reader, 50, match=matcher("key", "contains", "key-2"))
    assert found == [(p, n) for p in (0, 1) for n in (2, *range(20, 30))]


async def test_a_search_that_runs_out_of_time_says_how_far_it_came() -> None:
    reader, _ = reader_of(filled(30))
    view = await onwards(reader, {0: 0}, 50, matcher("any", "contains", "none"), seconds=-1)
    assert (view.rows, view.scanned, view.to_scan, view.continuation) == ([], 0, 30, "0:0")


async def test_the_newest_come_first_and_no_more_than_asked_for() -> None:
    first, second = FakePartition(), FakePartition()
    first.append(*(Record(n, 100 + 10 * n, b"a", b"a") for n in range(5)))
    second.append(*(Record(n, 105 + 10 * n, b"b", b"b") for n in range(5)))
    reader, _ = reader_of(first, second)
    view = await newest(reader, None, 3)
    assert [(row.partition, row.offset) for row in view.rows] == [(1, 4), (0, 4), (1, 3)]
    assert [row.offset for row in (await newest(reader, 0, 3)).rows] == [4, 3, 2]


async def test_huge_records_do_not_make_an_answer_read_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "READ_BYTES", 20_000)
    monkeypatch.setattr(records, "_LEAST_SHARE", 1)
    partition = FakePartition()
    partition.produce(100, per_batch=1, value=b"x" * 10_000)
    reader, kafka = reader_of(partition, fetch_bytes=1)
    view = await newest(reader, 0, 50)
    assert [row.offset for row in view.rows] == [99], "the newest is there, and nothing after a gap"
    assert view.large
    assert kafka.fetches < 5
    view = await onwards(reader, {0: 0}, 50)
    assert [row.offset for row in view.rows] == [0, 1]
    assert view.continuation == "0:2"


async def test_a_leader_that_moved_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PAUSE_SECONDS", 0.0)
    reader, kafka = reader_of(filled(3))
    kafka.failures = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH]
    assert await everything(reader, 10) == [(0, 0), (0, 1), (0, 2)]


async def test_what_is_no_longer_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = filled(9)
    partition.start = 6
    reader, _ = reader_of(partition)
    view = await onwards(reader, {0: 2}, 50)
    assert [row.offset for row in view.rows] == [6, 7, 8]
    assert view.gone == ["partition 0 starts at 6, after 2"]


async def test_a_topic_that_is_not_there() -> None:
    reader = TopicReader(FakeBrokers(FakeKafka()), "nothing")
    with pytest.raises(NoSuchTopic):
        await newest(reader, None, 5)
    reader, _ = reader_of(filled(1))
    for partition in (1, 7):
        with pytest.raises(NoSuchPartition):
            await newest(reader, partition, 5)
        with pytest.raises(NoSuchPartition):
            await onwards(reader, {partition: 0}, 5)


async def test_another_topic_of_the_same_name_is_not_read_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PAUSE_SECONDS", 0.0)
    reader, kafka = reader_of(filled(3))
    await reader.partitions()
    monkeypatch.setattr(inspection_fakes, "TOPIC_ID", UUID(int=8))
    kafka.failures = [ErrorCode.UNKNOWN_TOPIC_ID]
    with pytest.raises(NoSuchTopic, match="created again"):
        await reader.fetch(0, 0)


async def test_a_batch_that_cannot_be_decoded_is_shown_as_such_and_passed_over() -> None:
    partition = FakePartition()
    partition.produce(9)
    base, after, content = partition.batches[1]
    broken = bytearray(content)
    broken[-8:] = b"\xff" * 8
    partition.batches[1] = base, after, bytes(broken)
    reader, _ = reader_of(partition)
    view = await onwards(reader, {0: 0}, 50)
    assert [row.offset for row in view.rows] == [0, 1, 2, 3, 6, 7, 8]
    assert "offsets 3 to 5 cannot be decoded" in (view.rows[3].trouble or "")
    assert [row.trouble for row in view.rows if row.offset != 3] == [None] * 6


async def test_records_of_batches_with_holes_are_shown() -> None:
    partition = FakePartition()
    partition.produce(9)
    base, after, _ = partition.batches[1]
    partition.batches[1] = base, after, bytes(twin.encode([Record(3, 1, b"k"), Record(5, 1, b"k")]))
    view = await onwards(reader_of(partition)[0], {0: 0}, 50)
    assert [(row.offset, row.trouble) for row in view.rows] == [(at, None) for at in (0, 1, 2, 3, 5, 6, 7, 8)]


async def test_a_live_view_hands_on_every_record_and_goes_on_where_it_was() -> None:
    first, second = filled(3), FakePartition()
    reader, _ = reader_of(first, second, fetch_bytes=1)
    seen: list[tuple[int, int]] = []
    positions: dict[int, int] = {0: 1, 1: 0}
    for produced in (5, 4):
        first.produce(produced)
        second.produce(produced)
        tail = follow({0: reader, 1: reader}, positions, reader.brokers.runtime)
        async for piece in tail:
            seen += [(row.partition, row.offset) for row in piece.rows]
            positions = dict(piece.positions)
            if positions == {0: first.end, 1: second.end}:
                break
        await tail.aclose()  # type: ignore[attr-defined]
    assert sorted(seen) == [(0, n) for n in range(1, 12)] + [(1, n) for n in range(9)]


async def test_a_live_view_whose_records_are_gone_says_so_and_goes_on() -> None:
    partition = filled(9)
    partition.start = 6
    reader, _ = reader_of(partition)
    tail = follow({0: reader}, {0: 2}, reader.brokers.runtime)
    first = await anext(tail)
    second = await anext(tail)
    await tail.aclose()  # type: ignore[attr-defined]
    assert (first.rows, first.positions, "outside 6 to 9" in (first.gone or "")) == ([], {0: 6}, True)
    assert [row.offset for row in second.rows] == [6, 7, 8]


async def test_a_passport_and_the_places_without_one() -> None:
    partition = FakePartition()
    partition.append(Record(4, 5, b"k", b'{"a": 9007199254740993}', [("h", b"v"), ("none", None)]))
    partition.append(Record(7, 8, None, None))
    partition.start = 4
    reader, _ = reader_of(partition)
    found = await passport(reader, 0, 4)
    assert (found.key.text, found.value.text) == ("k", '{\n  "a": 9007199254740993\n}')
    assert [(each.key, each.value.kind) for each in found.headers] == [("h", "text"), ("none", "null")]
    assert (found.previous, found.following, found.place) == (None, 5, None)
    absent = ((3, "holds the offsets from 4"), (5, "has no record at offset 5"), (8, "not written yet"))
    for offset, why in absent:
        with pytest.raises(NoRecord, match=why):
            await passport(reader, 0, offset)
