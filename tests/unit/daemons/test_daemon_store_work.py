"""Ready means that it works: by the last outcomes of real work, and told once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from dray.base.runtime import SystemRuntime
from dray.base.telemetry.metrics import ProcessMetrics
from dray.daemons.assembly.instrumented_stores import InstrumentedMetadataStore, InstrumentedObjectStore
from dray.daemons.assembly.parts import NO_ANSWER_SECONDS, StoreCheck, StoreFails, store_checks
from dray.daemons.assembly.store_work import (
    AGAIN_SECONDS,
    FAILING_SECONDS,
    HANGING_SECONDS,
    QUIET_SECONDS,
    STALE_SECONDS,
    StoreWork,
)
from dray.metadata import keys
from dray.metadata.contract import ANY, Delete, Put, Unavailable, WriteTooLarge
from dray.metadata.memory import MemoryStore
from dray.objects.contract import Buffer, ObjectError, ObjectMissing
from dray.objects.memory import MemoryObjects
from dray.objects.remote.failures import RemoteFailure

DENIED = RemoteFailure("cannot put a: 400 Bad Request (KMS.DisabledException)", 400, "KMS.DisabledException")


class ScriptedClock(SystemRuntime):
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class FailingObjects(MemoryObjects):
    """Calls of each operation raise what the test says, and are counted; or wait for ever."""

    def __init__(self, runtime: SystemRuntime) -> None:
        super().__init__(runtime)
        self.put_error: Exception | None = None
        self.get_error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.put_gate = asyncio.Event()
        self.put_gate.set()
        self.asked = 0

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await self.put_gate.wait()
        if self.put_error is not None:
            raise self.put_error
        await super().put(path, parts)

    async def get(self, path: str) -> Buffer:
        self.asked += 1
        await self.gate.wait()
        if self.get_error is not None:
            raise self.get_error
        return await super().get(path)


class FailingMetadata(MemoryStore):
    error: Exception | None = None

    async def write(self, domain, operations):
        if self.error is not None and any(
            isinstance(each, Put) and each.expect == ANY for each in operations
        ):
            raise self.error  # as a full etcd: what is put under a condition costs it nothing
        return await super().write(domain, operations)


class World:
    def __init__(self) -> None:
        self.clock = ScriptedClock()
        self.failing = FailingObjects(self.clock)
        self.failing_metadata = FailingMetadata(self.clock)
        metrics = ProcessMetrics()
        self.objects = InstrumentedObjectStore(self.failing, metrics, self.clock)
        self.metadata = InstrumentedMetadataStore(self.failing_metadata, metrics, self.clock)
        self.checks = store_checks(self.metadata, self.objects, self.clock)

    async def put(self, error: Exception | None = None) -> None:
        self.failing.put_error = error
        try:
            await self.objects.put("wal/a", [b"-"])
        except ObjectError:
            assert error is not None

    async def write(self, error: Exception | None = None) -> None:
        self.failing_metadata.error = error
        try:
            await self.metadata.write(0, [Put("a", b"-")])
        except (Unavailable, WriteTooLarge):
            assert error is not None

    async def fault(self, name: str = "objects") -> str | None:
        try:
            await self.checks[name]()
        except StoreFails as error:
            return str(error)
        return None

    async def fail_for(self, seconds: float, error: Exception) -> None:
        """A try each second, all of which fail."""
        for _ in range(int(seconds) + 1):
            await self.put(error)
            self.clock.now += 1


async def test_uploads_that_all_fail_make_a_process_unready_with_the_reason_of_the_store() -> None:
    """The probe is a read, and reads work."""
    world = World()
    await world.put()
    assert await world.fault() is None
    await world.fail_for(FAILING_SECONDS, DENIED)
    fault = await world.fault()
    assert fault is not None
    assert "uploads fail since" in fault
    assert "check the key" in fault
    assert "KMS.DisabledException" in fault
    await world.put()
    assert await world.fault() is None, "well with the first that succeeds"


async def test_one_upload_that_succeeds_among_many_that_fail_keeps_a_process_ready() -> None:
    world = World()
    for _ in range(30):
        await world.fail_for(FAILING_SECONDS - 2, DENIED)
        assert await world.fault() is None
        await world.put()


async def test_a_single_failure_is_no_outage_however_long_ago() -> None:
    world = World()
    await world.put(DENIED)
    world.clock.now += 10 * FAILING_SECONDS
    assert await world.fault() is None


async def test_what_failed_long_ago_and_was_not_tried_since_says_nothing_of_now() -> None:
    """Clients may have gone elsewhere: nobody would show that the store is well again."""
    world = World()
    await world.fail_for(FAILING_SECONDS, DENIED)
    assert await world.fault() is not None
    world.clock.now += STALE_SECONDS
    assert await world.fault() is None


async def test_answers_are_no_failures() -> None:
    """An object that is lost is asked for again and again: the store is well all the same."""
    world = World()
    for _ in range(20):
        with pytest.raises(ObjectMissing):
            await world.objects.get("wal/lost")
        await world.write(WriteTooLarge("no"))
        world.clock.now += 1
    assert await world.fault() is None
    assert await world.fault("metadata") is None


async def test_writes_of_metadata_that_fail_make_a_process_unready_though_reads_work() -> None:
    world = World()
    full = Unavailable("database space exceeded: compact and defragment it")
    for _ in range(int(FAILING_SECONDS) + 1):
        await world.write(full)
        world.clock.now += 1
    fault = await world.fault("metadata")
    assert fault is not None
    assert "database space exceeded: compact and defragment it" in fault
    await world.metadata.write(0, [Delete("a")])  # a full store takes that
    await world.metadata.write(0, [Put(keys.TALLY, b"-", 1)])  # and etcd this
    assert await world.fault("metadata") is not None
    await world.write()
    assert await world.fault("metadata") is None


async def test_commits_of_several_domains_fail_together_or_not_at_all() -> None:
    world = World()
    world.failing_metadata.error = Unavailable("full")
    for _ in range(int(FAILING_SECONDS) + 1):
        await world.metadata.write_domains([(0, [Put("a", b"-")])])
        world.clock.now += 1
    assert await world.fault("metadata") is not None
    world.failing_metadata.error = None
    await world.metadata.write_domains([(0, [Put("a", b"-")])])
    assert await world.fault("metadata") is None


async def test_in_good_weather_a_look_costs_one_question_that_was_asked_ever_since() -> None:
    world = World()
    for _ in range(3):
        assert await world.fault() is None
    assert world.failing.asked == 3


async def test_a_bucket_that_is_gone_is_told_as_such() -> None:
    world = World()
    world.failing.get_error = RemoteFailure("cannot get dray-probe: 404 (NoSuchBucket)", 404, "NoSuchBucket")
    fault = await world.fault()
    assert fault is not None
    assert fault.startswith("the bucket does not exist: create it, or correct objects.url")


async def test_a_question_that_is_refused_proves_nothing_while_real_work_succeeds() -> None:
    world = World()
    world.failing.get_error = RemoteFailure("cannot get dray-probe: 503", 503, "SlowDown")
    await world.put()
    assert await world.fault() is None
    world.clock.now += FAILING_SECONDS + 1
    assert "the store is overloaded" in (await world.fault() or "")


async def test_a_slow_store_is_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that was asked long ago is not asked again, and an answer that comes late counts."""
    monkeypatch.setattr("dray.daemons.assembly.parts.ASK_SECONDS", 0.0)
    world = World()
    world.failing.gate.clear()
    assert await world.fault() is None
    world.clock.now += NO_ANSWER_SECONDS - 1
    assert await world.fault() is None, "no answer yet"
    assert world.failing.asked == 1
    world.clock.now += 1
    assert await world.fault() == "no answer for 10 s"
    await world.put()
    assert await world.fault() is None, "it does other work"
    world.clock.now += NO_ANSWER_SECONDS
    assert await world.fault() == "no answer for 10 s"
    world.failing.gate.set()
    await asyncio.sleep(0)
    monkeypatch.setattr("dray.daemons.assembly.parts.ASK_SECONDS", 60.0)
    assert await world.fault() is None


