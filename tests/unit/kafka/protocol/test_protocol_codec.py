"""Every message in every version, byte for byte and field by field against kio."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import pytest
from tests.unit.kafka.protocol.kio_oracle import (
    Case,
    all_cases,
    kio_bytes,
    our_name,
    our_struct,
    random_entity,
    shape,
    to_our_field,
    to_ours,
)

from dray.kafka.protocol import NEVER_FLEXIBLE, DecodeError, EncodeError, ErrorCode
from dray.kafka.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from dray.kafka.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from dray.kafka.protocol.messages.metadata import MetadataRequest
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

CASES = all_cases()
SEEDS = range(6)

every_case = pytest.mark.parametrize("case", CASES, ids=str)


def samples(case: Case) -> list[Any]:
    return [random_entity(case.kio, Random(f"{case} {seed}")) for seed in SEEDS]


@every_case
def test_our_bytes_are_kios_bytes(case: Case) -> None:
    for theirs in samples(case):
        ours = to_ours(theirs, case.message)
        assert b"".join(ours.encode(case.version)) == kio_bytes(theirs)


@every_case
def test_our_decode_of_kios_bytes_gives_the_same_fields(case: Case) -> None:
    for theirs in samples(case):
        raw = kio_bytes(theirs)
        before, after = b"before", b"after"
        decoded, position = case.message.decode(memoryview(before + raw + after), len(before), case.version)
        assert decoded == to_ours(theirs, case.message)
        assert position == len(before) + len(raw)


@every_case
def test_fields_of_other_versions_are_not_sent(case: Case) -> None:
    for theirs in samples(case):
        ours = to_ours(theirs, case.message)
        expected = b"".join(ours.encode(case.version))
        disturb(ours, theirs)
        assert b"".join(ours.encode(case.version)) == expected


def disturb(ours: Any, theirs: Any) -> None:
    """Give every field that this version lacks a value that is not its default."""
    known = {our_name(field): field for field in dataclasses.fields(theirs)}
    for field in dataclasses.fields(ours):
        value = getattr(ours, field.name)
        if field.name not in known:
            if isinstance(value, bool):
                setattr(ours, field.name, not value)
            elif isinstance(value, int):
                setattr(ours, field.name, value ^ 1)
            elif isinstance(value, str):
                setattr(ours, field.name, value + "!")
            elif value is None and "str" in field.type:
                setattr(ours, field.name, "!")
            continue
        inner, array, _ = shape(known[field.name])
        if dataclasses.is_dataclass(inner) and value is not None:
            pairs = getattr(theirs, known[field.name].name)
            for our_element, their_element in zip(value, pairs, strict=True) if array else [(value, pairs)]:
                disturb(our_element, their_element)


@every_case
def test_a_message_cut_short_anywhere_is_refused(case: Case) -> None:
    raw = kio_bytes(min(samples(case), key=lambda theirs: abs(len(kio_bytes(theirs)) - 150)))
    view = memoryview(raw)
    for end in range(min(len(raw), 500)):
        with pytest.raises(DecodeError):
            case.message.decode(view[:end], 0, case.version)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.version >= case.message.FLEXIBLE_FROM], ids=str
)
def test_unknown_tagged_fields_are_skipped(case: Case) -> None:
    ours = case.message()
    raw = b"".join(ours.encode(case.version))
    assert raw.endswith(b"\0"), "all defaults: no tagged fields"
    tags = b"\x02" + b"\xe8\x07\x03abc" + b"\xe9\x07\x00"
    decoded, position = case.message.decode(memoryview(raw[:-1] + tags), 0, case.version)
    assert decoded == ours
    assert position == len(raw) - 1 + len(tags)


def test_every_version_kio_knows_is_covered_and_no_field_is_invented() -> None:
    for message in {case.message for case in CASES}:
        cases = [case for case in CASES if case.message is message]
        flexible = [case.version for case in cases if case.kio.__flexible__]
        assert min(flexible, default=NEVER_FLEXIBLE) == message.FLEXIBLE_FROM
        assert flexible == [case.version for case in cases if case.version >= message.FLEXIBLE_FROM]
        check_fields(message, [case.kio for case in cases])
        for neighbour in (message.VERSIONS[0] - 1, message.VERSIONS[1] + 1):
            package = cases[0].module.replace(f".v{cases[0].version}.", f".v{neighbour}.")
            with pytest.raises(ModuleNotFoundError):
                __import__(package)


NULL_BY_DEFAULT = {
    ("ConsumerGroupHeartbeatRequest", "topic_partitions"),
    ("ListPartitionReassignmentsRequest", "topics"),
}


def check_fields(ours: Any, versions: list[Any]) -> None:
    """Our struct has the fields of all versions together, with the schema's defaults."""
    theirs = {our_name(field): field for version in versions for field in dataclasses.fields(version)}
    assert {field.name for field in dataclasses.fields(ours)} == set(theirs)
    fresh = ours()
    for name, field in theirs.items():
        inner, array, _ = shape(field)
        if field.default is not dataclasses.MISSING:
            assert getattr(fresh, name) == to_our_field(field, field.default, ours), f"{ours.__name__}.{name}"
        elif array:
            # kio does not say, but Kafka's schema does: here null means "nothing changed", or "all of them".
            is_null = (ours.__name__, name) in NULL_BY_DEFAULT
            assert getattr(fresh, name) == (None if is_null else [])
        if dataclasses.is_dataclass(inner):
            of_version = [
                shape(other)[0]
                for version in versions
                for other in dataclasses.fields(version)
                if our_name(other) == name
            ]
            check_fields(our_struct(ours, name), of_version)


