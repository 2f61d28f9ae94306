"""A compactor, from its settings to a signal, or to the end of everything there is to compact."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TextIO, cast

import structlog

from dray.base.runtime import Runtime, SystemRuntime
from dray.base.telemetry import ProcessMetrics, configure_logging
from dray.broker.cluster import TallyKeeper
from dray.broker.server.tls.listener import CertificateUnusable
from dray.broker.topics.compaction_requests import CompactionRequests
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.foreign_stores import foreign_addresses
from dray.daemons.assembly.http_security import HttpSecurity, TokensUnusable
from dray.daemons.assembly.log_format import log_format
from dray.daemons.assembly.notify import VARIABLE, tell_manager
from dray.daemons.assembly.parts import clock_guard
from dray.daemons.assembly.process import StopSignals, local_machine, settle_garbage_collector
from dray.daemons.assembly.reread import Rereading
from dray.daemons.assembly.settings import compaction_settings, log_settings, spark_settings
from dray.daemons.assembly.store_settings import object_secrets
from dray.daemons.assembly.stores import NoCluster, Stores, open_stores
from dray.daemons.compactor.catalogs import make_tables
from dray.daemons.compactor.health import CompactorHttp, CycleHealth
from dray.daemons.compactor.metrics import CompactorMetrics
from dray.daemons.compactor.pipeline import Pipeline, open_pipeline
from dray.daemons.compactor.progress import CompactorProgress, StandardError, report
from dray.daemons.config import Settings
from dray.daemons.recovery.ownership import claimed_bucket, hold_writes
from dray.migration.entries.rows import ForeignAddresses
from dray.tables.compaction.cycle import Compactor
from dray.tables.compaction.cycle import CompactorStores as CompactedStores
from dray.tables.compaction.model import UnitWriter, WriterGone
from dray.tables.compaction.packages import SparkUnavailable, missing_packages
from dray.tables.compaction.planning.shares import TopicShare
from dray.tables.compaction.spark.session import SparkDied, SparkProcess, open_session
from dray.tables.compaction.spark.worker import StoreAddress
from dray.tables.compaction.spark.writer import SparkJobFailed, SparkUnitWriter
from dray.tables.compaction.summary import CompactionObserver, Observers

_log = structlog.get_logger(__name__)

_LOOK_FOR_A_CLUSTER_SECONDS = 2.0
_STOP_SECONDS = 5.0
_CLOSE_SECONDS = 15.0
"""Some thread may wait for a catalog that never answers."""
_CARRIED_ON = "what was under way is carried on by the next compactor"


class _WriterEnded(Failure):
    """Some thread may still wait for what does not answer, and would hold up the end of the process."""


def compact(settings: Settings, *, once: bool, again: Callable[[], Settings]) -> None:
    missing = missing_packages()
    if missing is not None:
        raise Failure(f"the compactor cannot run: {missing}")
    with asyncio.Runner() as runner:
        runner.run(_run(settings, once=once, again=again))


async def _run(settings: Settings, *, once: bool, again: Callable[[], Settings]) -> None:
    runtime = SystemRuntime()
    fields = {"process": "compactor"}
    configure_logging(
        log_format(settings), settings.logging.level, runtime, cast(TextIO, StandardError()), fields
    )
    for chatty in ("pyiceberg", "py4j"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    signals = StopSignals(asyncio.get_running_loop(), Rereading(runtime, again).ask)
    working = asyncio.ensure_future(_work(settings, runtime, once=once))
    stopping = asyncio.ensure_future(signals.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await _stop_working(working)
        else:
            await working
    except Failure as failure:
        if not isinstance(failure, _WriterEnded) and runtime.closes(_CLOSE_SECONDS):
            raise
        print(f"drayd: {failure}", file=sys.stderr, flush=True)
        os._exit(failure.code)
    finally:
        stopping.cancel()
        if not runtime.closes(_CLOSE_SECONDS):
            os._exit(0 if sys.exc_info()[0] is None else 1)


def _has_terminal() -> bool:
    """Has this process a terminal to itself? A child of `drayd up` has not: brokers write to the same one."""
    return sys.stderr.isatty() and VARIABLE not in os.environ


async def _stop_working(working: asyncio.Future[None]) -> None:
    """Stop at any point: the next compactor carries on from there. Work that takes long to stop, such as a
    Spark that is only just starting, is not waited for; its JVM ends with this process."""
    working.cancel()
    await asyncio.wait({working}, timeout=_STOP_SECONDS)
    if not working.done():
        _log.info("stopped in the middle of something; the next compactor carries on")
        os._exit(0)


async def _work(settings: Settings, runtime: SystemRuntime, *, once: bool) -> None:
    metrics = ProcessMetrics()
    opened = await open_stores(settings, runtime, waits=not once)
    http = CompactorHttp(opened, runtime, metrics)
    guard: TallyKeeper | None = None
    try:
        if settings.iceberg.enabled:
            make_tables(settings, "", runtime)  # settings that do not fit together are refused at once
        if settings.compaction.http is not None:
            try:
                security = HttpSecurity(settings, runtime)
            except (TokensUnusable, CertificateUnusable) as error:
                raise Failure(str(error)) from error
            await http.start(settings.compaction.http, security)
        tell_manager(READY="1", STATUS="the compactor works")
        pipeline = await _find_cluster(settings, runtime, http.stores, wait=not once)
        guard = await claimed_bucket(
            http.stores, pipeline.cluster, runtime, settings.tally_interval, waits=not once
        )
        keeper = guard
        hold_writes(http.stores, keeper)
        metrics.metadata_held.follow(lambda: float(keeper.held() is not None))
        guard.start()
        with ExitStack() as stack:
            shown = stack.enter_context(
                CompactorProgress(runtime.monotonic, bars=_has_terminal(), eager=once)
            )
            with shown.waiting("looking whether another cluster uses this bucket"):
                await _be_the_cluster(guard, runtime, once=once)
            counted = CompactorMetrics(metrics, runtime.wall_ms)
            cycles = CycleHealth(runtime.monotonic, settings.compaction.interval)
            observers = Observers(shown, counted, http.collection, cycles)
            with shown.waiting("Spark is starting"):
                writer = await _open_writer(settings, runtime, stack, observers)
            http.cycles = cycles
            clocks = http.clocks = clock_guard(
                settings,
                http.stores.metadata,
                http.stores.objects,
                runtime,
                local_machine().name,
                http.description(),
            )
            clocks.start()
            compactor = Compactor(
                CompactedStores(pipeline.streams, http.stores.objects, guard),
                runtime,
                writer,
                pipeline.tables,
                pipeline.topics,
                compaction_settings(settings),
                log_settings(settings),
                observers,
                expiry=clocks,
                requests=CompactionRequests(http.stores.metadata, runtime),
                share=lambda: TopicShare(clocks.process, clocks.peers()),
            )
            try:
                if once:
                    await clocks.until_certain()  # or nothing would expire in the only cycle
                    report(await compactor.run_cycle(everything=True))
                else:
                    await compactor.run(asyncio.Event())
            except WriterGone as error:
                raise _WriterEnded(f"{error}; {_CARRIED_ON}") from error
            except SparkJobFailed as error:
                raise Failure(f"{error}; {_CARRIED_ON}") from error
            finally:
                await clocks.stop()
    finally:
        if guard is not None:
            await guard.stop()
        await http.stop()
        await opened.close()


async def _be_the_cluster(guard: TallyKeeper, runtime: Runtime, *, once: bool) -> None:
    """A copy of the metadata must not commit to the cluster's tables, nor delete what was compacted."""
    while (reason := await guard()) is not None:
        if once:
            raise Failure(reason)
        _log.warning("nothing is compacted", reason=reason)
        await runtime.sleep(_LOOK_FOR_A_CLUSTER_SECONDS)


