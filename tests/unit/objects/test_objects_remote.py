"""What the remote engine adds to `obstore`: pieces, requests, errors. The contract has its own suite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import GenericError, PreconditionError
from obstore.store import MemoryStore

from dray.base.runtime import SystemRuntime
from dray.objects import ObjectError, ObjectExists, ObjectMissing
from dray.objects.contract import Buffer
from dray.objects.remote.failures import RemoteFailure
from dray.objects.remote.store import TRIALS, RemoteSettings, RemoteStore, _pieces, check_access


class WatchedStore:
    """An obstore memory store that notes what it is asked, and fails when told to."""

    def __init__(self) -> None:
        self._store = MemoryStore()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.failure: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.asked.append((name, options))
            if self.failure is not None:
                raise self.failure
            return getattr(self._store, name)(*arguments, **options)

        return call


@pytest.fixture
def watched() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
def store(watched: WatchedStore) -> Iterator[RemoteStore]:
    runtime = SystemRuntime()
    settings = RemoteSettings(multipart_threshold=1000, part_size=300, coalesce=50)
    yield RemoteStore(watched, runtime, settings)  # type: ignore[arg-type]
    runtime.close()


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 30))
def test_pieces_are_the_parts_cut_anew(parts: list[Buffer], size: int) -> None:
    pieces = list(_pieces(parts, size))
    assert b"".join(pieces) == b"".join(parts)
    assert all(len(piece) == size for piece in pieces[:-1])
    assert all(0 < len(piece) <= size for piece in pieces)


async def test_only_large_objects_go_up_in_parts(store: RemoteStore, watched: WatchedStore) -> None:
    await store.put("small", [b"x" * 500, b"y" * 500])
    await store.put("large", [b"x" * 500, b"y" * 501])
    await store.put_if_absent("conditional", [b"x" * 5000])
    (_, small), (_, large), (_, conditional) = watched.asked
    assert small["use_multipart"] is False
    assert (large["use_multipart"], large["chunk_size"]) == (True, 300)
    assert (conditional["use_multipart"], conditional["mode"]) == (False, "create")


async def test_near_ranges_are_one_request(store: RemoteStore, watched: WatchedStore) -> None:
    data = bytes(range(250)) * 4
    await store.put("data", [data])
    watched.asked.clear()
    ranges = [(500, 10), (0, 10), (60, 20), (5, 60), (131, 5)]
    read = await store.get_ranges("data", ranges)
    assert [bytes(buffer) for buffer in read] == [data[start : start + length] for start, length in ranges]
    asked = sorted((options["start"], options["length"]) for _, options in watched.asked)
    assert asked == [(0, 80), (131, 5), (500, 10)]


async def test_errors_are_one_line_without_signatures(store: RemoteStore, watched: WatchedStore) -> None:
    watched.failure = GenericError(
        "Generic error: Error performing PUT https://host/x?sv=1&sig=SECRET in 3s\n\nDebug source: SECRET"
    )
    for ask in (store.put("a", [b"x"]), store.get("a"), store.head("a"), store.delete("a")):
        with pytest.raises(ObjectError, match=r"a: .*https://host/x\?\.\.\. in 3s$") as caught:
            await ask
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


async def test_a_precondition_that_fails_is_an_object_that_exists(
    store: RemoteStore, watched: WatchedStore
) -> None:
    watched.failure = PreconditionError("412")
    with pytest.raises(ObjectExists):
        await store.put_if_absent("a", [b"x"])


async def test_a_failed_read_is_not_taken_for_a_range_outside(
    store: RemoteStore, watched: WatchedStore
) -> None:
    await store.put("a", [b"0123456789"])
    watched.failure = GenericError("connection reset")
    with pytest.raises(ObjectError, match="connection reset"):
        await store.get_ranges("a", [(0, 20)])


async def test_an_empty_bytes_read_of_a_missing_object_is_still_missing(store: RemoteStore) -> None:
    with pytest.raises(ObjectError, match="no such object"):
        await store.get_ranges("nothing", [(0, 0)])


async def test_a_large_object_is_joined_off_the_loop(
    watched: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = SystemRuntime()
    store = RemoteStore(watched, runtime)  # type: ignore[arg-type]
    sent: list[int] = []

    async def in_thread(function: Any, parts: list[bytes]) -> Any:
        sent.append(sum(map(len, parts)))
        return function(parts)

    monkeypatch.setattr(runtime, "in_thread", in_thread)
    await store.put("small", [b"x" * 1000])
    await store.put("large", [b"x" * 700_000, b"y" * 700_000])
    assert sent == [1_400_000]
    assert bytes(await store.get("large")) == b"x" * 700_000 + b"y" * 700_000
    runtime.close()


class HeadsOnly:
    """Says 404 to every HEAD, without a body, as a store says it that has no such bucket, too."""

    def __init__(self, get: Any) -> None:
        self._get = get

    async def head_async(self, path: str) -> Any:
        raise FileNotFoundError("Server returned non-2xx status code: 404 Not Found: ")

    async def get_async(self, path: str) -> Any:
        return await self._get(path)


async def test_a_404_to_head_is_asked_once_more_by_a_request_whose_answer_has_a_body() -> None:
    runtime = SystemRuntime()
    there = MemoryStore()
    await there.put_async("a", b"four")

    async def no_bucket(_: str) -> Any:
        code = "<Error><Code>NoSuchBucket</Code></Error>"
        raise FileNotFoundError(f"Server returned non-2xx status code: 404 Not Found: {code}")

    store = RemoteStore(HeadsOnly(no_bucket), runtime)  # type: ignore[arg-type]
    with pytest.raises(RemoteFailure) as caught:
        await store.head("a")
    assert caught.value.code == "NoSuchBucket"
    store = RemoteStore(HeadsOnly(there.get_async), runtime)  # type: ignore[arg-type]
    assert (await store.head("a")).size == 4, "the 404 was of a moment"
    with pytest.raises(ObjectMissing):
        await store.head("b")
    runtime.close()


class OthersStart(WatchedStore):
    """Between a process's put and its look at it, another one is tried from beginning to end."""

    def __init__(self, runtime: SystemRuntime) -> None:
        super().__init__()
        self.other = RemoteStore(self, runtime)  # type: ignore[arg-type]
        self.runtime = runtime
        self.others = 1

    async def head_async(self, path: str) -> Any:
        if self.others:
            self.others -= 1
            await check_access(self.other, self.runtime)
        return await self._store.head_async(path)