# What kio cannot be asked


def fetch_response(records: Any) -> FetchResponse:
    return FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])]
    )


@pytest.mark.parametrize("version", [11, 12])
def test_records_travel_without_a_copy(version: int) -> None:
    first, second = bytearray(b"first batch"), memoryview(b"second")
    buffers = fetch_response([first, second]).encode(version)
    assert any(buffer is first for buffer in buffers)
    assert any(buffer is second for buffer in buffers)
    assert all(buffers), "no empty buffers"
    assert b"".join(buffers) == b"".join(fetch_response(b"first batchsecond").encode(version))

    whole = bytearray(b"".join(buffers))
    decoded, _ = FetchResponse.decode(memoryview(whole), 0, version)
    records = decoded.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records == b"first batchsecond"
    assert records.obj is whole


@pytest.mark.parametrize("version", [11, 12])
def test_no_records_and_empty_records_differ(version: int) -> None:
    for records, expected in ((None, None), (b"", b""), ([], b""), ((b"",), b"")):
        raw = b"".join(fetch_response(records).encode(version))
        decoded, _ = FetchResponse.decode(memoryview(raw), 0, version)
        assert decoded.responses[0].partitions[0].records == expected


def test_a_batch_of_produced_records_is_a_slice_of_the_frame() -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"batch")])]
    )
    frame = bytearray(b"".join(request.encode(12)))
    decoded, _ = ProduceRequest.decode(memoryview(frame), 0, 12)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_a_tagged_struct_that_says_nothing_new_is_not_sent() -> None:
    plain = fetch_response(b"x").encode(12)
    with_defaults = fetch_response(b"x")
    with_defaults.responses[0].partitions[0].diverging_epoch = EpochEndOffset()
    with_defaults.responses[0].partitions[0].current_leader = LeaderIdAndEpoch()
    assert b"".join(with_defaults.encode(12)) == b"".join(plain)


def test_versions_outside_the_schema_are_refused() -> None:
    first, last = ProduceRequest.VERSIONS
    for version in (first - 1, last + 1, -1):
        with pytest.raises(EncodeError, match="has no version"):
            ProduceRequest().encode(version)
        with pytest.raises(DecodeError, match="has no version"):
            ProduceRequest.decode(memoryview(bytes(100)), 0, version)


