"""Watches: hints that may say too much, never too little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.conformance.metadata.engines import Engine

from dray.metadata.contract import MARK, Change, Delete, DeleteRange, MetadataStore, Put
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
    watch = other.watch(0)
    await following(watch)
    await store.write(0, [Put("/a", b"")])
    await heard(watch, "/a")
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
    watch, told = other.watch(0), other.watch(0, ("/last",))
    await following(watch)
    await following(told)
    for page in range(0, PENDING_KEYS + 1, 1000):
        await store.write(0, [Put(f"/k/{page + number:05d}", b"") for number in range(1000)])
    await store.write(0, [Put("/last", b"")])
    await heard(told, "/last")
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


async def until_marked(watch: AsyncIterator[Change], name: str) -> list[str | None]:
    """What the watch hands out before the mark."""
    keys: list[str | None] = []
    async with asyncio.timeout(PATIENCE):
        async for change in watch:
            if change.key == name:
                return keys
            keys.append(change.key)
    raise AssertionError("the watch ended")


async def test_a_mark_comes_behind_everything_acknowledged_before(
    store: MetadataStore, other: MetadataStore
) -> None:
    watch = other.watch(0)
    await following(watch)
    for number in range(30):
        await (store, other)[number % 3 == 2].write(0, [Put(f"/k/{number}", b"")])
        name = f"{MARK}{number}"
        marking = asyncio.ensure_future(other.mark(0, name))
        assert f"/k/{number}" in await until_marked(watch, name)
        await marking


async def test_many_marks_at_once_all_come(store: MetadataStore, other: MetadataStore) -> None:
    watch = other.watch(0)
    await following(watch)
    await store.write(0, [Put("/a", b"")])
    names = [f"{MARK}{number}" for number in range(20)]
    await asyncio.gather(*(other.mark(0, name) for name in names))
    heard = [(await following(watch)).key for _ in range(21)]
    assert heard[0] == "/a"
    assert sorted(heard[1:], key=str) == sorted(names)


async def test_a_mark_of_another_domain_is_not_heard(other: MetadataStore) -> None:
    watch = other.watch(0)
    await following(watch)
    await other.mark(1, f"{MARK}elsewhere")
    await other.mark(0, f"{MARK}here")
    assert await until_marked(watch, f"{MARK}here") == []


async def test_a_mark_leaves_no_key_and_needs_no_watch(store: MetadataStore) -> None:
    await store.mark(0, f"{MARK}unheard")
    assert await store.scan(0, " ", "~") == []
    assert await store.floor(0, "~", "/") is None


async def test_a_watch_of_some_endings_hears_those_and_marks(
    store: MetadataStore, other: MetadataStore
) -> None:
    watch = other.watch(0, ("/hwm", "/start"))
    await following(watch)
    await store.write(0, [Put("/1/hwm", b""), Put("/1/index", b""), Put("/wal/2", b"")])
    await store.write(0, [Put("/1/start", b"")])
    name = f"{MARK}name"
    await other.mark(0, name)
    assert await until_marked(watch, name) == ["/1/hwm", "/1/start"]
