"""What Kafka's brokers store in topics of their own: tiered segments, and committed offsets."""

from __future__ import annotations

from struct import pack
from uuid import UUID

import pytest

from dray.kafka.protocol.messages.stored_offsets import OffsetCommitKey, OffsetCommitValue
from dray.kafka.protocol.messages.stored_remote_segments import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from dray.migration.formats import ForeignDamage, ForeignUnsupported
from dray.migration.formats.kafka_files import OffsetPlace, StoredOffset, read_offset_record
from dray.migration.formats.remote_segments import (
    RemoteSegment,
    RemoteSegments,
    SegmentState,
    read_remote_record,
)

TOPIC_ID = UUID(int=7)
SEGMENT = UUID(int=70)


def framed(kind: int, body: list[bytes | bytearray | memoryview], frame: int = 1, version: int = 0) -> bytes:
    return bytes([frame, kind, version]) + b"".join(body)


def place(topic: str = "orders", partition: int = 3) -> TopicIdPartitionEntry:
    return TopicIdPartitionEntry(name=topic, id=TOPIC_ID, partition=partition)


def named(segment: UUID = SEGMENT, topic: str = "orders") -> RemoteLogSegmentIdEntry:
    return RemoteLogSegmentIdEntry(topic_id_partition=place(topic), id=segment)


def a_start(segment: UUID = SEGMENT, topic: str = "orders", end: int = 99) -> bytes:
    record = RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=named(segment, topic),
        start_offset=40,
        end_offset=end,
        broker_id=1,
        max_timestamp_ms=5_000,
        event_timestamp_ms=6_000,
        segment_leader_epochs=[SegmentLeaderEpochEntry(leader_epoch=2, offset=40)],
        segment_size_in_bytes=1_234,
        remote_log_segment_state=0,
    )
    return framed(0, record.encode(0))


def an_update(state: int, segment: UUID = SEGMENT, custom: bytes | None = None) -> bytes:
    record = RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=named(segment),
        broker_id=1,
        event_timestamp_ms=7_000,
        custom_metadata=custom,
        remote_log_segment_state=state,
    )
    return framed(1, record.encode(0))


def test_a_segment_counts_once_its_copy_is_finished_and_until_its_deletion_begins() -> None:
    segments = RemoteSegments("orders")
    segments.take(a_start())
    assert segments.finished() == {}
    segments.take(an_update(1, custom=b"where"))
    (found,) = segments.finished().values()
    assert found == RemoteSegment(
        found.name, 40, 99, 5_000, ((2, 40),), 1_234, SegmentState.COPY_FINISHED, b"where"
    )
    assert found.name == ("orders", TOPIC_ID, 3, SEGMENT)
    segments.take(an_update(2))
    assert segments.finished() == {}


def test_a_copy_that_was_given_up_never_counts() -> None:
    segments = RemoteSegments("orders")
    segments.take(a_start())
    segments.take(an_update(2))
    segments.take(an_update(3))
    assert segments.finished() == {}


def test_a_partition_that_is_deleted_takes_its_segments_along() -> None:
    segments = RemoteSegments("orders")
    segments.take(a_start())
    segments.take(an_update(1))
    gone = RemotePartitionDeleteMetadataRecord(topic_id_partition=place(partition=4))
    segments.take(framed(2, gone.encode(0)))
    assert len(segments.finished()) == 1
    gone = RemotePartitionDeleteMetadataRecord(topic_id_partition=place(partition=3))
    segments.take(framed(2, gone.encode(0)))
    assert segments.finished() == {}


def test_other_topics_and_updates_of_what_is_not_known_are_passed_over() -> None:
    segments = RemoteSegments("orders")
    segments.take(a_start(topic="payments"))
    segments.take(an_update(1, UUID(int=99)))
    assert segments.finished() == {}


@pytest.mark.parametrize(
    ("frame", "kind", "version", "name"),
    [
        (2, 0, 0, "frame version 2"),
        (1, 9, 0, "kind 9"),
        (1, 0, 1, "version 1 of RemoteLogSegmentMetadataRecord"),
    ],
)
def test_versions_that_are_not_known_are_refused_by_name(
    frame: int, kind: int, version: int, name: str
) -> None:
    body = a_start()[3:]
    with pytest.raises(ForeignUnsupported, match=name):
        read_remote_record(bytes([frame, kind, version]) + body)


def test_states_that_are_not_known_and_bytes_that_are_wrong_are_refused() -> None:
    with pytest.raises(ForeignUnsupported, match="state 9"):
        read_remote_record(an_update(9))
    whole = a_start()
    for short in range(len(whole)):
        with pytest.raises(ForeignDamage):
            read_remote_record(whole[:short])
    with pytest.raises(ForeignDamage, match="1 bytes behind"):
        read_remote_record(whole + b"x")
    with pytest.raises(ForeignDamage, match="from offset 40 to 39"):
        read_remote_record(a_start(end=39))


def a_key(version: int = 1) -> bytes:
    key = OffsetCommitKey(group="billing", topic="orders", partition=2)
    return pack(">h", version) + b"".join(key.encode(version))


@pytest.mark.parametrize("version", range(5))
def test_a_committed_offset_is_read_in_every_version(version: int) -> None:
    value = OffsetCommitValue(offset=77, leader_epoch=5, metadata="m", commit_timestamp=9_000)
    stored = pack(">h", version) + b"".join(value.encode(version))
    assert read_offset_record(a_key(), stored) == (
        OffsetPlace("billing", "orders", 2),
        StoredOffset(77, 5 if version >= 3 else -1, "m", 9_000),
    )


def test_a_record_without_a_value_deletes_and_other_keys_are_passed_over() -> None:
    assert read_offset_record(a_key(), None) == (OffsetPlace("billing", "orders", 2), None)
    assert read_offset_record(pack(">h", 2) + b"group metadata", b"") is None


def test_committed_offsets_that_are_not_known_or_cut_short_are_refused() -> None:
    with pytest.raises(ForeignUnsupported, match="version 5 of a committed offset"):
        read_offset_record(a_key(), pack(">h", 5))
    for short in (0, 1, 5):
        with pytest.raises(ForeignDamage):
            read_offset_record(a_key()[:short], None)
    with pytest.raises(ForeignDamage):
        read_offset_record(a_key(), pack(">hq", 1, 7))
