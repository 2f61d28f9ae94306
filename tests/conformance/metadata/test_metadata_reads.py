"""Reads: byte order, bounds, prefixes, one snapshot, and nothing acknowledged ever missing."""

from __future__ import annotations

import asyncio

import pytest

from dray.metadata.contract import MetadataStore, Put, StoredValue


async def fill(store: MetadataStore, keys: list[str]) -> None:
    await store.write(0, [Put(key, key.encode()) for key in keys])


def key_of(record: StoredValue | None) -> str | None:
    return None if record is None else record.key


async def test_scan_is_in_byte_order(store: MetadataStore, other: MetadataStore) -> None:
    keys = ["/a", "/A", "/a/b", "/a-b", "/a.b", "/a0", "/aa", "/B", "/~", "/_", "/a b", "/10", "/9"]
    await fill(store, keys)
    assert [record.key for record in await other.scan(0, "/", "0")] == sorted(keys, key=str.encode)


async def test_scan_takes_its_start_and_leaves_its_end(store: MetadataStore, other: MetadataStore) -> None:
    await fill(store, ["/a", "/b", "/b/1", "/c"])
    assert [record.key for record in await other.scan(0, "/b", "/c")] == ["/b", "/b/1"]
    assert await other.scan(0, "/c", "/b") == []
    assert await other.scan(0, "/b", "/b") == []


async def test_scan_limits(store: MetadataStore, other: MetadataStore) -> None:
    await fill(store, [f"/k/{number}" for number in range(5)])
    for limit, expected in ((0, 0), (1, 1), (4, 4), (5, 5), (6, 5), (None, 5)):
        found = await other.scan(0, "/k/", "/k0", limit)
        assert [record.key for record in found] == [f"/k/{number}" for number in range(expected)]
    with pytest.raises(ValueError, match="limited"):
        await other.scan(0, "/k/", "/k0", -1)


async def test_scan_is_one_snapshot(store: MetadataStore, other: MetadataStore) -> None:
    """Two keys that only ever change together are never seen apart, with many keys between them."""
    await store.write(0, [Put(f"/m/{number:04d}", bytes(200)) for number in range(1000)])
    scans = 0
    done = False

    async def write() -> None:
        nonlocal done
        for number in range(30):
            await store.write(0, [Put("/a", b"%d" % number), Put("/z", b"%d" % number)])
        done = True

    async def look() -> None:
        nonlocal scans
        while not done:
            found = {record.key: record for record in await other.scan(0, "/", "0")}
            if "/a" in found:
                assert found["/a"].value == found["/z"].value
            scans += 1

    await asyncio.gather(write(), look())
    assert scans > 1


async def test_floor(store: MetadataStore, other: MetadataStore) -> None:
    await fill(store, ["/a/1", "/b/10", "/b/20", "/c/1"])
    cases = {
        "/b/20": "/b/20",
        "/b/15": "/b/10",
        "/b/10": "/b/10",
        "/b/09": None,
        "/b/~~": "/b/20",
        "/z": "/b/20",
        "/a/5": None,
        "": None,
    }
    for key, expected in cases.items():
        assert key_of(await other.floor(0, key, "/b/")) == expected, key
    assert key_of(await other.floor(0, "/z", "/")) == "/c/1"
    assert key_of(await other.floor(0, "/z", "")) == "/c/1"
    assert await other.floor(0, "/z", "/d/") is None
    assert await other.floor(1, "/b/20", "/b/") is None


async def test_ceiling(store: MetadataStore, other: MetadataStore) -> None:
    await fill(store, ["/a/1", "/b/10", "/b/20", "/c/1"])
    cases = {
        "/b/10": "/b/10",
        "/b/11": "/b/20",
        "/b/20": "/b/20",
        "/b/21": None,
        "/b/": "/b/10",
        "/a/0": "/b/10",
        "": "/b/10",
        "/c": None,
    }
    for key, expected in cases.items():
        assert key_of(await other.ceiling(0, key, "/b/")) == expected, key
    assert key_of(await other.ceiling(0, "", "")) == "/a/1"
    assert await other.ceiling(0, "/", "/d/") is None
    assert await other.ceiling(1, "/b/10", "/b/") is None


async def test_a_prefix_is_not_its_neighbour(store: MetadataStore, other: MetadataStore) -> None:
    """The keys around a prefix: itself, and those that only begin alike."""
    await fill(store, ["/p", "/p.", "/p/", "/p/~", "/p0", "/pp"])
    assert key_of(await other.floor(0, "/q", "/p/")) == "/p/~"
    assert key_of(await other.ceiling(0, "/a", "/p/")) == "/p/"
    assert key_of(await other.ceiling(0, "/p/~~", "/p/")) is None
    assert key_of(await other.floor(0, "/q", "/p")) == "/pp"


async def test_floor_and_ceiling_return_value_and_version(store: MetadataStore, other: MetadataStore) -> None:
    [outcome] = await store.write(0, [Put("/a", b"value")])
    assert await other.floor(0, "/b", "/") == StoredValue("/a", b"value", outcome.version)
    assert await other.ceiling(0, "/", "/") == StoredValue("/a", b"value", outcome.version)


async def test_what_was_acknowledged_is_read_after_a_barrier(
    store: MetadataStore, other: MetadataStore
) -> None:
    for number in range(50):
        [outcome] = await store.write(0, [Put("/a", b"%d" % number)])
        await other.barrier(0)
        assert await other.get(0, "/a") == StoredValue("/a", b"%d" % number, outcome.version)
        assert [record.value for record in await other.scan(0, "/", "0")] == [b"%d" % number]


async def test_a_client_reads_its_own_writes(store: MetadataStore) -> None:
    async def client(number: int) -> None:
        for turn in range(20):
            await store.write(0, [Put(f"/{number}", b"%d" % turn)])
            record = await store.get(0, f"/{number}")
            assert record is not None
            assert record.value == b"%d" % turn

    await asyncio.gather(*(client(number) for number in range(8)))
