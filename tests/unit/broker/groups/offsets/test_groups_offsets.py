"""Committed offsets: their stored form, what may be committed, and when one expires."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.broker.groups.offsets import (
    NO_EXPIRY,
    CommittedOffset,
    ExpiryRule,
    expired_offsets,
    is_expired,
    metadata_fault,
)
from dray.kafka.protocol import ErrorCode
from dray.metadata.values import FormatTooNew, ValueCorrupt

NOW = 1_700_000_000_123

PLAIN = CommittedOffset(42, -1, "", NOW)
FULL = CommittedOffset(2**63 - 1, 7, "Grüße", NOW, NOW + 60_000)
OF_A_TOPIC = CommittedOffset(5, 0, "é", NOW, topic_id=UUID("0123456789abcdef0123456789abcdef"))
STORED_V2 = (
    "020000000000000005000000000000018bcfe5687bffffffffffffffff" + "0123456789abcdef0123456789abcdef" + "c3a9"
)
STORED_V1 = {
    PLAIN: "01000000000000002affffffff0000018bcfe5687bffffffffffffffff",
    FULL: "017fffffffffffffff000000070000018bcfe5687b0000018bcfe652db4772c3bcc39f65",
}


@pytest.mark.parametrize("offset", STORED_V1)
def test_what_version_1_wrote_still_reads(offset: CommittedOffset) -> None:
    stored = bytes.fromhex(STORED_V1[offset])
    assert CommittedOffset.decode(stored) == offset


def test_what_version_2_wrote_still_reads() -> None:
    stored = bytes.fromhex(STORED_V2)
    assert CommittedOffset.decode(stored) == OF_A_TOPIC
    assert OF_A_TOPIC.encode() == stored


@given(
    st.builds(
        CommittedOffset,
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.text(max_size=50),
        st.integers(0, 2**63 - 1),
        st.integers(-1, 2**63 - 1),
        st.uuids(),
    )
)
def test_what_is_written_reads_back(offset: CommittedOffset) -> None:
    stored = offset.encode()
    assert CommittedOffset.decode(stored) == offset
    assert len(stored) <= offset.largest_size


@pytest.mark.parametrize(
    "stored", ["", "01", "01" + "00" * 27, "01" + "00" * 28 + "ff", "02" + "00" * 43, "02" + "00" * 44 + "ff"]
)
def test_damage_is_refused(stored: str) -> None:
    with pytest.raises(ValueCorrupt, match="a committed offset"):
        CommittedOffset.decode(bytes.fromhex(stored))


def test_a_format_of_the_future_is_refused_by_name() -> None:
    with pytest.raises(FormatTooNew, match="a committed offset is stored in format 3"):
        CommittedOffset.decode(b"\3" + PLAIN.encode()[1:])


def test_an_offset_belongs_to_its_topic() -> None:
    assert OF_A_TOPIC.is_of(OF_A_TOPIC.topic_id)
    assert not OF_A_TOPIC.is_of(UUID(int=1))
    assert PLAIN.is_of(UUID(int=1)), "the old format does not say"


def test_a_commit_without_metadata_has_empty_metadata() -> None:
    assert CommittedOffset.at(42, -1, None, NOW) == PLAIN
    assert CommittedOffset.at(42, -1, "mine", NOW).metadata == "mine"


@pytest.mark.parametrize(
    ("retention_ms", "expire_ms"),
    [(-1, NO_EXPIRY), (60_000, NOW + 60_000), (0, NOW), (2**63 - 1, 2**63 - 1), (-(2**62), 0)],
)
def test_an_old_client_may_say_how_long_an_offset_is_kept(retention_ms: int, expire_ms: int) -> None:
    offset = CommittedOffset.at(1, -1, "", NOW, retention_ms)
    assert offset.expire_ms == expire_ms
    assert CommittedOffset.decode(offset.encode()) == offset


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        (None, ErrorCode.NONE),
        ("", ErrorCode.NONE),
        ("x" * 4096, ErrorCode.NONE),
        ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("ü" * 4096, ErrorCode.NONE),
        ("ü" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\N{GRINNING FACE}" * 2048, ErrorCode.NONE),
        ("\N{GRINNING FACE}" * 2048 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_is_as_long_as_java_says(metadata: str | None, error: ErrorCode) -> None:
    assert metadata_fault(metadata) is error


def test_the_largest_metadata_is_a_setting() -> None:
    assert metadata_fault("xxx", largest=2) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert metadata_fault("xx", largest=2) is ErrorCode.NONE
    assert metadata_fault("x", largest=0) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_an_offset_expires_after_its_commit_or_after_the_group_was_left() -> None:
    offset = CommittedOffset.at(1, -1, "", NOW)
    assert not is_expired(offset, None, NOW + 999, 1_000)
    assert is_expired(offset, None, NOW + 1_000, 1_000)
    assert not is_expired(offset, NOW + 500, NOW + 1_000, 1_000)
    assert is_expired(offset, NOW + 500, NOW + 1_500, 1_000)


def test_what_the_client_said_wins() -> None:
    offset = CommittedOffset.at(1, -1, "", NOW, 5_000)
    assert not is_expired(offset, NOW, NOW + 4_999, 1_000)
    assert is_expired(offset, NOW + 100_000, NOW + 5_000, 1_000_000)


def test_topics_that_are_read_keep_their_offsets() -> None:
    offsets = {("a", 0): PLAIN, ("a", 1): FULL, ("b", 0): PLAIN}
    rule = ExpiryRule(None, lambda topic: topic == "b")
    assert expired_offsets(offsets, rule, NOW + 60_000, 1_000) == [("a", 0), ("a", 1)]
    assert expired_offsets(offsets, rule, NOW + 1_000, 1_000) == [("a", 0)]