def test_null_is_refused_where_the_version_has_no_null() -> None:
    assert b"".join(MetadataRequest(topics=None).encode(1)) == b"\xff\xff\xff\xff"
    with pytest.raises(EncodeError, match="topics"):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(DecodeError):
        MetadataRequest.decode(memoryview(b"\xff\xff\xff\xff"), 0, 0)


@pytest.mark.parametrize(
    "broken",
    [
        ProduceRequest(acks=1 << 15),
        ProduceRequest(transactional_id="x" * 0x8000),
        ProduceRequest(transactional_id="\ud800"),
        ProduceRequest(topic_data=[TopicProduceData(name=None)]),  # type: ignore[arg-type]
        ProduceRequest(topic_data=None),  # type: ignore[arg-type]
        ProduceRequest(topic_data=[None]),  # type: ignore[list-item]
    ],
    ids=["too large a number", "too long", "not a character", "null name", "null array", "null element"],
)
@pytest.mark.parametrize("version", [8, 9])
def test_values_that_do_not_fit_raise_one_error(broken: ProduceRequest, version: int) -> None:
    with pytest.raises(EncodeError):
        broken.encode(version)


def test_bytes_are_not_null_where_they_must_not_be() -> None:
    for version in range(3):
        with pytest.raises(EncodeError, match="null"):
            SaslAuthenticateRequest(auth_bytes=None).encode(version)  # type: ignore[arg-type]


def test_bytes_are_copied_out_of_the_frame() -> None:
    """They live on in the state of groups, which must not keep a whole frame alive."""
    raw = b"".join(SaslAuthenticateRequest(auth_bytes=b"secret").encode(2))
    decoded, _ = SaslAuthenticateRequest.decode(memoryview(raw), 0, 2)
    assert type(decoded.auth_bytes) is bytes


def test_a_nullable_struct_has_only_two_markers() -> None:
    raw = b"".join(DescribeTopicPartitionsRequest(cursor=None).encode(0))
    assert raw[-2:] == b"\xff\0"
    with pytest.raises(DecodeError, match="marker"):
        DescribeTopicPartitionsRequest.decode(memoryview(raw[:-2] + b"\x02\0"), 0, 0)


def test_a_tagged_field_must_fill_its_size() -> None:
    response = fetch_response(b"x")
    response.responses[0].partitions[0].current_leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    raw = b"".join(response.encode(12))
    entry = b"\x01\x09" + b"\0\0\0\1" + b"\0\0\0\2" + b"\0"
    assert entry in raw
    decoded, _ = FetchResponse.decode(memoryview(raw), 0, 12)
    leader = decoded.responses[0].partitions[0].current_leader
    assert leader == LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    with pytest.raises(DecodeError, match="wrong size"):
        FetchResponse.decode(memoryview(raw.replace(entry, b"\x01\x0a" + entry[2:] + b"\0")), 0, 12)


def test_structs_compare_by_their_fields_and_show_them() -> None:
    assert LeaderIdAndEpoch(leader_id=1) == LeaderIdAndEpoch(leader_id=1)
    assert LeaderIdAndEpoch(leader_id=1) != LeaderIdAndEpoch(leader_id=2)
    assert LeaderIdAndEpoch() != EpochEndOffset()
    assert repr(LeaderIdAndEpoch(leader_id=1)) == "LeaderIdAndEpoch(leader_id=1, leader_epoch=-1)"
    with pytest.raises(TypeError):
        hash(LeaderIdAndEpoch())
    with pytest.raises(AttributeError):
        LeaderIdAndEpoch().leder_id = 1  # type: ignore[attr-defined]


def test_every_error_code_has_a_name() -> None:
    assert ErrorCode.name_of(0) == "NONE"
    assert ErrorCode.name_of(-1) == "UNKNOWN_SERVER_ERROR"
    assert ErrorCode.name_of(ErrorCode.UNKNOWN_TOPIC_ID) == "UNKNOWN_TOPIC_ID"
    assert ErrorCode.name_of(9999) == "ERROR_9999"
