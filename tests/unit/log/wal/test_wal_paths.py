"""The paths of WAL objects, there and back."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.log.wal.samples import CREATED_MS, WAL_ID

from dray.log.wal import PREFIX, WalPath, object_path, parse_object_path
from dray.log.wal.format import BATCHES_ENDING, WAL_ENDING
from dray.objects.contract import check_path


def test_the_path_is_the_specified_one() -> None:
    path = object_path("eu-west-1a", 3, CREATED_MS, WAL_ID)
    assert path == f"wal/v1/zone=eu-west-1a/domain=3/date=2025/12/31/{WAL_ID}.wo"


def test_the_date_is_utc_to_the_millisecond() -> None:
    assert "/date=2025/12/31/" in object_path("", 0, CREATED_MS, WAL_ID)
    assert "/date=2026/01/01/" in object_path("", 0, CREATED_MS + 1, WAL_ID)


@given(
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.integers(0, 2**32 - 1),
    st.integers(0, 4_102_444_800_000),
    st.uuids(),
    st.sampled_from((WAL_ENDING, BATCHES_ENDING)),
)
def test_round_trip(zone: str, domain: int, created_ms: int, wal_id: UUID, ending: str) -> None:
    path = check_path(object_path(zone, domain, created_ms, wal_id, ending))
    assert path.endswith(f"{wal_id}{ending}")
    assert path.startswith(PREFIX)
    assert parse_object_path(path) == WalPath(zone, domain, wal_id)


GOOD = f"wal/v1/zone=z/domain=3/date=2025/12/31/{WAL_ID}.wo"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "wal/v1/something/else",
        GOOD.removesuffix(".wo"),
        f"{GOOD}.tmp",
        f"x{GOOD}",
        f"{GOOD}\n",
        GOOD.replace("v1", "v2"),
        GOOD.replace("domain=3", "domain=-3"),
        GOOD.replace("domain=3", "domain=03"),
        GOOD.replace("domain=3", "domain=٣"),
        GOOD.replace("zone=z", "zone=a/b"),
        GOOD.replace("2025/12", "2025/1"),
        GOOD.replace("-", ""),
        GOOD.replace(str(WAL_ID), str(WAL_ID).upper()),
    ],
)
def test_what_is_not_ours_is_left_alone(path: str) -> None:
    assert parse_object_path(GOOD) is not None
    assert parse_object_path(path) is None
