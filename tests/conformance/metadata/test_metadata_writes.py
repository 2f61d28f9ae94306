"""Writes: one atomic step, each operation with its own expectation, versions that never come again."""

from __future__ import annotations

import asyncio

import pytest

from dray.metadata.contract import (
    ABSENT,
    ANY,
    Delete,
    DeleteRange,
    MetadataStore,
    Operation,
    Outcome,
    Put,
    StoredValue,
    Unavailable,
    WriteTooLarge,
)

SKIPPED = Outcome(False)


async def put(store: MetadataStore, key: str, value: bytes = b"", domain: int = 0) -> int:
    [outcome] = await store.write(domain, [Put(key, value)])
    assert outcome.applied
    return outcome.version


async def test_what_was_put_is_read_with_its_version(store: MetadataStore, other: MetadataStore) -> None:
    version = await put(store, "/a", b"one")
    assert version > 0
    assert await other.get(0, "/a") == StoredValue("/a", b"one", version)
    assert await other.get(0, "/b") is None


async def test_an_empty_write_does_nothing(store: MetadataStore) -> None:
    assert await store.write(0, []) == []


async def test_empty_values_are_kept(store: MetadataStore, other: MetadataStore) -> None:
    [first, second] = await store.write(0, [Put("/a", b""), Put("/b", b"")])
    assert await other.scan(0, "/", "0") == [
        StoredValue("/a", b"", first.version),
        StoredValue("/b", b"", second.version),
    ]


async def test_put_if_absent(store: MetadataStore, other: MetadataStore) -> None:
    [outcome] = await store.write(0, [Put("/a", b"1", ABSENT)])
    assert outcome.applied
    assert await other.write(0, [Put("/a", b"2", ABSENT)]) == [SKIPPED]
    await store.write(0, [Delete("/a")])
    [outcome] = await other.write(0, [Put("/a", b"3", ABSENT)])
    assert outcome.applied


async def test_compare_and_set(store: MetadataStore, other: MetadataStore) -> None:
    version = await put(store, "/a", b"1")
    [outcome] = await other.write(0, [Put("/a", b"2", version)])
    assert outcome.applied
    assert outcome.version > version
    assert await store.write(0, [Put("/a", b"3", version)]) == [SKIPPED]
    assert await store.get(0, "/a") == StoredValue("/a", b"2", outcome.version)


@pytest.mark.parametrize("expect", [0, -1, 1, 1 << 40])
async def test_no_version_matches_an_absent_key(store: MetadataStore, expect: int) -> None:
    assert await store.write(0, [Put("/a", b"", expect), Delete("/a", expect)]) == [SKIPPED, SKIPPED]
    assert await store.get(0, "/a") is None


async def test_a_failed_expectation_skips_its_operation_and_no_other(
    store: MetadataStore, other: MetadataStore
) -> None:
    version = await put(store, "/a", b"1")
    operations: list[Operation] = [
        Put("/x", b"x", ABSENT),
        Put("/a", b"2", version + 1000),
        Delete("/a", version + 1000),
        Put("/a", b"3", ABSENT),
        Put("/y", b"y"),
        Delete("/gone", version),
    ]
    outcomes = await store.write(0, operations)
    assert [outcome.applied for outcome in outcomes] == [True, False, False, False, True, False]
    assert [outcome.version > 0 for outcome in outcomes] == [True, False, False, False, True, False]
    assert [(record.key, record.value) for record in await other.scan(0, "/", "0")] == [
        ("/a", b"1"),
        ("/x", b"x"),
        ("/y", b"y"),
    ]


async def test_deletes(store: MetadataStore, other: MetadataStore) -> None:
    version = await put(store, "/a")
    assert await store.write(0, [Delete("/a", version)]) == [Outcome(True)]
    assert await other.get(0, "/a") is None
    assert await store.write(0, [Delete("/a", version)]) == [SKIPPED]
    assert await store.write(0, [Delete("/a", ANY)]) == [Outcome(True)]


