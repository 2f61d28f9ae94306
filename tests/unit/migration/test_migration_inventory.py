"""What a source holds, by layout: the files of the real writers, and what is refused of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from struct import pack
from uuid import UUID

import pytest
from tests.unit.migration.sources import (
    a_batch,
    aiven_files,
    aiven_key,
    in_memory,
    kafscale_files,
    local_files,
    log_dir_files,
)

from dray.base.runtime import SystemRuntime
from dray.kafka.records import Record, crc32c, twin
from dray.migration.attach.aiven_tiered import KeyRing
from dray.migration.attach.found import MigrationRefused
from dray.migration.attach.inventory import Counted, Question, SourceLayout, take_inventory
from dray.migration.attach.plan import AttachPlan, make_plan
from dray.migration.attach.reading import AT_ONCE, SourceReader
from dray.migration.formats.kafka_files import read_producer_snapshot
from dray.migration.formats.remote_segments import RemoteSegment, SegmentName, SegmentState
from dray.objects.memory import MemoryObjects

TIERED = SourceLayout.KAFKA_TIERED


async def planned(source: SourceReader, question: Question) -> AttachPlan:
    return await make_plan(source, question, await take_inventory(source, question), now_ms=1)


async def plan_of(files: Mapping[str, bytes], layout: SourceLayout, **more: object) -> AttachPlan:
    question = Question("orders", layout, keys=KeyRing({"key1": aiven_key()}), **more)  # type: ignore[arg-type]
    return await planned(await in_memory(files.items()), question)


def bounds(plan: AttachPlan) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in plan.partitions]


def damage(files: dict[str, bytes], suffix: str, change: Callable[[bytearray], object]) -> str:
    """Change the first file of partition 0 whose name ends so."""
    path = next(each for each in sorted(files) if each.endswith(suffix))
    data = bytearray(files[path])
    change(data)
    files[path] = bytes(data)
    return path


async def test_a_bucket_of_apaches_tiered_storage() -> None:
    plan = await plan_of(local_files(), TIERED)
    assert plan.refused == ()
    assert plan.topic_id is not None
    assert [each[:2] for each in bounds(plan)] == [(0, 0), (1, 0)]
    zero, one = plan.partitions
    assert zero.lineage.chosen[0][1:3] == (0, 20153)
    assert len(zero.lineage.chosen) == len(one.lineage.chosen) == 2
    (aborted,) = zero.lineage.chosen[0].aborted
    assert zero.lineage.chosen[1].aborted == ()
    assert aborted.first_offset == 20051
    snapshots = [path for path in local_files() if path.startswith("orders-0") and path.endswith(".snapshot")]
    newest = max(snapshots)
    assert list(zero.producers) == read_producer_snapshot(local_files()[newest])
    assert plan.size == sum(len(data) for path, data in local_files().items() if path.endswith(".log"))


async def test_a_bucket_of_aivens_plugin() -> None:
    files = aiven_files()
    names = {path.split(":")[0] for path in files}
    assert names
    plan = await plan_of(files, SourceLayout.AIVEN)
    assert plan.refused == ()
    assert [len(each.lineage.chosen) for each in plan.partitions] == [4, 4]
    assert plan.partitions[0].lineage.chosen[0].segment.start == 0
    assert [each.start for each in plan.partitions[0].lineage.chosen] == [0, 9140, 18230, 20153]
    assert plan.partitions[0].producers
    assert sum(len(each.aborted) for each in plan.partitions[0].lineage.chosen) == 1


async def test_a_bucket_of_kafscale() -> None:
    plan = await plan_of(kafscale_files(), SourceLayout.KAFSCALE)
    assert plan.refused == ()
    (only,) = plan.partitions
    assert only.start == 0
    assert only.end > 0
    assert only.lineage.epoch == -1
    assert only.producers == ()


async def test_a_later_record_in_the_middle_of_a_kafscale_segment_counts() -> None:
    """Neither its footer nor its index has times, and an hour of difference decides what expires."""
    early, late, last = [a_batch(base) for base in (0, 3, 6)]
    late = bytes(twin.encode([Record(3 + at, 9_000_000, b"k", b"v") for at in range(3)]))
    body = early + late + last
    segment = pack(">4sHHqiqI", b"KAFS", 1, 0, 0, 9, 0, 0) + body + pack(">Iq4s", crc32c(body), 8, b"END!")
    rows = pack(">qiqi", 0, 32, 6, 32 + len(early + late))
    index = pack(">4sHiiH", b"IDX\0", 1, 2, 100, 0) + rows
    home = "production/orders/0/segment-00000000000000000000"
    plan = await plan_of({f"{home}.kfs": segment, f"{home}.index": index}, SourceLayout.KAFSCALE)
    (only,) = plan.partitions
    assert (only.start, only.end) == (0, 9)
    assert only.lineage.chosen[0].segment.max_timestamp == 9_000_000


async def test_a_brokers_log_directory_is_the_same_log_as_its_tier() -> None:
    tiered, local = await plan_of(local_files(), TIERED), await plan_of(log_dir_files(), SourceLayout.LOG_DIR)
    assert local.refused == ()
    assert bounds(local) == bounds(tiered)
    assert local.topic_id == tiered.topic_id
    for here, there in zip(local.partitions, tiered.partitions, strict=True):
        assert [[row[:3] for row in each.aborted] for each in here.lineage.chosen] == [
            [row[:3] for row in each.aborted] for each in there.lineage.chosen
        ]
        # Kafka's snapshot also knows of epochs that a coordinator raised.
        assert [row[:4] for row in here.producers] == [row[:4] for row in there.producers]


DRIFTQ = b"""{"type":1,"topic":"orders","partition":0,"offset":0,"key":"aw==","value":"djA=","label":"a"}
{"type":1,"topic":"orders","partition":1,"offset":1,"value":"djE="}
{"type":1,"topic":"orders","partition":0,"offset":2,"value":"djI="}
{"type":2,"topic":"orders","group":"billing","partition":0,"offset":0}
{"type":1,"topic":"orders","partition":0,"offset":3,"value":"dj"""


async def test_driftqs_log_becomes_segments_and_committed_offsets() -> None:
    plan = await plan_of({"wal.log": DRIFTQ}, SourceLayout.DRIFTQ, file="wal.log")
    assert bounds(plan) == [(0, 0, 3), (1, 0, 2)]
    assert [(each.group, each.partition, each.offset) for each in plan.offsets] == [("billing", 0, 1)]
    assert any("last line is not whole" in note for note in plan.notes)
    assert len(plan.converted[0]) == plan.partitions[0].size


# --- the table of bad input


BadInput = tuple[str, SourceLayout, str, Callable[[bytearray], object], str]


def overwrite(position: int, data: bytes) -> Callable[[bytearray], object]:
    def change(whole: bytearray) -> None:
        at = position if position >= 0 else len(whole) + position
        whole[at : at + len(data)] = data

    return change


def cut(count: int) -> Callable[[bytearray], object]:
    return lambda data: data.__delitem__(slice(-count, None))


def become(whole: bytes) -> Callable[[bytearray], object]:
    return lambda data: data.__setitem__(slice(None), whole)


def less_by_one(position: int) -> Callable[[bytearray], object]:
    def change(whole: bytearray) -> None:
        at = len(whole) + position
        whole[at : at + 4] = (int.from_bytes(whole[at : at + 4], "big") - 1).to_bytes(4, "big")

    return change


AIVEN, KAFSCALE, LOG_DIR = SourceLayout.AIVEN, SourceLayout.KAFSCALE, SourceLayout.LOG_DIR
HUGE = b"\x7f\xff\xff\xff"
BAD: Sequence[BadInput] = [
    ("an index that does not add up", TIERED, ".index", lambda data: data.append(0), "bytes"),
    ("an index that names bytes behind the end", TIERED, ".index", overwrite(-4, HUGE), "names byte"),
    ("an index with another offset for its last row", TIERED, ".index", less_by_one(-8), "its last row says"),
    ("a wrong checksum in the last batch", TIERED, ".log", overwrite(-3, b"xxx"), "checksum"),
    ("a segment that is cut short", TIERED, ".log", cut(5), "byte"),
    ("records of before 0.11", TIERED, ".log", overwrite(16, b"\x01"), "message format 1: rewrite"),
    ("a message format of the future", TIERED, ".log", overwrite(16, b"\x03"), "message format 3"),
    ("epochs of the future", TIERED, "_checkpoint", overwrite(0, b"7"), "version 7"),
    ("a transaction index of the future", TIERED, ".txnindex", overwrite(0, b"\x00\x09"), "version 9"),
    ("a manifest of the future", AIVEN, "-manifest", become(b'{"version":"2"}'), "version '2'"),
    ("a manifest that is none", AIVEN, "-manifest", overwrite(0, b"x"), "no JSON"),
    ("an object that is cut short", AIVEN, ".log", cut(1), "its manifest says"),
    ("indexes that do not decrypt", AIVEN, ".indexes", overwrite(0, bytes(400)), "does not decrypt"),
    ("a wrong magic", KAFSCALE, ".kfs", overwrite(0, b"X"), "KAFS"),
    ("a version of the future", KAFSCALE, ".kfs", overwrite(4, b"\x00\x02"), "version 2"),
    ("a footer that is none", KAFSCALE, ".kfs", overwrite(-2, b"xx"), "END!"),
    ("an index with a hostile count", KAFSCALE, ".index", overwrite(6, HUGE), "rows in an index"),
    ("a wrong checksum", LOG_DIR, "0000.log", overwrite(5_000, b"xxxx"), "checksum"),
    ("a file in the middle that is torn", LOG_DIR, "0000.log", cut(9), "byte"),
]


@pytest.mark.parametrize(
    ("layout", "suffix", "change", "reason"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
async def test_bad_input_refuses_its_partition_with_the_object_named(
    layout: SourceLayout, suffix: str, change: Callable[[bytearray], object], reason: str
) -> None:
    files = {
        TIERED: local_files, SourceLayout.AIVEN: aiven_files, SourceLayout.KAFSCALE: kafscale_files,
        SourceLayout.LOG_DIR: log_dir_files,
    }[layout]()  # fmt: skip
    path = damage(files, suffix, change)
    plan = await plan_of(files, layout)
    (refused,) = plan.refused
    assert refused.partition == 0
    assert reason in str(refused)
    assert path.split("/")[-1] in str(refused)
    assert [each.partition for each in plan.partitions] == (
        [1] if layout is not SourceLayout.KAFSCALE else []
    )


async def test_a_gap_refuses_its_partition_and_the_others_go_on() -> None:
    files = aiven_files()
    for path in [each for each in files if "/0/" in each and "00009140" in each]:
        del files[path]
    plan = await plan_of(files, SourceLayout.AIVEN)
    (refused,) = plan.refused
    assert "offsets 9140 to 18229 are in no segment" in str(refused)
    assert [each.partition for each in plan.partitions] == [1]


async def test_a_missing_object_refuses_its_partition() -> None:
    files = aiven_files()
    gone = next(path for path in sorted(files) if path.endswith(".indexes"))
    del files[gone]
    plan = await plan_of(files, SourceLayout.AIVEN)
    assert "its .indexes is missing" in str(plan.refused[0])


async def test_a_key_that_is_not_in_the_ring_is_named() -> None:
    source = await in_memory(aiven_files().items())
    plan = await planned(source, Question("orders", SourceLayout.AIVEN))
    assert {each.partition for each in plan.refused} == {0, 1}
    assert "key1" in str(plan.refused[0])


async def test_a_copy_that_was_not_finished_is_left_out() -> None:
    files = local_files()
    newest = max(path for path in files if path.startswith("orders-1"))
    stem = newest.rpartition(".")[0]
    del files[f"{stem}.leader_epoch_checkpoint"]
    plan = await plan_of(files, TIERED)
    assert plan.refused == ()
    assert len(plan.partitions[1].lineage.chosen) == 1
    assert any("not finished" in note for note in plan.notes)


def said(plan: AttachPlan, state: SegmentState = SegmentState.COPY_FINISHED) -> dict[UUID, RemoteSegment]:
    """What Kafka's topic would say of the segments of a plan."""
    assert plan.topic_id is not None
    return {
        each.segment.segment_id: RemoteSegment(
            SegmentName("orders", plan.topic_id, partition.partition, each.segment.segment_id),
            each.segment.start, each.segment.end - 1, each.segment.max_timestamp, (),
            each.segment.segment_size, state, None,
        )
        for partition in plan.partitions
        for each in partition.lineage.chosen
    }  # fmt: skip


async def test_only_what_kafka_says_is_finished_counts() -> None:
    whole = await plan_of(local_files(), TIERED)
    finished = said(whole)
    assert bounds(await plan_of(local_files(), TIERED, finished=finished)) == bounds(whole)
    last = whole.partitions[0].lineage.chosen[-1].segment.segment_id
    del finished[last]
    fewer = await plan_of(local_files(), TIERED, finished=finished)
    assert fewer.partitions[0].end == 20153
    first = whole.partitions[0].lineage.chosen[0].segment.segment_id
    finished[first] = finished[first]._replace(end_offset=20_000)
    refused = await plan_of(local_files(), TIERED, finished=finished)
    assert "Kafka says 0 to 20000" in str(refused.refused[0])


async def test_a_hole_at_the_end_of_a_segment_is_known_from_kafka() -> None:
    """Compaction may have removed its last records. Its bytes do not say so, and Kafka's topic does."""
    whole = await plan_of(local_files(), TIERED)
    finished = said(whole)
    last = whole.partitions[0].lineage.chosen[-1].segment
    finished[last.segment_id] = finished[last.segment_id]._replace(end_offset=last.end + 99)
    plan = await plan_of(local_files(), TIERED, finished=finished)
    assert plan.refused == ()
    assert plan.partitions[0].end == last.end + 100
    assert plan.partitions[0].lineage.chosen[-1].segment.rows == last.rows
    finished[last.segment_id] = finished[last.segment_id]._replace(size=last.segment_size + 1)
    refused = await plan_of(local_files(), TIERED, finished=finished)
    assert "Kafka says" in str(refused.refused[0]), "of more bytes than there are"


async def test_two_topics_of_one_name_are_refused_until_one_is_named() -> None:
    files = local_files()
    first, other = "QEs4mK46TZ-ZIBB_kHfSvA", "AAAAAAAAAAAAAAAAAAAAAQ"
    again = {path.replace(first, other): data for path, data in files.items()}
    with pytest.raises(MigrationRefused, match="name one with --topic-id"):
        await plan_of(files | again, TIERED)
    plan = await plan_of(files | again, TIERED, topic_id=UUID(int=1))
    assert plan.topic_id == UUID(int=1)


async def test_a_topic_that_is_not_there_is_refused() -> None:
    for layout in (TIERED, SourceLayout.AIVEN, SourceLayout.KAFSCALE, SourceLayout.LOG_DIR):
        source = await in_memory(local_files().items())
        with pytest.raises(MigrationRefused, match="no segment of topic payments"):
            await planned(source, Question("payments", layout))


# --- a broker's log directory


async def test_a_torn_tail_is_cut_in_the_last_file_only() -> None:
    files = log_dir_files()
    whole = await plan_of(files, SourceLayout.LOG_DIR)
    path = max(each for each in files if each.startswith("orders-0/") and each.endswith(".log"))
    files[path] += a_batch(whole.partitions[0].end)[:-4]
    torn = await plan_of(files, SourceLayout.LOG_DIR)
    assert bounds(torn) == bounds(whole)
    assert any("half a batch" in note for note in torn.notes)
    end = whole.partitions[0].end
    broken = bytearray(a_batch(end))
    broken[-1] ^= 1
    files[path] = log_dir_files()[path] + bytes(broken) + a_batch(end + 3)
    damaged = await plan_of(files, SourceLayout.LOG_DIR)
    assert [each.partition for each in damaged.refused] == [0]


async def test_a_file_that_is_missing_is_a_gap_unless_the_log_was_compacted() -> None:
    files = {f"orders-0/{base:020d}.log": a_batch(base) + a_batch(base + 3) for base in (0, 10, 20)}
    plan = await plan_of(files, SourceLayout.LOG_DIR)
    assert "offsets 6 to 9 are in no file" in str(plan.refused[0])
    files["cleaner-offset-checkpoint"] = b"0\n1\norders 0 20\n"
    plan = await plan_of(files, SourceLayout.LOG_DIR)
    assert bounds(plan) == [(0, 0, 26)]


async def test_a_file_whose_records_were_all_compacted_away_is_a_hole() -> None:
    files = {f"orders-0/{base:020d}.log": b"" for base in (0, 20)}
    files |= {f"orders-0/{base:020d}.log": a_batch(base) for base in (10, 30)}
    files["cleaner-offset-checkpoint"] = b"0\n1\norders 0 30\n"
    plan = await plan_of(files, LOG_DIR)
    (only,) = plan.partitions
    assert [(each.start, each.end) for each in only.lineage.chosen] == [(0, 30), (30, 33)]


async def test_the_log_starts_where_the_broker_says() -> None:
    files = {"orders-0/00000000000000000000.log": a_batch(0) + a_batch(3)}
    files["log-start-offset-checkpoint"] = b"0\n1\norders 0 4\n"
    files["replication-offset-checkpoint"] = b"0\n1\norders 0 5\n"
    plan = await plan_of(files, SourceLayout.LOG_DIR)
    assert bounds(plan) == [(0, 4, 6)]
    assert any("offset 5" in note for note in plan.notes)


async def test_a_partition_of_which_nothing_lies_there_begins_empty() -> None:
    files = {"orders-2/00000000000000000000.log": a_batch(0)}
    plan = await plan_of(files, SourceLayout.LOG_DIR)
    assert bounds(plan) == [(0, 0, 0), (1, 0, 0), (2, 0, 3)]
    assert len([note for note in plan.notes if "begins empty" in note]) == 2


async def test_partitions_at_the_end_of_which_nothing_lies_there() -> None:
    """A tier has nothing of a partition with few records: with fewer partitions keys would go elsewhere."""
    files = {"orders-0/00000000000000000000.log": a_batch(0)}
    plan = await plan_of(files, SourceLayout.LOG_DIR)
    assert bounds(plan) == [(0, 0, 3)]
    assert any("if the topic had more, say so with --partitions" in note for note in plan.notes)
    assert any("no offsets of groups were found" in note for note in plan.notes)
    plan = await plan_of(files, SourceLayout.LOG_DIR, partitions=3)
    assert bounds(plan) == [(0, 0, 3), (1, 0, 0), (2, 0, 0)]
    assert not any("--partitions" in note for note in plan.notes)
    files["orders-2/00000000000000000000.log"] = a_batch(0)
    with pytest.raises(MigrationRefused, match="partition 2 lies there, so the topic had more than 2"):
        await plan_of(files, SourceLayout.LOG_DIR, partitions=2)


async def test_batches_that_are_larger_than_a_window_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.migration.attach.log_dir.WINDOW", 100)
    files = {"orders-0/00000000000000000000.log": b"".join(a_batch(3 * n) for n in range(20))}
    plan = await plan_of(files, SourceLayout.LOG_DIR)
    assert bounds(plan) == [(0, 0, 60)]


async def test_a_transaction_that_never_ended_counts_as_aborted_and_is_said() -> None:
    undecided = a_batch(3, producer_id=9, sequence=0, attributes=0x10)
    files = {"orders-0/00000000000000000000.log": a_batch(0) + undecided}
    plan = await plan_of(files, SourceLayout.LOG_DIR)
    (row,) = plan.partitions[0].open_transactions
    assert (row.producer_id, row.transaction_first_offset) == (9, 3)
    assert any("never ended" in note for note in plan.notes)


# --- many segments


class CountedReads(MemoryObjects):
    """How many reads are under way at once."""

    def __init__(self) -> None:
        super().__init__(SystemRuntime(threads=1))
        self.under_way = self.most = 0

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytearray]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        try:
            return await super().get_ranges(path, ranges)
        finally:
            self.under_way -= 1


async def test_segments_are_read_side_by_side_and_not_all_at_once() -> None:
    store = CountedReads()
    for path, data in local_files().items():
        for copy in range(100):
            home, _, name = path.partition("/")
            moved = f"{home.replace('orders-', f'orders-{copy}')}/{name[:21]}{copy:03d}{name[24:]}"
            await store.put(moved, [data])
    progress = Counted()
    found = await take_inventory(SourceReader(store), Question("orders", TIERED), progress)
    assert progress == Counted(400, 400)
    assert sum(map(len, found.segments.values())) == 400
    assert AT_ONCE <= store.most <= 5 * AT_ONCE