async def test_puts_that_hang_while_reads_go_well_make_a_process_unready() -> None:
    """Long before the client gives them up."""
    world = World()
    await world.put()
    world.failing.put_gate.clear()
    hanging = asyncio.create_task(world.put())
    await asyncio.sleep(0)
    world.clock.now += HANGING_SECONDS - 1
    assert await world.fault() is None
    world.clock.now += 2
    with capture_logs() as lines:
        fault = await world.fault()
    assert fault is not None
    assert fault.startswith("uploads fail since")
    assert fault.endswith("no answer for 21 s")
    assert [line["event"] for line in lines] == ["a store fails"]
    world.clock.now += 2 * STALE_SECONDS
    assert await world.fault() is not None, "it hangs still"
    world.failing.put_gate.set()
    await hanging
    assert await world.fault() is None


async def test_a_large_put_may_take_its_time_and_one_that_hangs_among_others_is_no_outage() -> None:
    world = World()
    world.failing.put_gate.clear()
    large = asyncio.create_task(world.objects.put("wal/large", [bytes(16 << 20)]))
    await asyncio.sleep(0)
    world.clock.now += HANGING_SECONDS
    assert await world.fault() is None
    world.clock.now += 15
    assert await world.fault() is None
    world.objects.uploads.succeeded(world.clock.now)  # another one
    world.clock.now += HANGING_SECONDS - 1
    assert await world.fault() is None
    large.cancel()
    await asyncio.wait({large})
    world.clock.now += 10 * HANGING_SECONDS
    assert await world.fault() is None, "nobody waits for it any more"


