"""Stored values: every format ever written is read for ever, and a newer one is refused by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dray.broker.cluster.identity import ClusterInfo, decode_cluster, encode_cluster
from dray.broker.cluster.levels import ClusterLevel
from dray.broker.cluster.membership import AdvertisedListener, Broker, decode_broker, encode_broker
from dray.broker.topics.compaction_requests import (
    CompactionRequest,
    RequestState,
    decode_request,
    encode_request,
)
from dray.broker.topics.model import (
    Tombstone,
    Topic,
    TopicSettings,
    decode_tombstone,
    decode_topic,
    encode_tombstone,
    encode_topic,
)
from dray.metadata.values import FormatTooNew, ValueCorrupt, seal, unseal, unseal_json

VALUES = Path(__file__).parents[3] / "fixtures" / "values"

TOPIC_ID = UUID("0b8f2f64-8f0e-4c0a-9d0e-3a7c1f5e2d11")
CONFIG = {"retention.ms": "60000", "cleanup.policy": "compact,delete"}
TOPIC = Topic("orders", TOPIC_ID, (7, 8, 11), CONFIG, 1700000000123, TopicSettings.of(CONFIG, {}))
REPLICATED = dataclasses.replace(TOPIC, replication_factor=3)
RAISED = dataclasses.replace(TOPIC, leader_epoch=5)
TOMBSTONE = Tombstone("orders", TOPIC_ID, (7, 8, 11), 1700000001234)
CLUSTER = ClusterInfo("C49vZI8OTAqdDjp8H14tEQ", 16, 1700000000000)
BROKER = Broker(
    3,
    (AdvertisedListener("PLAINTEXT", "127.0.0.1", 9092), AdvertisedListener("TLS", "broker.example", 9093)),
    "zone-a",
    "rack-1",
    1700000000456,
    "0.1.0",
    "machine-1",
    4242,
    TOPIC_ID,
)

REQUEST = CompactionRequest(
    TOPIC_ID, RequestState.RUNNING, 1700000002000, 1700000002500, 3, 1, "compactor-1", "the catalog is down"
)

READERS: dict[str, Callable[[bytes], Any]] = {
    "topic": lambda value: decode_topic("orders", value, {}),
    "tombstone": lambda value: decode_tombstone("key", value),
    "compaction-request": lambda value: decode_request("key", value),
    "cluster": decode_cluster,
    "broker": lambda value: decode_broker(3, value),
}
EXPECTED = {
    "topic": TOPIC,
    "tombstone": TOMBSTONE,
    "compaction-request": REQUEST,
    "cluster": CLUSTER,
    "broker": BROKER,
}


@pytest.mark.parametrize("kind", READERS)
def test_what_version_1_wrote_still_reads(kind: str) -> None:
    assert READERS[kind]((VALUES / f"{kind}.v1.bin").read_bytes()) == EXPECTED[kind]


def test_what_is_written_reads_back() -> None:
    assert READERS["topic"](encode_topic(TOPIC)) == TOPIC
    assert READERS["topic"](encode_topic(REPLICATED)) == REPLICATED
    assert READERS["topic"](encode_topic(TOPIC)).settings.retention_ms == 60000
    assert READERS["tombstone"](encode_tombstone(TOMBSTONE)) == TOMBSTONE
    assert READERS["compaction-request"](encode_request(REQUEST)) == REQUEST
    assert READERS["cluster"](encode_cluster(CLUSTER)) == CLUSTER
    assert READERS["broker"](encode_broker(BROKER)) == BROKER


def test_a_topic_with_a_replication_factor_is_no_new_format() -> None:
    """Builds from before there was one read it, without."""
    value = encode_topic(REPLICATED)
    assert value == (VALUES / "topic-replicated.v1.bin").read_bytes()
    assert value.replace(b',"replication_factor":3', b"") == encode_topic(TOPIC)


def test_a_raised_leader_epoch_is_a_new_format() -> None:
    """A build that does not know it must not change the topic: the epoch would go back."""
    value = encode_topic(RAISED)
    assert value == (VALUES / "topic-epoch.v2.bin").read_bytes()
    assert value[0] == 2
    assert READERS["topic"](value) == RAISED
    assert encode_topic(TOPIC)[0] == encode_topic(REPLICATED)[0] == 1, "older builds go on reading the others"


def test_a_cluster_above_the_base_level_is_a_new_format() -> None:
    """Builds from before levels refuse it, and do not start."""
    raised = dataclasses.replace(CLUSTER, level=ClusterLevel(2, ceiling=1))
    assert encode_cluster(raised) == (VALUES / "cluster-level.v2.bin").read_bytes()
    assert READERS["cluster"](encode_cluster(raised)) == raised


@pytest.mark.parametrize("value", [b"\x01" + encode_topic(RAISED)[1:], b"\x02" + encode_topic(TOPIC)[1:]])
def test_a_leader_epoch_in_the_wrong_format_is_corrupt(value: bytes) -> None:
    with pytest.raises(ValueCorrupt, match="does not fit its leader epoch"):
        READERS["topic"](value)


@pytest.mark.parametrize("kind", READERS)
def test_a_newer_format_is_refused_in_one_line_that_says_what_to_do(kind: str) -> None:
    value = (VALUES / f"{kind}.v1.bin").read_bytes()
    newest = 2 if kind in ("topic", "cluster") else 1
    with pytest.raises(
        FormatTooNew, match=f"is stored in format {newest + 1}, and this build reads formats up to {newest}"
    ) as no:
        READERS[kind](bytes([newest + 1]) + value[1:])
    assert "\n" not in str(no.value)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("value", [b"", b"\x00{}", b"\x01", b"\x01{", b"\x01[]", b"\x01{}", b"\x01\xff\xfe"])
def test_what_is_no_value_at_all_is_named_as_corrupt(kind: str, value: bytes) -> None:
    with pytest.raises(ValueCorrupt):
        READERS[kind](value)


def test_the_version_byte_comes_first() -> None:
    assert seal(7, b"body") == b"\x07body"
    version, body = unseal("a thing", b"\x07body", 7)
    assert (version, bytes(body)) == (7, b"body")
    assert unseal_json("a thing", b'\x01{"a":1}', 1) == (1, {"a": 1})
    with pytest.raises(ValueCorrupt):
        unseal_json("a thing", b"\x01" + b"[" * 100_000, 1)
