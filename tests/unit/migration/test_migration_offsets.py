"""What Kafka 4.2 stored of its tiered segments and of committed offsets; and offsets from files."""

from __future__ import annotations

import json
from base64 import b64encode
from struct import pack, pack_into

import pytest
from tests.unit.migration.formats.fixture_files import FIXTURES
from tests.unit.migration.sources import a_batch, files_below, in_memory

from dray.kafka.protocol.messages.stored_offsets import OffsetCommitKey, OffsetCommitValue
from dray.kafka.records import HEADER_SIZE, Record, crc32c
from dray.kafka.records.header import CONTROL, TRANSACTIONAL
from dray.kafka.records.twin import encode
from dray.migration.attach.found import MigrationRefused
from dray.migration.attach.inventory import Question, SourceLayout, take_inventory
from dray.migration.attach.log_dir import read_remote_metadata
from dray.migration.attach.offsets import StoredOffsetsLog, offsets_of, read_offsets_file
from dray.migration.attach.plan import make_plan
from dray.migration.formats.batches import ABORT, COMMIT
from dray.migration.formats.kafka_files import OffsetPlace, StoredOffset

KAFKA = FIXTURES / "kafka-4.2"


async def test_the_segments_that_kafka_says_are_finished() -> None:
    source = await in_memory(files_below(KAFKA).items())
    found = await read_remote_metadata(source, "orders")
    ends = sorted((each.name.partition, each.start_offset, each.end_offset) for each in found.values())
    assert ends[:2] == [(0, 0, 1080), (0, 1081, 1313)]
    assert len(ends) == 10
    assert {each.name.topic for each in found.values()} == {"orders"}
    assert {epoch for each in found.values() for epoch, _ in each.epochs} == {0, 2}
    assert await read_remote_metadata(source, "payments") == {}


async def test_a_directory_without_that_topic_is_refused() -> None:
    with pytest.raises(MigrationRefused, match="no partition of __remote_log_metadata"):
        await read_remote_metadata(await in_memory([]), "orders")


async def test_damage_in_it_is_refused_and_a_torn_tail_is_cut() -> None:
    files = files_below(KAFKA)
    (path,) = [each for each in files if "remote" in each]
    torn = files | {path: files[path][:-5]}
    assert len(await read_remote_metadata(await in_memory(torn.items()), "orders")) == 9
    broken = bytearray(files[path])
    broken[200] ^= 1
    with pytest.raises(MigrationRefused, match=r"00000\.log"):
        await read_remote_metadata(await in_memory([(path, bytes(broken))]), "orders")


async def test_committed_offsets_are_found_in_a_log_directory() -> None:
    files = files_below(KAFKA) | {f"orders-{n}/00000000000000000000.log": a_batch(150) for n in (0, 1)}
    files["log-start-offset-checkpoint"] = b"0\n0\n"
    source = await in_memory(files.items())
    question = Question("orders", SourceLayout.LOG_DIR)
    plan = await make_plan(source, question, await take_inventory(source, question), now_ms=9)
    # 200 was committed where the log now ends at 153, and 100 where it begins at 0.
    assert [(each.partition, each.offset, each.wanted) for each in plan.offsets] == [
        (0, 100, 100),
        (1, 153, 200),
    ]


def commit(base: int, *committed: tuple[int, int | None], producer_id: int = -1) -> bytes:
    """A batch of `__consumer_offsets`, of group billing, by partition of orders. One that has a producer is
    in a transaction."""
    records = []
    for number, (partition, offset) in enumerate(committed):
        key = pack(">h", 1) + b"".join(OffsetCommitKey("billing", "orders", partition).encode(1))
        value = pack(">h", 3) + b"".join(OffsetCommitValue(offset or 0, -1, "", 5).encode(3))
        records.append(Record(number, 1_000, key, None if offset is None else value))
    is_one = producer_id >= 0
    batch = encode(
        records, attributes=TRANSACTIONAL if is_one else 0, producer_id=producer_id, producer_epoch=0
    )
    pack_into(">q", batch, 0, base)
    return bytes(batch)


def marker(base: int, producer_id: int, kind: int) -> bytes:
    attributes = TRANSACTIONAL | CONTROL
    record = Record(0, 1_000, pack(">hh", 0, kind), pack(">hi", 0, 0))
    batch = encode([record], attributes=attributes, producer_id=producer_id, producer_epoch=0)
    pack_into(">q", batch, 0, base)
    return bytes(batch)


def emptied(base: int, producer_id: int) -> bytes:
    """What compaction leaves of a producer's last batch."""
    batch = bytearray(commit(base, (0, 1), producer_id=producer_id)[:HEADER_SIZE])
    pack_into(">i", batch, 8, HEADER_SIZE - 12)
    pack_into(">i", batch, HEADER_SIZE - 4, 0)
    pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


