"""Parts that several processes have, each made from the settings and the stores: checks of the stores, the
guarded clock, retention, a broker's registration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Final

from dray.cluster import AUTOMATIC, Broker, ClockGuard, ProcessDescription
from dray.config import Settings
from dray.config.kinds import Address
from dray.daemon.process import MachineIdentity
from dray.daemon.settings import advertised_listeners, log_settings
from dray.log import Log, LogObserver
from dray.log.retention import Retention
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import MetadataStore
from dray.objects import ObjectMissing, ObjectStore
from dray.objects.clock import read_clock
from dray.runtime import ExpiryClock, Runtime
from dray.topics.foreign_audit import ForeignAuditLoop
from dray.topics.live import StoredTopics
from dray.topics.retention import RetentionLoop

_PROBE: Final = "dray-probe"  # an object that is never written: asking for it shows that the store answers


def store_checks(metadata: MetadataStore, objects: ObjectStore) -> dict[str, Callable[[], Awaitable[None]]]:
    """For `/readyz`: whether each store answers."""

    async def check_metadata() -> None:
        await metadata.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)

    async def check_objects() -> None:
        try:
            await objects.head(_PROBE)
        except ObjectMissing:
            return

    return {"metadata": check_metadata, "objects": check_objects}


def clock_guard(
    settings: Settings,
    store: MetadataStore,
    objects: ObjectStore,
    runtime: Runtime,
    machine: str,
    process: ProcessDescription | None = None,
    carries: bool = True,
    on_looked: Callable[[bool], None] | None = None,
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
        carries=carries,
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
) -> RetentionLoop:
    """Retention for a broker: every broker has it, since it must not depend on a compactor. Deleted records
    leave the log's caches."""
    knobs = log_settings(settings)
    streams = StreamStore(store, domains, knobs.producer_expiry_ms)
    return RetentionLoop(
        Retention(
            streams, runtime, knobs, log.start_raised, on_deleted=observer.records_deleted, expiry=expiry
        ),
        StoredTopics(store, settings.topics.defaults),
        runtime,
        settings.log.retention_interval,
    )


def foreign_audit_loop(
    settings: Settings, store: MetadataStore, runtime: Runtime, log: Log
) -> ForeignAuditLoop:
    """Whether the segments of attached topics are still there."""
    topics = StoredTopics(store, settings.topics.defaults)
    return ForeignAuditLoop(log.audit_foreign, topics, runtime, settings.foreign.audit_interval)


def clock_doubt(clocks: ClockGuard | None) -> str | None:
    """A note for `/readyz`. While the clock is doubted, the process works, but nothing expires."""
    doubt = None if clocks is None else clocks.doubt()
    return None if doubt is None else f"nothing expires, since this machine's clock is doubted: {doubt}"


def broker_registration(
    settings: Settings,
    machine: MachineIdentity,
    addresses: Mapping[str, tuple[str, int]],
    http_address: tuple[str, int] | None,
) -> Broker:
    """What other processes and clients learn of a broker. `addresses` and `http_address`: where it listens,
    with the ports that it really has."""
    broker = settings.broker
    listeners = advertised_listeners(settings, addresses)
    http = None
    if http_address is not None:
        host, port = http_address
        # Where it listens on every address, the host that clients connect to is the one to name.
        http = str(Address(listeners[0].host if host in ("0.0.0.0", "::") else host, port))
    return Broker(
        AUTOMATIC if broker.id is None else broker.id,
        listeners,
        zone=broker.zone,
        rack=broker.rack,
        build=version("dray"),
        machine=machine.name,
        process=machine.process,
        http=http,
    )
