"""Parts that several processes have, each made from the settings and the stores: checks of the stores, the
guarded clock, retention, a broker's registration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from dray.base.build import build_name
from dray.base.config.kinds import Address
from dray.base.runtime import ExpiryClock, Runtime, run_once
from dray.broker.cluster import AUTOMATIC, Broker, ClockGuard, ProcessDescription
from dray.broker.cluster.levels import NEWEST
from dray.broker.topics.live import StoredTopics
from dray.broker.topics.retention import BrokersPart, RetentionLoop
from dray.daemons.assembly.instrumented_stores import InstrumentedMetadataStore, InstrumentedObjectStore
from dray.daemons.assembly.notify import tell_manager
from dray.daemons.assembly.process import MachineIdentity
from dray.daemons.assembly.settings import advertised_listeners, log_settings
from dray.daemons.assembly.store_work import FAILING_SECONDS, QUIET_SECONDS, StoreWork, reason_of
from dray.daemons.config import Settings
from dray.log import Log, LogObserver
from dray.log.life.retention import Retention, RetentionMemory
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore
from dray.migration.entries.kind import ForeignEntries
from dray.migration.entries.ownership import ForeignAuditLoop
from dray.objects import ObjectError, ObjectStore
from dray.objects.contract import read_clock

_log = structlog.get_logger(__name__)

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 10.0
_MORE_TIME: Final = str(180_000_000)  # microseconds that a service manager is asked for, to start

ASK_SECONDS: Final = 1.5
"""A look at `/readyz` waits so long for a store's answer; the question goes on behind it."""

NO_ANSWER_SECONDS: Final = 10.0
"""A store that is slow is served. One that says nothing for so long, and has done nothing else, is away."""


class StoreFails(Exception):
    """The text says what fails, since when, and why."""


class StoreCheck:
    """Whether a store works, for `/readyz`: by the last outcomes of real work (`store_work.py`), and by one
    small question each time, for a process that has no work at the moment. While real work succeeds, a
    question that was not answered proves nothing."""

    def __init__(
        self, name: str, runtime: Runtime, ask: Callable[[], Awaitable[object]], works: Sequence[StoreWork]
    ) -> None:
        self._name = name
        self._runtime = runtime
        self._ask = ask
        self._works = works
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = 0.0
        self._refusal: Exception | None = None

    async def __call__(self) -> None:
        if self._asking is None or self._asking.done():
            self._asked_at = self._runtime.monotonic()
            self._asking = run_once(self._runtime, f"ask the store of {self._name}", self._question)
        await asyncio.wait({self._asking}, timeout=ASK_SECONDS)
        now = self._runtime.monotonic()
        for work in self._works:
            if (fault := work.fault(now)) is not None:
                raise StoreFails(fault)
        works_at = max(work.succeeded_at for work in self._works)
        if not self._asking.done():
            silent = now - max(self._asked_at, works_at)
            if silent >= NO_ANSWER_SECONDS:
                raise StoreFails(f"no answer for {silent:.0f} s")
        elif self._refusal is not None and works_at < self._asked_at - FAILING_SECONDS:
            raise StoreFails(reason_of(self._refusal))

    async def _question(self) -> None:
        try:
            await self._ask()
            self._refusal = None
        except (ObjectError, MetadataError) as error:
            self._refusal = error


def store_checks(
    metadata: InstrumentedMetadataStore, objects: InstrumentedObjectStore, runtime: Runtime
) -> dict[str, StoreCheck]:
    """For `/readyz`: whether each store works."""

    async def ask_metadata() -> None:
        await metadata.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)

    return {
        "metadata": StoreCheck("metadata", runtime, ask_metadata, [metadata.writes]),
        "objects": StoreCheck(
            "objects", runtime, objects.probe, [objects.uploads, objects.reads, objects.answers]
        ),
    }