async def test_of_two_processes_that_start_at_once_neither_takes_the_others_trial() -> None:
    runtime = SystemRuntime()
    inner = OthersStart(runtime)
    await check_access(RemoteStore(inner, runtime), runtime)  # type: ignore[arg-type]
    assert not inner.others
    assert [info async for info in inner.other.list("")] == []
    runtime.close()


async def test_what_a_process_that_died_left_of_its_trial_is_cleared_after_an_hour(
    store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = SystemRuntime()
    await store.put(f"{TRIALS}/left", [b"x"])
    await check_access(store, runtime)
    assert [info.path async for info in store.list(TRIALS)] == [f"{TRIALS}/left"], "another may need it"
    monkeypatch.setattr("dray.objects.remote.store._LEFT_OVER_MS", -60_000)
    await check_access(store, runtime)
    assert [info async for info in store.list(TRIALS)] == []
    runtime.close()


# --- what is believed


class ETagged(WatchedStore):
    """Says these ETags, one after the other."""

    def __init__(self, *etags: str) -> None:
        super().__init__()
        self._etags = iter(etags)

    async def put_async(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        await self._store.put_async(*arguments, **options)
        return {"e_tag": next(self._etags), "version": None}


PAGE = '"5f3-18c"'


@pytest.mark.parametrize(
    "etag", ['"0x8DCAB12CD34EF56"', "0x8DCAB12CD34EF56", '"9e107d9d372bb6826bd81d3542a419d6"']
)
async def test_a_put_is_believed_with_an_etag_like_the_first_one(etag: str) -> None:
    """Of Azure it is no digest, and of a form that no server of pages has."""
    runtime = SystemRuntime()
    store = RemoteStore(ETagged(etag, etag, PAGE, "0x12"), runtime)  # type: ignore[arg-type]
    await store.try_out("trial", b"x")
    await store.put("a", [b"x"])
    for _ in range(2):
        with pytest.raises(ObjectError, match="the answer is not the store's"):
            await store.put("b", [b"x"])
    runtime.close()


async def test_of_a_store_with_etags_of_its_own_any_is_believed() -> None:
    runtime = SystemRuntime()
    store = RemoteStore(ETagged("7", PAGE), runtime)  # type: ignore[arg-type]
    await store.try_out("trial", b"x")
    await store.put("a", [b"x"])
    runtime.close()
