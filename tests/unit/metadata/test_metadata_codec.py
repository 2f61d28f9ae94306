"""Values that are stored as JSON: the dataclass is the format, and what is not of it is unreadable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from dray.broker.cluster.bucket_owner import decode_owner
from dray.broker.cluster.clock_guard import decode_beat
from dray.broker.cluster.identity import decode_cluster
from dray.broker.cluster.membership import decode_broker
from dray.broker.groups.coordinator.lease import decode_holder
from dray.broker.topics.model import decode_tombstone, decode_topic
from dray.log.jobs.machine import Job
from dray.log.jobs.values import WrittenFile
from dray.metadata.values import (
    FROM_KEY,
    NOT_IF_NONE,
    FormatTooNew,
    HexUuid,
    JsonCodec,
    UnreadableValue,
    ValueCorrupt,
)


class Colour(Enum):
    RED = "RED"


class Place(NamedTuple):
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Inner:
    flag: bool = False


@dataclass(frozen=True, slots=True)
class Thing:
    key: Annotated[int, FROM_KEY]
    thing_id: Annotated[HexUuid, Field(alias="id")]
    count: int = 0
    colour: Colour = Colour.RED
    places: tuple[Place, ...] = ()
    names: Mapping[str, str] = Field(default_factory=dict)
    inner: Inner = Inner()
    later: Annotated[int | None, NOT_IF_NONE] = None


CODEC = JsonCodec(Thing, 3)
THING = Thing(7, UUID(int=5), 2, places=(Place("é", 1),), names={"a": "b"})
STORED = (
    b'\x03{"colour":"RED","count":2,"id":"00000000000000000000000000000005","inner":{"flag":false},'
    b'"names":{"a":"b"},"places":[["\\u00e9",1]]}'
)


def test_the_fields_are_the_format() -> None:
    """Sorted, without spaces, in ASCII: equal values give equal bytes."""
    assert CODEC.encode(THING) == STORED
    assert CODEC.decode("a thing", STORED, key=7) == THING


def test_an_older_format_may_say_all_there_is() -> None:
    assert CODEC.encode(THING, 1) == b"\x01" + STORED[1:]
    assert CODEC.decode_versioned("a thing", b"\x02" + STORED[1:], key=7) == (2, THING)


def test_what_other_builds_add_is_read_past_and_what_they_lack_has_its_default() -> None:
    later = STORED[:-1] + b',"later":4,"unheard":[{}]}'
    assert CODEC.decode("a thing", later, key=7).later == 4
    assert CODEC.decode("a thing", STORED, key=7).later is None


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        (b'"count":2,', b"", "count: Field required"),
        (b'"flag":false', b"", "inner.flag: Field required"),
        (b'"id"', b'"thing_id"', "id: Field required"),
        (b'"count":2', b'"count":"2"', "count: Input should be a valid integer"),
        (b'"count":2', b'"count":2.0', "count: Input should be a valid integer"),
        (b'"count":2', b'"count":true', "count: Input should be a valid integer"),
        (b'"flag":false', b'"flag":0', "inner.flag: Input should be a valid boolean"),
        (b'"RED"', b'"BLUE"', "colour: Input should be 'RED'"),
        (b'"a":"b"', b'"a":1', "names.a: Input should be a valid string"),
        (b"00000005", b"0000000x", "id: Input should be a valid UUID"),
        (b",1]]", b"]]", "places.0.1: Field required"),
        (b",1]]", b",1,2]]", "places.0"),
        (b'"inner":{"flag":false}', b'"inner":[]', "inner: "),
    ],
)
def test_a_field_that_is_missing_or_of_another_type_is_named(was: bytes, becomes: bytes, said: str) -> None:
    assert was in STORED
    with pytest.raises(ValueCorrupt, match=f"^a thing is stored as something unreadable: {said}") as no:
        CODEC.decode("a thing", STORED.replace(was, becomes), key=7)
    assert "\n" not in str(no.value)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"count":NaN}'])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueCorrupt):
        CODEC.decode("a thing", b"\x01" + body, key=7)


def test_a_newer_format_is_refused_before_it_is_read() -> None:
    with pytest.raises(FormatTooNew, match="a thing is stored in format 4"):
        CODEC.decode("a thing", b"\x04whatever", key=7)


def test_many_faults_make_one_line() -> None:
    with pytest.raises(ValueCorrupt, match=r"; and 2 more$"):
        CODEC.decode("a thing", b'\x01{"id":1,"count":"","colour":"","places":1,"names":[]}', key=7)


@given(st.binary(max_size=60))
def test_anything_else_is_unreadable_and_nothing_worse(body: bytes) -> None:
    with pytest.raises(UnreadableValue):
        CODEC.decode("a thing", b"\x01" + body, key=7)


@pytest.mark.parametrize(
    "decode",
    [
        Job.decode,
        decode_cluster,
        decode_owner,
        decode_beat,
        lambda value: decode_broker(1, value),
        lambda value: decode_holder("g", value),
        lambda value: decode_topic("t", value, {}),
        lambda value: decode_tombstone("k", value),
        lambda _: WrittenFile.from_json({}),
    ],
)
def test_a_value_that_says_nothing_is_not_one_with_every_default(decode) -> None:
    with pytest.raises(ValueCorrupt, match="Field required"):
        decode(b"\x01{}")
