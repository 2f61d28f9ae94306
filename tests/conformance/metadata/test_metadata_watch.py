"""Watches: hints that may say too much, never too little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.conformance.metadata.engines import Engine

from dray.metadata.contract import Change, Delete, DeleteRange, MetadataStore, Put
from dray.metadata.watching import PENDING_KEYS

PATIENCE = 60.0


async def following(watch: AsyncIterator[Change]) -> Change:
    async with asyncio.timeout(PATIENCE):
        return await anext(watch)


async def heard(watch: AsyncIterator[Change], key: str) -> None:
    """Wait for a hint that covers the key."""
    async with asyncio.timeout(PATIENCE):
        async for change in watch:
            if change.key in (key, None):
                return
    raise AssertionError("the watch ended")


async def test_the_first_change_is_always_anything(store: MetadataStore, other: MetadataStore) -> None:
    watch = other.watch(0)
    assert await following(watch) == Change(None)


async def test_every_kind_of_change_is_heard(store: MetadataStore, other: MetadataStore) -> None:
    watch = other.watch(0)
    await following(watch)
    [outcome] = await store.write(0, [Put("/a", b"1")])
    await heard(watch, "/a")
    await store.write(0, [Put("/a", b"2", outcome.version)])
    await heard(watch, "/a")
    await store.write(0, [Delete("/a")])
    await heard(watch, "/a")
    await store.write(0, [Put("/b", b"1"), Put("/c", b"1")])
    await heard(watch, "/c")
    await store.write(0, [DeleteRange("/", "0")])
    await heard(watch, "/b")


async def test_a_hint_comes_after_its_change(store: MetadataStore, other: MetadataStore) -> None:
    watch = other.watch(0)
    await following(watch)
    for number in range(20):
        await store.write(0, [Put("/a", b"%d" % number)])
        await heard(watch, "/a")
        record = await other.get(0, "/a")
        assert record is not None
        assert record.value == b"%d" % number


async def test_no_change_is_missed_from_the_first_item_on(store: MetadataStore, other: MetadataStore) -> None:
    for number in range(10):
        watch = other.watch(0)
        await following(watch)
        await store.write(0, [Put("/a", b"%d" % number)])
        await heard(watch, "/a")


async def test_a_watch_names_the_keys(store: MetadataStore, other: MetadataStore) -> None:
    """Not promised, but it is what the hints are for."""
    watch = other.watch(0)
    await following(watch)
    await store.write(0, [Put("/a", b""), Put("/b", b"")])
    assert {(await following(watch)).key, (await following(watch)).key} == {"/a", "/b"}


async def test_a_skipped_operation_is_no_change(store: MetadataStore, other: MetadataStore) -> None:
    await store.write(0, [Put("/a", b"")])
    watch = other.watch(0)
    await following(watch)
    await store.write(0, [Put("/a", b"", 1 << 40), Delete("/a", 1 << 40)])
    await store.write(0, [Put("/b", b"")])
    assert await following(watch) == Change("/b")


async def test_another_domain_is_not_heard(store: MetadataStore, other: MetadataStore) -> None:
    watch = other.watch(0)
    await following(watch)
    await store.write(1, [Put("/a", b"")])
    await store.write(0, [Put("/b", b"")])
    assert await following(watch) == Change("/b")


async def test_two_watches_hear_the_same(store: MetadataStore, other: MetadataStore) -> None:
    first, second = other.watch(0), other.watch(0)
    await following(first)
    await following(second)
    await store.write(0, [Put("/a", b"")])
    await heard(first, "/a")
    await heard(second, "/a")


async def test_a_slow_consumer_hears_that_anything_may_have_changed(
    store: MetadataStore, other: MetadataStore
) -> None:
    watch = other.watch(0)
    await following(watch)
    await store.write(0, [Put(f"/k/{number:05d}", b"") for number in range(PENDING_KEYS + 1)])
    await store.write(0, [Put("/last", b"")])
    hints = [await following(watch)]
    while hints[-1].key not in (None, "/last"):
        hints.append(await following(watch))
    assert Change(None) in hints
    assert len(hints) <= PENDING_KEYS + 1


async def test_a_watch_ends_with_its_store(engine: Engine) -> None:
    store = await engine.open()
    watch = store.watch(0)
    await following(watch)
    waiting = asyncio.ensure_future(anext(watch, None))
    idle = store.watch(0)
    await following(idle)
    await store.close()
    async with asyncio.timeout(PATIENCE):
        assert await waiting is None
        assert await anext(idle, None) is None