async def while_it_passes(work: Callable[[], Awaitable[None]], runtime: Runtime) -> None:
    """Do `work`, again and again while the object store refuses it for what passes by itself: a process that
    starts waits, and says so, also while it hears nothing. Whatever waiting cannot mend is raised."""
    told_at = float("-inf")

    def tell(reason: str) -> None:
        nonlocal told_at
        if runtime.monotonic() - told_at >= QUIET_SECONDS:
            told_at = runtime.monotonic()
            _log.warning("the start waits for the object store", error=reason)
        tell_manager(STATUS=f"waits for the object store: {reason}", EXTEND_TIMEOUT_USEC=_MORE_TIME)

    async def tell_of_silence() -> None:
        while True:
            await runtime.sleep(NO_ANSWER_SECONDS)
            tell("it is slow, or gives no answer")

    pause = _FIRST_PAUSE
    while True:
        telling = run_once(runtime, "tell that the start waits", tell_of_silence)
        try:
            return await work()
        except ObjectError as error:
            if not error.is_passing:
                raise
            reason = reason_of(error)
        finally:
            telling.cancel()
        tell(reason)
        await runtime.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def clock_guard(
    settings: Settings,
    store: MetadataStore,
    objects: ObjectStore,
    runtime: Runtime,
    machine: str,
    process: ProcessDescription | None = None,
    reads: int = NEWEST,
    writes: Callable[[], int] | None = None,
    on_looked: Callable[[], None] | None = None,
) -> ClockGuard:
    """Containers share the clock of their machine, whose boot id is the first part of the name. Local files,
    and memory, have its times too."""
    has_clock = not settings.objects_url.startswith(("file:", "memory:"))
    return ClockGuard(
        store,
        runtime,
        machine=machine.partition("/")[0],
        tolerance=settings.cluster.clock_tolerance,
        read_store_clock=(lambda: read_clock(objects, runtime)) if has_clock else None,
        process=process,
        reads=reads,
        writes=writes,
        on_looked=on_looked,
    )


def retention_loop(
    settings: Settings,
    store: MetadataStore,
    runtime: Runtime,
    domains: int,
    log: Log,
    observer: LogObserver,
    expiry: ExpiryClock,
    looks_after: Callable[[int], bool],
) -> RetentionLoop:
    """Retention for a broker, in the domains that it looks after: it must not depend on a compactor. Deleted
    records leave the log's caches."""
    memory = RetentionMemory()
    knobs = log_settings(settings)
    streams = StreamStore(store, domains, knobs.producer_expiry_ms)
    return RetentionLoop(
        Retention(
            streams,
            runtime,
            knobs,
            log.start_raised,
            on_deleted=observer.records_deleted,
            expiry=expiry,
            memory=memory,
        ),
        StoredTopics(store, settings.topics.defaults),
        runtime,
        settings.log.retention_interval,
        BrokersPart(domains, looks_after, log, memory),
        expiry,
    )


def foreign_audit_loop(
    settings: Settings, store: MetadataStore, runtime: Runtime, entries: ForeignEntries
) -> ForeignAuditLoop:
    """Whether the segments of attached topics are still there."""
    topics = StoredTopics(store, settings.topics.defaults)
    return ForeignAuditLoop(entries.audit, topics, runtime)


def clock_doubt(clocks: ClockGuard | None) -> str | None:
    """A note for `/readyz`. While the clock is doubted, the process works, but nothing expires."""
    doubt = None if clocks is None else clocks.doubt()
    return None if doubt is None else f"nothing expires, since this machine's clock is doubted: {doubt}"


def broker_registration(
    settings: Settings,
    machine: MachineIdentity,
    addresses: Mapping[str, tuple[str, int]],
    http_address: tuple[str, int] | None,
    reads: int = NEWEST,
) -> Broker:
    """The registration from which other processes and clients learn of a broker. `addresses` and
    `http_address`: where it listens, with the ports that it really has."""
    broker = settings.broker
    listeners = advertised_listeners(settings, addresses)
    http = None
    if http_address is not None:
        host, port = http_address
        # If it listens on every address, the host that clients connect to is the one to name.
        http = str(Address(listeners[0].host if host in ("0.0.0.0", "::") else host, port))
    return Broker(
        AUTOMATIC if broker.id is None else broker.id,
        listeners,
        zone=broker.zone,
        rack=broker.rack,
        build=build_name(),
        machine=machine.name,
        process=machine.process,
        http=http,
        reads=reads,
    )
