from __future__ import annotations

import inspect

import pytest

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics
from dray.daemons.assembly.instrumented_stores import InstrumentedMetadataStore, InstrumentedObjectStore
from dray.metadata import keys
from dray.metadata.contract import MetadataStore, Put, Unavailable
from dray.metadata.memory import MemoryStore
from dray.objects.contract import ObjectError, ObjectInfo, ObjectMissing, ObjectStore
from dray.objects.memory import MemoryObjects


class ScriptedClock(SystemRuntime):
    """A clock that only moves when the store under test says so."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


class SlowStore:
    """Takes two seconds for everything, returns its arguments, and fails when told to."""

    limits = "the limits"

    def __init__(self, clock: ScriptedClock) -> None:
        self.clock = clock
        self.failure: Exception | None = None
        self.closed = False

    async def _work(self, *arguments):
        self.clock.now += 2
        if self.failure is not None:
            raise self.failure
        return arguments

    get = floor = ceiling = scan = write = barrier = session = _work
    put = put_if_absent = head = delete = _work

    async def get_ranges(self, path, ranges):
        self.clock.now += 2
        return [bytearray(length) for _, length in ranges]

    async def with_ranges(self, path, ranges, work):
        return work(await self.get_ranges(path, ranges))

    def watch(self, domain, endings=()):
        return ("watching", domain)

    async def list(self, prefix):
        for number in range(3):
            self.clock.now += 1
            yield ObjectInfo(f"{prefix}/{number}", 1, 1)
        if self.failure is not None:
            raise self.failure

    async def close(self):
        self.closed = True


@pytest.fixture
def parts():
    clock = ScriptedClock()
    return clock, SlowStore(clock), Metrics(process=False)


@pytest.mark.parametrize(
    ("contract", "wrapper"),
    [(MetadataStore, InstrumentedMetadataStore), (ObjectStore, InstrumentedObjectStore)],
)
def test_every_call_of_the_contract_is_there_with_its_parameters(contract, wrapper):
    for name, member in vars(contract).items():
        if not name.startswith("_") and inspect.isfunction(member):
            assert list(inspect.signature(getattr(wrapper, name)).parameters) == list(
                inspect.signature(member).parameters
            )
    assert isinstance(inspect.getattr_static(InstrumentedMetadataStore, "limits"), property)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("get", (1, "k")),
        ("floor", (1, "k", "p")),
        ("ceiling", (1, "k", "p")),
        ("scan", (1, "a", "b", 5)),
        ("write", (1, [])),
        ("barrier", (1,)),
        ("session", (1, 5.0)),
    ],
)
async def test_metadata_calls_are_passed_on_and_timed(parts, operation, arguments):
    clock, inner, metrics = parts
    store = InstrumentedMetadataStore(inner, metrics, clock)
    result = await getattr(store, operation)(*arguments)
    assert operation == "barrier" or result == arguments
    timed = metrics.metadata_seconds.labels(operation)
    assert (sum(timed.counts), timed.total) == (1, 2)
    inner.failure = Unavailable("down")
    with pytest.raises(Unavailable):
        await getattr(store, operation)(*arguments)
    assert sum(timed.counts) == 2
    assert metrics.metadata_failures.labels(operation, "Unavailable").value == 1


async def test_writes_to_several_domains_are_one_wait_and_their_failures_are_counted_each(parts):
    clock, inner, metrics = parts

    async def write_domains(writes):
        clock.now += 2
        return [Unavailable("down") if domain else [] for domain, _ in writes]

    inner.write_domains = write_domains
    store = InstrumentedMetadataStore(inner, metrics, clock)
    found = await store.write_domains([(0, []), (1, []), (2, [])])
    assert [type(each) for each in found] == [list, Unavailable, Unavailable]
    timed = metrics.metadata_seconds.labels("write")
    assert (sum(timed.counts), timed.total) == (1, 2)
    assert metrics.metadata_failures.labels("write", "Unavailable").value == 2


async def test_what_is_not_timed_is_passed_on(parts):
    clock, inner, metrics = parts
    store = InstrumentedMetadataStore(inner, metrics, clock)
    assert store.limits == "the limits"
    assert store.watch(7) == ("watching", 7)
    await store.close()
    assert inner.closed


async def test_object_calls_are_timed_and_their_bytes_counted(parts):
    clock, inner, metrics = parts
    store = InstrumentedObjectStore(inner, metrics, clock)
    await store.put("p", [b"123", memoryview(b"45")])
    await store.put_if_absent("p", [b"6"])
    await store.get_ranges("p", [(0, 10), (20, 30)])
    await store.head("p")
    await store.delete("p")
    for operation in ("put", "put_if_absent", "get_ranges", "head", "delete"):
        assert metrics.object_seconds.labels(operation).total == 2, operation
    assert metrics.object_bytes.labels("write").value == 6
    assert metrics.object_bytes.labels("read").value == 40
    inner.failure = ObjectMissing("gone")
    with pytest.raises(ObjectMissing):
        await store.put("p", [b"123"])
    assert metrics.object_bytes.labels("write").value == 6, "what failed was not written"
    assert metrics.object_failures.labels("put", "ObjectMissing").value == 1


async def test_a_listing_is_timed_without_its_readers_own_work(parts):
    clock, inner, metrics = parts
    store = InstrumentedObjectStore(inner, metrics, clock)
    seen = []
    async for item in store.list("wal"):
        seen.append(item.path)
        clock.now += 50
    assert seen == ["wal/0", "wal/1", "wal/2"]
    assert metrics.object_seconds.labels("list").total == 3
    inner.failure = ObjectMissing("gone")
    with pytest.raises(ObjectMissing):
        [item async for item in store.list("wal")]
    assert metrics.object_failures.labels("list", "ObjectMissing").value == 1


async def test_nothing_is_written_or_deleted_while_it_is_held() -> None:
    """But that a process lives."""
    runtime = SystemRuntime()
    metadata = InstrumentedMetadataStore(MemoryStore(runtime), Metrics(), runtime)
    objects = InstrumentedObjectStore(MemoryObjects(runtime), Metrics(), runtime)
    await objects.put("a/b", [b"c"])
    metadata.held = objects.held = lambda: "it is a copy"
    put, alive = Put(keys.topic("t"), b""), Put(keys.broker(1), b"")
    with pytest.raises(Unavailable, match="it is a copy"):
        await metadata.write(0, [put])
    outcomes = await metadata.write_domains([(0, [alive]), (1, [put])])
    assert [str(outcome) for outcome in outcomes] == ["it is a copy"] * 2
    [outcome] = await metadata.write(0, [alive])
    assert outcome.applied
    assert await metadata.get(0, put.key) is None
    with pytest.raises(ObjectError, match="it is a copy"):
        await objects.delete("a/b")
    assert await objects.get("a/b") == b"c"
    metadata.held = objects.held = lambda: None
    await metadata.write(0, [put])
    await objects.delete("a/b")
    runtime.close()
