"""What Kafka 4.2 stored of its tiered segments and of committed offsets; and offsets from files."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
from tests.unit.foreign.fixture_files import FIXTURES
from tests.unit.migration.sources import a_batch, files_below, in_memory

from dray.foreign.stored_offsets import OffsetPlace, StoredOffset
from dray.migration.found import MigrationRefused
from dray.migration.inventory import Question, SourceLayout, take_inventory
from dray.migration.offsets import offsets_of, read_offsets_file
from dray.migration.plan import make_plan
from dray.migration.remote_metadata import read_remote_metadata

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