async def test_delete_range_takes_its_start_and_leaves_its_end(
    store: MetadataStore, other: MetadataStore
) -> None:
    await store.write(0, [Put(key, b"") for key in ("/a", "/b", "/b/1", "/bz", "/c", "/d")])
    await store.write(1, [Put("/b", b"")])
    assert await store.write(0, [DeleteRange("/b", "/c")]) == [Outcome(True)]
    assert [record.key for record in await other.scan(0, "/", "0")] == ["/a", "/c", "/d"]
    assert await other.get(1, "/b") is not None
    assert await store.write(0, [DeleteRange("/d", "/a")]) == [Outcome(True)]
    assert len(await other.scan(0, "/", "0")) == 3


async def test_operations_apply_in_their_order(store: MetadataStore, other: MetadataStore) -> None:
    await put(store, "/p/old")
    operations: list[Operation] = [
        Put("/p/first", b"1", ABSENT),
        DeleteRange("/p/", "/p0"),
        Put("/p/old", b"2", ABSENT),
        Put("/p/first", b"3", ABSENT),
        Put("/p/first", b"4", ABSENT),
        Put("/q", b"5"),
        Delete("/q"),
        Put("/r", b"6"),
        Put("/r", b"7"),
        DeleteRange("/s", "/t"),
    ]
    outcomes = await store.write(0, operations)
    assert [outcome.applied for outcome in outcomes] == [True, True, True, True, False, *[True] * 5]
    assert await other.scan(0, "/", "0") == [
        StoredValue("/p/first", b"3", outcomes[3].version),
        StoredValue("/p/old", b"2", outcomes[2].version),
        StoredValue("/r", b"7", outcomes[8].version),
    ]


async def test_versions_are_never_reused_across_deletion(store: MetadataStore, other: MetadataStore) -> None:
    seen = set()
    for writer, remover in ((store, other), (other, store)) * 5:
        for removal in (Delete("/a"), DeleteRange("/", "0")):
            version = await put(writer, "/a")
            assert version not in seen
            seen.add(version)
            await remover.write(0, [removal])
            assert await writer.write(0, [Put("/a", b"", version)]) == [SKIPPED]


@pytest.mark.parametrize("removal", [Delete("/a"), DeleteRange("/", "0")])
async def test_versions_are_never_reused_though_nothing_remained_of_the_write(
    store: MetadataStore, other: MetadataStore, removal: Operation
) -> None:
    [outcome, _] = await store.write(0, [Put("/a", b""), removal])
    assert await put(other, "/a") > outcome.version


async def test_versions_grow_with_each_put_of_a_key(store: MetadataStore, other: MetadataStore) -> None:
    versions = [await put(client, "/a") for client in (store, other) * 5]
    assert versions == sorted(set(versions))


async def test_what_is_put_later_in_a_domain_has_a_higher_version(
    store: MetadataStore, other: MetadataStore
) -> None:
    """Whatever its key, and whoever puts it: of a user's passwords the one set last counts."""
    highest = 0
    for client in (store, other) * 3:
        for names in (["/b", "/c"], ["/a"], ["/c", "/a"]):
            outcomes = await client.write(0, [Put(name, b"") for name in names])
            versions = [outcome.version for outcome in outcomes]
            assert min(versions) > highest
            highest = max(versions)
        await client.write(0, [Delete("/b")])


async def test_domains_are_worlds_apart(store: MetadataStore, other: MetadataStore) -> None:
    await put(store, "/a", b"0", domain=0)
    await put(store, "/a", b"1", domain=1)
    await store.write(1, [DeleteRange("/", "0")])
    record = await other.get(0, "/a")
    assert record is not None
    assert record.value == b"0"
    assert await other.scan(1, "/", "0") == []
    assert await store.write(2, [Put("/a", b"", record.version)]) == [SKIPPED]


