"""KafScale's segments, as its own writer wrote one, and DriftQ's write-ahead log."""

from __future__ import annotations

import json
from base64 import b64encode
from struct import pack, pack_into
from typing import Any

import pytest
from tests.unit.migration.formats.fixture_files import KAFSCALE

from dray.kafka.records import crc32c
from dray.migration.formats import ForeignDamage, ForeignUnsupported, walk_batches
from dray.migration.formats.driftq import read_wal
from dray.migration.formats.kafscale import FIRST_BATCH, read_index, read_segment

SEGMENT = (KAFSCALE / "segment-00000000000000000000.kfs").read_bytes()
INDEX = (KAFSCALE / "segment-00000000000000000000.index").read_bytes()


def test_a_segment_of_kafscale_and_its_index() -> None:
    segment = read_segment(SEGMENT)
    assert (segment.base_offset, segment.record_count) == (0, 0x4EB9)
    starts = {
        one.position: one.header.base_offset for one in walk_batches(SEGMENT[: segment.body_end], FIRST_BATCH)
    }
    rows = read_index(INDEX, segment)
    assert len(rows) == 5
    assert all(starts[row.position] == row.offset for row in rows)


def test_damage_of_a_segment_is_found_wherever_it_is() -> None:
    for position in [
        *range(4),
        *range(8, 20),
        *range(28, 28),
        32,
        5_000,
        *range(len(SEGMENT) - 16, len(SEGMENT)),
    ]:
        damaged = bytearray(SEGMENT)
        damaged[position] ^= 0x10
        with pytest.raises(ForeignDamage):
            read_segment(damaged)
    for size in (0, 10, 47, 48, len(SEGMENT) - 1):
        with pytest.raises(ForeignDamage):
            read_segment(SEGMENT[:size])


def test_other_versions_of_kafscale_are_refused_by_name() -> None:
    for at, said in ((5, "version 2"), (7, "flags 3")):
        other = bytearray(SEGMENT)
        other[at] = 2 if at == 5 else 3
        with pytest.raises(ForeignUnsupported, match=said):
            read_segment(other)
    index = bytearray(INDEX)
    index[5] = 9
    with pytest.raises(ForeignUnsupported, match="version 9"):
        read_index(index, read_segment(SEGMENT))


def test_an_index_is_held_to_its_segment() -> None:
    segment = read_segment(SEGMENT)
    for rows in ([(99_999, 40)], [(0, 0)], [(0, len(SEGMENT))], [(5, 50), (5, 60)], [(5, 50), (6, 50)]):
        index = pack(">4sHiiH", b"IDX\0", 1, len(rows), 100, 0) + b"".join(pack(">qi", *row) for row in rows)
        with pytest.raises(ForeignDamage):
            read_index(index, segment)
    for hostile in (pack(">4sHiiH", b"IDX\0", 1, 2**31 - 1, 1, 0), b"IDX", b"XXXX" + INDEX[4:], INDEX[:-1]):
        with pytest.raises(ForeignDamage):
            read_index(hostile, segment)


def test_counts_that_do_not_fit_the_batches() -> None:
    wrong = bytearray(SEGMENT)
    pack_into(">i", wrong, 16, 1)
    with pytest.raises(ForeignDamage, match="the header says 1"):
        read_segment(wrong)
    wrong = bytearray(SEGMENT)
    pack_into(">q", wrong, len(wrong) - 12, 7)
    with pytest.raises(ForeignDamage, match="the footer says 7"):
        read_segment(wrong)
    empty = pack(">4sHHqiqI", b"KAFS", 1, 0, -5, 0, 0, 0) + pack(">Iq4s", crc32c(b""), -6, b"END!")
    with pytest.raises(ForeignDamage):
        read_segment(empty)


def message(topic: str, partition: int, offset: int, /, **more: Any) -> bytes:
    entry: dict[str, Any] = {"type": 1, "topic": topic, "partition": partition, "offset": offset}
    entry |= {"key": b64encode(b"k").decode(), "value": b64encode(b"v%d" % offset).decode()}
    return json.dumps(entry | more).encode() + b"\n"


def acknowledged(topic: str, group: str, partition: int, offset: int) -> bytes:
    entry = {"type": 2, "topic": topic, "group": group, "partition": partition, "offset": offset}
    return json.dumps(entry).encode() + b"\n"


def test_a_replay_has_the_messages_and_what_groups_acknowledged() -> None:
    data = (
        message("jobs", 0, 0)
        + message("jobs", 1, 1, run_id="r7", labels={"a": "b"})
        + acknowledged("jobs", "workers", 0, 0)
        + message("jobs", 0, 2)
        + acknowledged("jobs", "workers", 0, 2)
        + acknowledged("jobs", "workers", 0, 1)  # late: never back
        + b'{"type":3,"topic":"jobs"}\n{"type":4,"topic":"jobs"}\n\n'
    )
    log = read_wal(data)
    assert [one.offset for one in log.messages["jobs"][0]] == [0, 2]  # offsets count per topic
    (second,) = log.messages["jobs"][1]
    assert (second.offset, second.key, second.value) == (1, b"k", b"v1")
    assert second.metadata == {"run_id": "r7", "labels": {"a": "b"}}
    assert log.committed == {("jobs", "workers", 0): 3}  # the one after the last
    assert log.end == len(data)


def test_a_torn_last_line_is_left_out_and_any_other_is_damage() -> None:
    whole = message("jobs", 0, 0)
    torn = message("jobs", 0, 1)
    for size in range(len(torn)):
        log = read_wal(whole + torn[:size])
        assert len(log.messages["jobs"][0]) == 1
        assert log.end == len(whole)
    assert read_wal(whole + b"\0\0\0\n").end == len(whole)
    with pytest.raises(ForeignDamage) as caught:
        read_wal(whole + torn[:9] + b"\n" + torn)
    assert caught.value.position == len(whole)
    assert read_wal(b"").messages == {}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"type": 9}, ForeignUnsupported),
        ({"type": True}, ForeignUnsupported),
        ({"type": "1"}, ForeignUnsupported),
        ({"topic": ""}, ForeignDamage),
        ({"topic": 7}, ForeignDamage),
        ({"partition": -1}, ForeignDamage),
        ({"partition": 10**9}, ForeignDamage),
        ({"offset": -1}, ForeignDamage),
        ({"offset": 2**63}, ForeignDamage),
        ({"offset": 1.5}, ForeignDamage),
        ({"key": "!"}, ForeignDamage),
        ({"value": 7}, ForeignDamage),
    ],
)
def test_lines_that_mean_nothing_are_refused(change: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        read_wal(message("jobs", 0, 0, **change) + message("jobs", 0, 1))


def test_offsets_never_go_back_and_acknowledgements_name_a_group() -> None:
    with pytest.raises(ForeignDamage, match="comes after 1"):
        read_wal(message("jobs", 0, 1) + message("jobs", 1, 1) + message("jobs", 0, 2))
    with pytest.raises(ForeignDamage, match="without a group"):
        read_wal(acknowledged("jobs", "", 0, 1) + message("jobs", 0, 2))
    with pytest.raises(ForeignDamage, match="no JSON object"):
        read_wal(b"[1]\n" + message("jobs", 0, 2))
