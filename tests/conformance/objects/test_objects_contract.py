"""What every object store must do."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Sequence

import pytest

from dray.base.runtime import SystemRuntime
from dray.objects import ObjectExists, ObjectMissing, ObjectStore, RangeOutside
from dray.objects.contract import OwnBuffer


async def listed(store: ObjectStore, prefix: str) -> list[str]:
    return sorted([info.path async for info in store.list(prefix)])


async def test_what_is_put_is_what_one_gets(store: ObjectStore) -> None:
    await store.put("folder/name", [b"some", b"", bytearray(b" more "), memoryview(b"xbytesx")[1:-1]])
    assert bytes(await store.get("folder/name")) == b"some more bytes"


async def test_an_object_may_be_empty(store: ObjectStore) -> None:
    await store.put("none", [])
    await store.put("nothing", [b""])
    assert bytes(await store.get("none")) == b""
    assert (await store.head("nothing")).size == 0
    assert await store.get_ranges("none", [(0, 0)]) == [bytearray()]


async def test_put_replaces(store: ObjectStore) -> None:
    await store.put("a/b", [b"an old and longer content"])
    assert await store.get_ranges("a/b", [(0, 6)]) == [b"an old"]
    await store.put("a/b", [b"the new one"])
    assert bytes(await store.get("a/b")) == b"the new one"
    assert await store.get_ranges("a/b", [(0, 7)]) == [b"the new"]
    assert (await store.head("a/b")).size == 11


async def test_the_stored_object_is_not_the_buffer_it_came_from(store: ObjectStore) -> None:
    buffer = bytearray(b"as it was")
    await store.put("kept", [buffer])
    buffer[:] = b"changed!!"
    assert bytes(await store.get("kept")) == b"as it was"


async def test_put_if_absent_leaves_what_is_there(store: ObjectStore) -> None:
    await store.put_if_absent("a/b", [b"fir", b"st"])
    with pytest.raises(ObjectExists, match="a/b"):
        await store.put_if_absent("a/b", [b"second"])
    assert bytes(await store.get("a/b")) == b"first"
    await store.delete("a/b")
    await store.put_if_absent("a/b", [b"third"])
    assert bytes(await store.get("a/b")) == b"third"


async def test_of_many_who_put_if_absent_one_wins(store: ObjectStore) -> None:
    contents = [bytes([number]) * 1000 for number in range(20)]
    outcomes = await asyncio.gather(
        *(store.put_if_absent("the/one", [content]) for content in contents), return_exceptions=True
    )
    winners = [content for content, outcome in zip(contents, outcomes, strict=True) if outcome is None]
    assert len(winners) == 1
    assert all(outcome is None or isinstance(outcome, ObjectExists) for outcome in outcomes)
    assert bytes(await store.get("the/one")) == winners[0]


async def test_many_puts_at_once(store: ObjectStore) -> None:
    paths = [f"many/{number % 5}/{number}" for number in range(50)]
    await asyncio.gather(*(store.put(path, [path.encode()]) for path in paths))
    assert await listed(store, "many") == sorted(paths)
    for path in paths:
        assert bytes(await store.get(path)) == path.encode()


async def test_what_is_not_there_is_missing(store: ObjectStore) -> None:
    await store.put("folder/object", [b"x"])
    for path in ("nothing", "folder/nothing", "no/folder", "folder"):
        with pytest.raises(ObjectMissing, match=path):
            await store.get(path)
        with pytest.raises(ObjectMissing, match=path):
            await store.head(path)
        with pytest.raises(ObjectMissing, match=path):
            await store.get_ranges(path, [(0, 1)])


async def test_ranges_come_whole_and_in_the_order_asked(store: ObjectStore) -> None:
    data = os.urandom(300_000)
    await store.put("data", [data])
    ranges = [
        (299_990, 10),
        (0, 10),
        (10, 10),  # adjacent
        (24, 100),  # a small gap
        (50, 10),  # inside another
        (100, 200),  # overlapping
        (24, 100),  # the same again
        (150_000, 100_000),  # far away
        (7, 0),  # empty
        (0, 300_000),
    ]
    read = await store.get_ranges("data", ranges)
    assert [bytes(buffer) for buffer in read] == [data[start : start + length] for start, length in ranges]


async def test_ranges_are_the_callers_own(store: ObjectStore) -> None:
    await store.put("data", [b"0123456789"])
    first, second, third = await store.get_ranges("data", [(0, 4), (2, 4), (0, 4)])
    assert all(isinstance(buffer, bytearray) for buffer in (first, second, third))
    first[:] = b"----"
    assert (second, third) == (b"2345", b"0123")
    assert await store.get_ranges("data", [(0, 4)]) == [b"0123"]
    assert bytes(await store.get("data")) == b"0123456789"


async def test_work_is_done_on_ranges_as_they_are_read(store: ObjectStore) -> None:
    data = os.urandom(600_000)
    await store.put("data", [data])
    for ranges in ([(0, 600_000)], [(5, 10), (100_000, 300_000)], [(3, 4)], []):

        def joined(buffers: Sequence[OwnBuffer]) -> bytes:
            for buffer in buffers:
                buffer[:1] = b"!"  # they are the work's own
            return b"".join(buffers)

        found = await store.with_ranges("data", ranges, joined)
        assert found == b"".join([b"!" + data[start + 1 : start + length] for start, length in ranges])
    assert bytes(await store.get("data")) == data


async def test_what_work_raises_is_raised_and_no_work_is_done_in_vain(store: ObjectStore) -> None:
    await store.put("data", [bytes(300_000)])
    done = []

    def fail(buffers: Sequence[OwnBuffer]) -> None:
        done.append(len(buffers))
        raise LookupError("no good")

    with pytest.raises(LookupError, match="no good"):
        await store.with_ranges("data", [(0, 300_000)], fail)
    with pytest.raises(ObjectMissing):
        await store.with_ranges("nothing", [(0, 1)], fail)
    with pytest.raises(RangeOutside):
        await store.with_ranges("data", [(299_999, 2)], fail)
    assert done == [1]


async def test_no_ranges_are_nothing(store: ObjectStore) -> None:
    await store.put("data", [b"0123456789"])
    assert await store.get_ranges("data", []) == []
    assert await store.get_ranges("data", [(3, 0), (10, 0)]) == [b"", b""]


@pytest.mark.parametrize("outside", [(9, 2), (10, 1), (20, 5), (0, 11), (0, 2**62)])
async def test_a_range_past_the_end_is_an_error(store: ObjectStore, outside: tuple[int, int]) -> None:
    await store.put("some/data", [b"0123456789"])
    with pytest.raises(RangeOutside, match="some/data"):
        await store.get_ranges("some/data", [outside])
    with pytest.raises(RangeOutside, match="some/data"):
        await store.get_ranges("some/data", [(0, 5), outside, (5, 5)])


async def test_a_negative_range_is_a_mistake(store: ObjectStore) -> None:
    await store.put("data", [b"0123456789"])
    for wrong in ((-1, 2), (2, -1)):
        with pytest.raises(ValueError, match="negative"):
            await store.get_ranges("data", [wrong])


async def test_head_says_size_and_time(store: ObjectStore, runtime: SystemRuntime) -> None:
    before = runtime.wall_ms()
    await store.put("a/b", [b"12345"])
    info = await store.head("a/b")
    assert (info.path, info.size) == ("a/b", 5)
    # Stores tell time to the second, or by another machine's clock.
    assert before - 5_000 <= info.modified_ms <= runtime.wall_ms() + 5_000


async def test_delete_may_be_repeated(store: ObjectStore) -> None:
    await store.put("a/b", [b"x"])
    await store.put("a/c", [b"y"])
    await store.get_ranges("a/b", [(0, 1)])
    await store.delete("a/b")
    await store.delete("a/b")
    await store.delete("never/was")
    for ask in (store.get("a/b"), store.head("a/b"), store.get_ranges("a/b", [(0, 1)])):
        with pytest.raises(ObjectMissing):
            await ask
    assert await listed(store, "") == ["a/c"]


async def test_list_goes_by_folders(store: ObjectStore) -> None:
    paths = ["wal/v1/a", "wal/v1/b/c/d", "wal/v1x/e", "wal/v10", "other", "wal/w"]
    for path in paths:
        await store.put(path, [path.encode()])
    assert await listed(store, "") == sorted(paths)
    assert await listed(store, "wal/v1") == ["wal/v1/a", "wal/v1/b/c/d"]
    assert await listed(store, "wal/v1/") == ["wal/v1/a", "wal/v1/b/c/d"]
    assert await listed(store, "wal/v") == []
    assert await listed(store, "wal/v10") == []
    assert await listed(store, "no/such/folder") == []
    infos = [info async for info in store.list("wal/v1/b")]
    assert [(info.path, info.size) for info in infos] == [("wal/v1/b/c/d", 12)]


async def test_an_object_written_as_it_comes(store: ObjectStore) -> None:
    pieces = [[os.urandom(size) for size in sizes] for sizes in ((), (10, 0, 70_000), (300_000,), (1,), ())]

    async def coming() -> AsyncIterator[list[bytes]]:
        for piece in pieces:
            await asyncio.sleep(0)
            yield piece

    await store.put("some/stream", [b"what was there before"])
    await store.put_stream("some/stream", coming())
    assert bytes(await store.get("some/stream")) == b"".join(part for piece in pieces for part in piece)


@pytest.mark.parametrize("size", [100, 300_000])
async def test_what_a_stream_raises_is_raised_and_nothing_is_there(store: ObjectStore, size: int) -> None:
    class Failed(Exception):
        pass

    async def coming() -> AsyncIterator[list[bytes]]:
        yield [bytes(size)]
        raise Failed("half way")

    with pytest.raises(Failed, match="half way"):
        await store.put_stream("some/stream", coming())
    with pytest.raises(ObjectMissing):
        await store.head("some/stream")
    assert await listed(store, "") == []


async def test_a_large_object_of_many_parts(store: ObjectStore) -> None:
    data = os.urandom(3_000_000)
    cuts = [0, 1, 70_000, 70_001, *range(100_000, 3_000_000, 777), 3_000_000]
    parts = [memoryview(data)[start:end] for start, end in itertools.pairwise(cuts)]
    await store.put("large", parts)
    await store.put_if_absent("large too", parts)
    assert bytes(await store.get("large")) == data
    assert bytes(await store.get("large too")) == data
    assert await store.get_ranges("large", [(1_234_567, 1_000_000)]) == [data[1_234_567:2_234_567]]


ODD_NAMES = [
    "zone=eu west/domain=1/x.wo",
    "topic=a%2Fb/100%/%20",
    "a+b&c=d/e?f#g",
    "ümläut/日本語/🚚",
    "quote'\"/[brackets]{braces}",
    "~tilde/...dots",
    ".hidden/.dray",
    "x" * 240,
    "/".join("deep" for _ in range(100)),
]


@pytest.mark.parametrize("path", ODD_NAMES)
async def test_odd_names_are_kept(store: ObjectStore, path: str) -> None:
    await store.put(path, [b"content"])
    assert bytes(await store.get(path)) == b"content"
    assert (await store.head(path)).path == path
    assert await listed(store, "") == [path]
    assert await listed(store, path.rpartition("/")[0]) == [path]
    await store.delete(path)
    assert await listed(store, "") == []


WRONG_NAMES = ["", "/", "/absolute", "a//b", "a/", "../up", "a/../b", "a/./b", ".", "..", "a\0b", "a\nb"]
WRONG_NAMES += [
    "x" * 256,
    "ü" * 128,
    "/".join("x" * 200 for _ in range(6)),
    "a\\b",
    ".dray-incoming/x",
    ".dray-incoming",
]


@pytest.mark.parametrize("path", WRONG_NAMES)
async def test_wrong_names_are_refused(store: ObjectStore, path: str) -> None:
    for ask in (
        store.put(path, [b"x"]),
        store.put_if_absent(path, [b"x"]),
        store.get(path),
        store.get_ranges(path, [(0, 1)]),
        store.head(path),
        store.delete(path),
    ):
        with pytest.raises(ValueError, match="object path"):
            await ask
    assert await listed(store, "") == []


@pytest.mark.parametrize("prefix", ["/", "../up", "a/../b", "/a", "a//"])
async def test_wrong_prefixes_are_refused(store: ObjectStore, prefix: str) -> None:
    with pytest.raises(ValueError, match="object path"):
        await listed(store, prefix)