async def test_an_unconditional_write_is_seen_whole_or_not_at_all(
    store: MetadataStore, other: MetadataStore
) -> None:
    done = False

    async def write() -> None:
        nonlocal done
        for number in range(50):
            await store.write(0, [Put(f"/k/{place}", b"%d" % number) for place in range(20)])
        done = True

    async def look() -> int:
        looks = 0
        while not done:
            values = {record.value for record in await other.scan(0, "/k/", "/k0")}
            assert len(values) <= 1
            looks += 1
        return looks

    _, looks = await asyncio.gather(write(), look())
    assert looks > 1


async def test_large_values(store: MetadataStore, other: MetadataStore) -> None:
    value = bytes(range(256)) * 4096
    assert store.limits.value_bytes >= len(value)
    await put(store, "/large", value)
    record = await other.get(0, "/large")
    assert record is not None
    assert record.value == value


async def test_as_many_operations_as_the_engine_allows(store: MetadataStore, other: MetadataStore) -> None:
    number = store.limits.operations
    outcomes = await store.write(0, [Put(f"/k/{place:06d}", b"x", ABSENT) for place in range(number)])
    assert all(outcome.applied for outcome in outcomes)
    assert len({outcome.version for outcome in outcomes}) == number
    assert len(await other.scan(0, "/k/", "/k0")) == number
    with pytest.raises(WriteTooLarge, match="operations"):
        await store.write(0, [Put("/k", b"")] * (number + 1))


@pytest.mark.parametrize(
    "operation", [Put("", b""), Put("/ä", b""), Put("/a\n", b""), Delete(""), Put("/\x7f", b"")]
)
async def test_bad_keys_are_refused(store: MetadataStore, operation: Operation) -> None:
    with pytest.raises(ValueError, match="key"):
        await store.write(0, [Put("/good", b""), operation])
    assert await store.get(0, "/good") is None


async def test_bad_domains_and_sizes_are_refused(store: MetadataStore) -> None:
    for domain in (-1, 1 << 31):
        with pytest.raises(ValueError, match="domain"):
            await store.write(domain, [Put("/a", b"")])
        with pytest.raises(ValueError, match="domain"):
            await store.get(domain, "/a")
    with pytest.raises(WriteTooLarge, match="bytes"):
        await store.write(0, [Put("/a", bytes(store.limits.value_bytes)), Put("/b", b"x")])


async def test_concurrent_compare_and_sets_lose_no_increment(
    store: MetadataStore, other: MetadataStore
) -> None:
    await put(store, "/counter", b"0")

    async def increment(client: MetadataStore) -> None:
        for _ in range(10):
            while True:
                record = await client.get(0, "/counter")
                assert record is not None
                following = b"%d" % (int(record.value) + 1)
                [outcome] = await client.write(0, [Put("/counter", following, record.version)])
                if outcome.applied:
                    break

    await asyncio.gather(*(increment(client) for client in (store, other) * 8))
    record = await store.get(0, "/counter")
    assert record is not None
    assert record.value == b"160"


async def test_one_of_many_wins_an_absent_key(store: MetadataStore, other: MetadataStore) -> None:
    writes = [
        client.write(0, [Put("/lease", b"%d" % number, ABSENT)])
        for number, client in enumerate((store, other) * 20)
    ]
    outcomes = [outcome for [outcome] in await asyncio.gather(*writes)]
    assert sum(outcome.applied for outcome in outcomes) == 1
    winner = next(number for number, outcome in enumerate(outcomes) if outcome.applied)
    record = await other.get(0, "/lease")
    assert record == StoredValue("/lease", b"%d" % winner, outcomes[winner].version)


async def test_a_closed_store_is_unavailable(store: MetadataStore) -> None:
    await store.close()
    with pytest.raises(Unavailable):
        await store.write(0, [Put("/a", b"")])
    with pytest.raises(Unavailable):
        await store.get(0, "/a")
    with pytest.raises(Unavailable):
        await store.barrier(0)
    await store.close()