async def _find_cluster(settings: Settings, runtime: Runtime, stores: Stores, *, wait: bool) -> Pipeline:
    """A compactor may be started before the first broker was."""
    said = False
    while True:
        try:
            return await open_pipeline(settings, runtime, stores)
        except NoCluster:
            if not wait:
                raise
            if not said:
                _log.info("waiting for the first broker of the cluster")
                said = True
        await runtime.sleep(_LOOK_FOR_A_CLUSTER_SECONDS)


async def _open_writer(
    settings: Settings, runtime: Runtime, stack: ExitStack, observer: CompactionObserver
) -> UnitWriter:
    wanted = spark_settings(settings)
    Path(wanted.log_path).parent.mkdir(parents=True, exist_ok=True)
    try:
        session = await runtime.in_thread(open_session, wanted)
    except SparkUnavailable as error:
        raise Failure(str(error)) from error
    stack.callback(_stop, session)
    objects = settings.objects
    address = StoreAddress(
        _absolute(settings.objects_url),
        objects.options,
        object_secrets(settings),
        ForeignAddresses(foreign_addresses(settings)),
    )
    settle_garbage_collector()  # all that stays is loaded by now
    _log.info("Spark is warm", master=wanted.master.partition(";")[0])  # behind it may be a token
    return SparkUnitWriter(session, address, runtime, settings.spark.patience, observer)


def _stop(session: SparkProcess) -> None:
    with suppress(SparkDied):  # then there is nothing to stop
        session.stop()


def _absolute(url: str) -> str:
    """Workers may run in another directory."""
    if not url.startswith("file:"):
        return url
    return f"file:{Path(url.removeprefix('file:').removeprefix('//')).absolute()}"
