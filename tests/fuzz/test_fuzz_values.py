"""Stored values from anywhere: a decoder gives a value or says why it cannot, and nothing else ever.

Other builds, other versions and broken disks write into the same stores. The corpus is what every format
looked like once (`tests/fixtures/values`) and what was found here (`corpus`): each file is tried on every
decoder, whole and damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.broker.cluster.identity import decode_cluster
from dray.broker.cluster.membership import decode_broker
from dray.broker.groups.classic import codec as classic_codec
from dray.broker.groups.classic import state
from dray.broker.groups.consumer import codec as consumer_codec
from dray.broker.groups.coordinator.configs import decode_configs
from dray.broker.groups.coordinator.lease import decode_holder
from dray.broker.groups.coordinator.machines import decode_state
from dray.broker.groups.coordinator.storage import decode_record
from dray.broker.groups.offsets import CommittedOffset
from dray.broker.security.quotas.store import decode_quotas
from dray.broker.security.users import decode_credential
from dray.broker.topics.model import decode_tombstone, decode_topic
from dray.log import wal_keys
from dray.log.append import carried_hints
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.jobs.machine import Job
from dray.log.life import counters
from dray.log.parquet.reader import Footer, ParquetCorrupt
from dray.log.producer_state import ProducerSnapshot
from dray.log.read.segments import EntryLayout, _restored_carried
from dray.metadata.values import UnreadableValue

HERE = Path(__file__).parent
CORPUS = sorted([*(HERE / "corpus").rglob("*.bin"), *(HERE.parent / "fixtures" / "values").glob("*.bin")])

DECODERS: dict[str, Callable[[bytes], object]] = {
    "index entry": IndexEntry.decode,
    "carried entry, read": lambda value: read_carried(IndexEntry.decode(value)),
    "hint at carried entries": carried_hints.check_hint,
    "high watermark": HighWatermark.decode,
    "job": Job.decode,
    "producer snapshot": lambda value: ProducerSnapshot.decode(value, 1000),
    "counter": counters.decode,
    "staging mark": wal_keys.Staging.decode,
    "object key": wal_keys.decode_object,
    "topic": lambda value: decode_topic("t", value, {}),
    "tombstone": lambda value: decode_tombstone("k", value),
    "broker": lambda value: decode_broker(1, value),
    "cluster": decode_cluster,
    "group record": lambda value: decode_state("g", decode_record("g", value)),
    "group configs": lambda value: decode_configs("g", value),
    "credential": lambda value: decode_credential("alice", value),
    "quotas": lambda value: decode_quotas("user=alice", value),
    "lease": lambda value: decode_holder("g", value),
    "classic group": lambda value: classic_codec.decode_group("g", value),
    "consumer group": lambda value: consumer_codec.decode_group("g", value),
    "committed offset": CommittedOffset.decode,
    "subscription": lambda value: state._topics_in(value, 1000),
    "Parquet footer": lambda value: Footer(value, len(value)),
}
REFUSALS = (UnreadableValue, ParquetCorrupt)

# Small numbers make counts and lengths that fit, so that the fuzz gets deeper than the first field.
BYTES = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 0x61, 0x7B, 0x7F, 0xFF]), max_size=200).map(bytes),
)


def read_carried(entry: IndexEntry) -> None:
    """Everything in it is served, or refused: positions and lengths may point anywhere."""
    if entry.is_carried:
        layout = EntryLayout(entry)
        for segment in layout.segments:
            _restored_carried(layout, segment)
        list(entry.batches())


def decode_or_refuse(name: str, value: bytes) -> None:
    told = ""
    try:
        DECODERS[name](value)
    except REFUSALS as refusal:
        told = str(refusal)
    assert "\n" not in told, "an error is one line"


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_the_corpus(path: Path) -> None:
    for name in DECODERS:
        decode_or_refuse(name, path.read_bytes())


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=60, deadline=None)
@given(value=BYTES)
def test_any_bytes_as_a_value(name: str, value: bytes) -> None:
    decode_or_refuse(name, value)


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=40, deadline=None)
@given(
    path=st.sampled_from(CORPUS),
    damage=st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=4)), min_size=1, max_size=4),
)
def test_a_damaged_value(name: str, path: Path, damage: list[tuple[int, bytes]]) -> None:
    raw = path.read_bytes()
    for place, insertion in damage:
        position = place % (len(raw) + 1)
        raw = raw[:position] + insertion + raw[position + len(insertion) // 2 :]
    decode_or_refuse(name, raw)
