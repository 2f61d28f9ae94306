"""The daily look at mirrored objects: few requests for very many of them, and nothing is gone because a list
was short."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.services.attached_log import AttachedLog
from tests.unit.migration.mirror.mirror_harness import MirrorWorld, SourceLog, mirror

from dray.log.types import LogUnavailable
from dray.migration.entries import segments
from dray.objects.contract import ObjectError, ObjectInfo
from dray.objects.memory import MemoryObjects

OBJECTS = 12


class Requests:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heads: list[str] = []
        self.lists: list[str] = []
        self.left_out: set[str] = set()  # of a list
        self.is_away = False
        head, listed = MemoryObjects.head, MemoryObjects.list

        async def counted_head(objects: MemoryObjects, path: str) -> ObjectInfo:
            self.heads.append(path)
            return await head(objects, path)

        async def counted_list(objects: MemoryObjects, prefix: str) -> AsyncIterator[ObjectInfo]:
            self.lists.append(prefix)
            if self.is_away:
                raise ObjectError("the store is away")
            async for info in listed(objects, prefix):
                if info.path not in self.left_out:
                    yield info

        monkeypatch.setattr(MemoryObjects, "head", counted_head)
        monkeypatch.setattr(MemoryObjects, "list", counted_list)

    def forget(self) -> None:
        self.heads.clear()
        self.lists.clear()


async def mirrored(world: MirrorWorld, log: AttachedLog) -> int:
    stream = await world.classic(log)
    source = SourceLog()
    for number in range(OBJECTS + 1):  # the last is the head, which was written just now
        source.append([b"%d" % number])
        await mirror(log, stream, source)
    return stream


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    monkeypatch.setattr(segments, "WORTH_A_LIST", OBJECTS)
    return Requests(monkeypatch)


async def test_many_mirrored_objects_are_listed_and_not_asked_for_one_by_one(requests: Requests) -> None:
    world = MirrorWorld()
    log = world.log()
    stream = await mirrored(world, log)
    requests.forget()
    finding = await log.entries.audit(stream)
    assert (finding.segments, finding.borrowed, finding.missing) == (OBJECTS, 0, [])
    assert requests.heads == []
    [folder] = requests.lists
    assert all(path.startswith(folder) for path in world.bucket.objects if path.endswith(".wo"))


async def test_few_are_asked_for_as_a_folder_may_be_large(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "WORTH_A_LIST", OBJECTS + 1)
    world = MirrorWorld()
    log = world.log()
    stream = await mirrored(world, log)
    requests.forget()
    assert (await log.entries.audit(stream)).segments == OBJECTS
    assert (len(requests.heads), requests.lists) == (OBJECTS, [])


async def test_what_a_list_lacks_is_asked_for_before_it_counts_as_gone(requests: Requests) -> None:
    world = MirrorWorld()
    log = world.log()
    stream = await mirrored(world, log)
    view = await world.streams().view(stream)
    assert view is not None
    unlisted, gone, changed = sorted(entry.value.path for entry in view.entries)[:3]
    requests.left_out = {unlisted}
    assert (await log.entries.audit(stream)).missing == []
    world.bucket.delete(gone)
    world.bucket.put(changed, b"other bytes", 0)
    requests.forget()
    finding = await log.entries.audit(stream)
    assert sorted(finding.missing) == [gone, changed]
    assert sorted(requests.heads) == [unlisted, gone]
    assert finding.raised_to is None, "what is ours is given up for no such reason"


async def test_a_store_that_does_not_list_concludes_nothing(requests: Requests) -> None:
    world = MirrorWorld()
    log = world.log()
    stream = await mirrored(world, log)
    requests.is_away = True
    with pytest.raises(LogUnavailable, match="the store is away"):
        await log.entries.audit(stream)