LOGS = [
    ("plain", [commit(0, (0, 5)), commit(1, (0, 7))], {0: 7}, set()),
    ("committed", [commit(0, (0, 5), (1, 9), producer_id=3), marker(2, 3, COMMIT)], {0: 5, 1: 9}, set()),
    ("aborted", [commit(0, (0, 5)), commit(1, (0, 9), producer_id=3), marker(2, 3, ABORT)], {0: 5}, set()),
    ("open", [commit(0, (0, 5)), commit(1, (0, 9), producer_id=3)], {0: 5}, {0}),
    (
        "a plain commit in between is newer",
        [commit(0, (0, 9), producer_id=3), commit(1, (0, 4)), marker(2, 3, COMMIT)],
        {0: 4},
        set(),
    ),
    (
        "a plain commit behind the marker",
        [commit(0, (0, 9), producer_id=3), marker(1, 3, COMMIT), commit(2, (0, 4))],
        {0: 4},
        set(),
    ),
    (
        "the marker of another",
        [commit(0, (0, 9), producer_id=3), marker(1, 4, COMMIT)],
        {},
        {0},
    ),
    (
        "deleted meanwhile",
        [commit(0, (0, 9), producer_id=3), commit(1, (0, None)), marker(2, 3, COMMIT)],
        {},
        set(),
    ),
    ("compacted", [commit(0, (0, 5)), emptied(1, 3), marker(2, 3, COMMIT)], {0: 5}, set()),
]


@pytest.mark.parametrize("pieces", [1, 9], ids=["one segment", "a segment each"])
@pytest.mark.parametrize(
    ("batches", "found", "undecided"), [row[1:] for row in LOGS], ids=[row[0] for row in LOGS]
)
def test_transactions_of_groups_are_decided_as_their_coordinator_does(
    batches: list[bytes], found: dict[int, int], undecided: set[int], pieces: int
) -> None:
    log = StoredOffsetsLog()
    for segment in [b"".join(batches)] if pieces == 1 else batches:
        log.take(segment, "f")
    assert {place.partition: each.offset for place, each in log.found.items()} == found
    assert {place.partition for place in log.undecided} == undecided


async def test_a_log_directory_with_groups_that_commit_in_transactions_can_be_attached() -> None:
    files = {f"orders-{n}/00000000000000000000.log": a_batch(0, 20) for n in (0, 1)}
    done = commit(0, (0, 5), (1, 9), (2, 4), producer_id=3) + marker(3, 3, COMMIT)
    files["__consumer_offsets-0/00000000000000000000.log"] = done + commit(4, (0, 11), producer_id=3)
    files["__consumer_offsets-3/00000000000000000000.log"] = b""
    source = await in_memory(files.items())
    question = Question("orders", SourceLayout.LOG_DIR)
    plan = await make_plan(source, question, await take_inventory(source, question), now_ms=9)
    assert [(each.partition, each.offset) for each in plan.offsets] == [(0, 5), (1, 9)]
    assert (
        "offsets that a transaction had committed which never ended are left out, of the groups billing"
        in (plan.notes)
    )
    assert "in partitions that do not lie there, which are left out: billing" in "\n".join(plan.notes)
    assert "2 partitions of __consumer_offsets lie there (0, 3): groups" in "\n".join(plan.notes)


PLACE = OffsetPlace("billing", "orders", 3)
KEY = "/kafscale/consumers/billing/offsets/orders/3"
VALUE = '{"offset":41,"metadata":"m","committed_at":"2026-01-01T00:00:00Z"}'


@pytest.mark.parametrize(
    ("text", "metadata"),
    [
        ("billing,orders,3,41\n", ""),
        ('"group","topic","partition","offset"\nbilling,orders,3,41\n', ""),
        (f"{KEY}\n{VALUE}\n/kafscale/consumers/billing/metadata\nwhatever\n", "m"),
        (
            json.dumps(
                {
                    "kvs": [
                        {"key": b64encode(KEY.encode()).decode(), "value": b64encode(VALUE.encode()).decode()}
                    ]
                }
            ),
            "m",
        ),
    ],
)
def test_offsets_from_files(text: str, metadata: str) -> None:
    assert read_offsets_file("f", text) == {PLACE: StoredOffset(41, -1, metadata, -1)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("billing,orders,3,41\nbilling,orders,x,41\n", "line 2"),
        ("billing,orders,3\nbilling,orders,3,1\n", "line 1: it must be"),
        ('{"kvs":[{"key":"%%"}]}', "no answer of etcdctl"),
        (f"{KEY}\nnot json\n", "no JSON"),
        (f'{KEY}\n{{"offset":-1}}\n', "has the offset -1"),
    ],
)
def test_files_that_say_something_else_are_refused(text: str, reason: str) -> None:
    with pytest.raises(MigrationRefused, match=reason):
        read_offsets_file("f", text)


def test_offsets_beyond_what_is_there_are_brought_back_and_said() -> None:
    stored = {
        OffsetPlace("g", "orders", 0): StoredOffset(5, 1, "m", 7),
        OffsetPlace("g", "orders", 1): StoredOffset(500, 1, "", -1),
        OffsetPlace("g", "orders", 9): StoredOffset(5, 1, "", 7),
        OffsetPlace("g", "payments", 0): StoredOffset(5, 1, "", 7),
    }
    found = offsets_of("orders", stored, {0: (10, 100), 1: (0, 90)}, now_ms=99)
    assert [(each.partition, each.offset, each.wanted, each.commit_ms) for each in found] == [
        (0, 10, 5, 7),
        (1, 90, 500, 99),
    ]