async def test_a_question_that_fails_in_an_unforeseen_way_is_asked_again() -> None:
    world = World()
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise ValueError("?")

    check = StoreCheck("objects", world.clock, ask, [world.objects.uploads])
    await check()
    await check()
    assert asked == 2


# --- what is told


def work(clock: ScriptedClock) -> StoreWork:
    found = StoreWork("objects", "uploads", clock)
    found.meanwhile = lambda: "small appends are carried"
    return found


def test_an_outage_is_told_once_then_each_minute_and_when_it_is_over() -> None:
    """However many requests fail: here a thousand a second, for three minutes."""
    clock = ScriptedClock()
    uploads = work(clock)
    uploads.succeeded(clock.now)
    with capture_logs() as lines:
        for _ in range(180):
            for _ in range(1000):
                uploads.failed(DENIED, clock.now)
            clock.now += 1
        for _ in range(1000):
            uploads.succeeded(clock.now)
    begun, *still, over = lines
    assert (begun["event"], begun["failures"]) == ("a store fails", 1)
    assert begun["error"] == f"{DENIED.advice} ({DENIED})"
    assert begun["meanwhile"] == "small appends are carried"
    assert begun["since"].endswith("Z")
    assert [line["failures"] for line in still] == [60_001, 120_001]
    assert (over["event"], over["failures"]) == ("a store works again", 180_000)
    assert over["failed_since"] == begun["since"]


async def test_what_was_asked_before_a_success_and_fails_after_it_begins_no_outage() -> None:
    """A request that was stuck in the outage that is over."""
    world = World()
    world.failing.put_gate.clear()
    late = asyncio.create_task(world.put(DENIED))
    await asyncio.sleep(0)
    world.clock.now += 1
    world.objects.uploads.succeeded(world.clock.now)
    with capture_logs() as lines:
        world.failing.put_gate.set()
        await late
    assert lines == []


def test_a_store_that_fails_and_works_in_turn_does_not_fill_the_log() -> None:
    clock = ScriptedClock()
    uploads = work(clock)
    with capture_logs() as lines:
        for _ in range(10 * int(QUIET_SECONDS)):
            uploads.failed(DENIED, clock.now)
            uploads.succeeded(clock.now)
            clock.now += 0.1
    assert len(lines) == 2 * QUIET_SECONDS / AGAIN_SECONDS
