"""Past the page cache: the same bytes, whatever their length and however they come in parts."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from dray.base.runtime import SystemRuntime
from dray.objects import LocalStore
from dray.objects.contract import Buffer, ObjectError
from dray.objects.local.direct import BLOCK, CHUNK, WORTHWHILE, Buffers, read_range
from dray.objects.local.disk import SystemDisk


class CountingDisk(SystemDisk):
    """Counts what goes which way; `has_direct` off is a file system without direct access."""

    def __init__(self, has_direct: bool = True) -> None:
        super().__init__()
        self.has_direct = has_direct
        self.asked = 0
        self.direct = 0
        self.plain = 0
        self.reads = 0

    def read(self, file: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        self.reads += 1
        return super().read(file, buffers, position)

    def write(self, file: int, parts: Sequence[Buffer]) -> int:
        self.plain += 1
        return super().write(file, parts)

    def write_directly(self, file: int, parts: Sequence[Buffer]) -> bool:
        self.asked += 1
        done = self.has_direct and super().write_directly(file, parts)
        self.direct += done
        return done

    def open_directly(self, path: str) -> int | None:
        self.asked += 1
        return super().open_directly(path) if self.has_direct else None


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime()
    yield runtime
    runtime.close()


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
async def store(tmp_path: Path, runtime: SystemRuntime, disk: CountingDisk) -> AsyncIterator[LocalStore]:
    store = await LocalStore.open(tmp_path, runtime, disk)
    yield store
    await store.close()


SIZES = [
    WORTHWHILE,
    WORTHWHILE + 1,
    CHUNK - 1,
    CHUNK,
    CHUNK + 1,
    CHUNK + BLOCK,
    3 * CHUNK + BLOCK - 1,
]


def cut(data: bytes, random: Random) -> list[Buffer]:
    """In parts, some of them empty, some longer than a chunk."""
    places = sorted(random.randrange(len(data) + 1) for _ in range(random.choice([0, 1, 5, 2000])))
    return [
        memoryview(data)[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)
    ]


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_written_directly_is_read_back(
    store: LocalStore, disk: CountingDisk, tmp_path: Path, size: int
) -> None:
    random = Random(size)
    data = random.randbytes(size)
    await store.put("large", cut(data, random))
    assert disk.direct == 1
    assert disk.plain == 0
    assert (tmp_path / "large").read_bytes() == data
    for _ in range(20):
        start = random.randrange(size)
        length = min(size - start, random.choice([1, BLOCK, WORTHWHILE, WORTHWHILE + 7, size]))
        [read] = await store.get_ranges("large", [(start, length)])
        assert read == data[start : start + length]
        read[:1] = b"x"  # its receiver's own
    [whole] = await store.get_ranges("large", [(0, size)])
    assert whole == data


async def test_ranges_beside_each_other_are_read_together(store: LocalStore, disk: CountingDisk) -> None:
    data = os.urandom(4 * WORTHWHILE)
    await store.put("large", [data])
    half = WORTHWHILE // 2
    for ranges in (
        [(0, half), (half, half), (2 * half, half)],
        [(2 * half + 7, half), (0, half), (half, half)],  # in any order
        [(0, WORTHWHILE), (half, WORTHWHILE)],  # one over another
        [(0, WORTHWHILE), (3 * WORTHWHILE, WORTHWHILE)],  # far from each other
        [(0, WORTHWHILE), (WORTHWHILE, 0)],
    ):
        disk.reads = 0
        found = await store.get_ranges("large", ranges)
        assert list(found) == [data[start : start + length] for start, length in ranges]
        assert disk.reads == (1 if ranges[0][1] == half or len(ranges[1:]) == 0 or not ranges[1][1] else 2)
        found[0][:] = bytes(len(found[0]))
        assert found[1] == data[ranges[1][0] : sum(ranges[1])]


async def test_the_page_cache_is_left_alone(store: LocalStore, tmp_path: Path) -> None:
    await store.put("large", [os.urandom(WORTHWHILE)])
    await store.get_ranges("large", [(0, WORTHWHILE)])
    file = os.open(tmp_path / "large", os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):  # it would have to ask the disk
            os.preadv(file, [bytearray(BLOCK)], 0, os.RWF_NOWAIT)
    finally:
        os.close(file)


async def test_small_objects_go_through_the_page_cache(store: LocalStore, disk: CountingDisk) -> None:
    await store.put("small", [bytes(WORTHWHILE - 1)])
    await store.get_ranges("small", [(0, WORTHWHILE - 1)])
    assert disk.asked == 0


async def test_without_direct_access_all_goes_the_usual_way(tmp_path: Path, runtime: SystemRuntime) -> None:
    data = os.urandom(2 * WORTHWHILE)
    disk = CountingDisk(has_direct=False)
    store = await LocalStore.open(tmp_path, runtime, disk)
    for path in ("a", "b"):
        await store.put(path, [data])
        assert await store.get_ranges(path, [(1, WORTHWHILE)]) == [data[1 : 1 + WORTHWHILE]]
    await store.close()
    assert disk.asked == 1  # and not again
    reader = CountingDisk(has_direct=False)
    store = await LocalStore.open(tmp_path, runtime, reader)
    for path in ("a", "b"):
        assert await store.get_ranges(path, [(1, WORTHWHILE)]) == [data[1 : 1 + WORTHWHILE]]
    await store.close()
    assert reader.asked == 1


async def test_direct_access_can_be_switched_off(tmp_path: Path, runtime: SystemRuntime) -> None:
    disk = CountingDisk()
    store = await LocalStore.open(tmp_path, runtime, disk, direct_from=None)
    await store.put("large", [bytes(WORTHWHILE)])
    await store.get_ranges("large", [(0, WORTHWHILE)])
    await store.close()
    assert disk.asked == 0


async def test_a_replaced_or_deleted_object_is_not_read_from_an_old_descriptor(store: LocalStore) -> None:
    old, new = os.urandom(WORTHWHILE), os.urandom(WORTHWHILE)
    await store.put("a", [old])
    await store.get_ranges("a", [(0, WORTHWHILE)])
    await store.put("a", [new])
    assert await store.get_ranges("a", [(0, WORTHWHILE)]) == [new]
    await store.delete("a")
    with pytest.raises(ObjectError, match="no such object"):
        await store.get_ranges("a", [(0, WORTHWHILE)])


def test_a_file_shorter_than_it_should_be_is_an_error() -> None:
    def read(buffers: Sequence[bytearray | memoryview], position: int) -> int:
        return BLOCK if position == 0 else 0

    assert len(read_range(read, 10, 100, bytearray)) == 100
    with pytest.raises(OSError, match="the file ends at 4096"):
        read_range(read, 10, BLOCK, bytearray)


def test_buffers_are_used_again_and_only_a_few_are_kept() -> None:
    buffers = Buffers(size=BLOCK, kept=1)
    with buffers.borrow() as first, buffers.borrow() as second:
        assert first is not second
    with buffers.borrow() as again:
        assert again is second
    assert first.closed


def test_a_fork_has_buffers_of_its_own(tmp_path: Path) -> None:
    """Those of its parent are not there: it would die of touching them."""
    buffers = Buffers(size=BLOCK, kept=1)
    with buffers.borrow() as kept:
        kept[:4] = b"once"
    child = os.fork()
    if not child:
        with buffers.borrow() as own:
            own[:4] = b"mine"
            (tmp_path / "said").write_bytes(own[:4])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "said").read_bytes() == b"mine"
    with buffers.borrow() as again:
        assert again[:4] == b"once"
