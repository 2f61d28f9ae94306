"""Foreign bytes of any shape are read or refused, and nothing else happens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.migration.formats.fixture_files import KAFSCALE, aiven_partition, local_partition, segments_of

from dray.migration.formats import ForeignFault, cut_torn_tail, walk_batches
from dray.migration.formats.aiven import read_manifest
from dray.migration.formats.driftq import read_wal
from dray.migration.formats.kafka_files import (
    read_epochs,
    read_offset_index,
    read_offset_record,
    read_producer_snapshot,
    read_time_index,
    read_transaction_index,
)
from dray.migration.formats.kafscale import KafscaleSegment, read_index, read_segment
from dray.migration.formats.remote_segments import read_remote_record

SEGMENT = KafscaleSegment(0, 1_000, 1_001, 0, 100_000)
READERS: dict[str, tuple[Callable[[bytes], object], Path]] = {
    "batches": (lambda data: list(walk_batches(data)), segments_of(local_partition(0), "log")[1]),
    "torn tail": (cut_torn_tail, segments_of(local_partition(0), "log")[1]),
    "offset index": (lambda data: read_offset_index(data, 7), segments_of(local_partition(1), "index")[0]),
    "time index": (lambda data: read_time_index(data, 7), segments_of(local_partition(1), "timeindex")[0]),
    "aborted": (read_transaction_index, segments_of(local_partition(0), "txnindex")[0]),
    "snapshot": (read_producer_snapshot, segments_of(local_partition(0), "snapshot")[0]),
    "epochs": (read_epochs, segments_of(local_partition(0), "leader_epoch_checkpoint")[0]),
    "manifest": (read_manifest, segments_of(aiven_partition(0), "rsm-manifest")[0]),
    "kafscale": (read_segment, next(KAFSCALE.glob("*.kfs"))),
    "kafscale index": (lambda data: read_index(data, SEGMENT), next(KAFSCALE.glob("*.index"))),
    "remote segment": (read_remote_record, segments_of(local_partition(0), "snapshot")[0]),
    "stored offset": (
        lambda data: read_offset_record(data, data),
        segments_of(local_partition(0), "index")[0],
    ),
    "driftq": (read_wal, segments_of(local_partition(0), "leader_epoch_checkpoint")[0]),
}


@pytest.mark.parametrize("name", READERS)
@given(data=st.binary(max_size=400))
def test_any_bytes(name: str, data: bytes) -> None:
    with contextlib.suppress(ForeignFault):
        READERS[name][0](data)


@pytest.mark.parametrize("name", READERS)
@given(
    cut=st.integers(0, 5_000),
    changes=st.lists(st.tuples(st.integers(0, 4_999), st.integers(0, 255)), max_size=6),
)
def test_real_files_with_other_bytes(name: str, cut: int, changes: list[tuple[int, int]]) -> None:
    reader, path = READERS[name]
    data = bytearray(path.read_bytes()[:5_000])
    for position, value in changes:
        if position < len(data):
            data[position] = value
    with contextlib.suppress(ForeignFault):
        reader(bytes(data[:cut] if cut % 2 else data))
