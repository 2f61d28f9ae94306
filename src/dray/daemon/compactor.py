"""A compactor, from its settings to a signal, or to the end of everything there is to compact."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TextIO, cast

import structlog

from dray.compaction.cycle import Compactor
from dray.compaction.cycle import CompactorStores as CompactedStores
from dray.compaction.model import UnitWriter, WriterGone
from dray.compaction.packages import missing_packages
from dray.compaction.spark.java import SparkUnavailable
from dray.compaction.spark.session import SparkDied, SparkProcess, open_session
from dray.compaction.spark.worker import StoreAddress
from dray.compaction.spark.writer import SparkJobFailed, SparkUnitWriter
from dray.compaction.summary import Observers
from dray.config import Settings
from dray.daemon.catalogs import make_tables
from dray.daemon.compactor_cycles import CycleHealth
from dray.daemon.compactor_http import CompactorHttp
from dray.daemon.compactor_progress import CompactorProgress, StandardError, report
from dray.daemon.failures import Failure
from dray.daemon.foreign_stores import foreign_addresses
from dray.daemon.http_security import HttpSecurity, TokensUnusable
from dray.daemon.log_format import log_format
from dray.daemon.metrics import CompactorMetrics
from dray.daemon.notify import VARIABLE, tell_manager
from dray.daemon.ownership import claimed_bucket
from dray.daemon.parts import clock_guard
from dray.daemon.pipeline import Pipeline, open_pipeline
from dray.daemon.process import StopSignals, local_machine
from dray.daemon.settings import compaction_settings, log_settings, spark_settings
from dray.daemon.store_settings import revealed
from dray.daemon.stores import NoCluster, Stores, open_stores
from dray.runtime import Runtime, SystemRuntime
from dray.server.tls import CertificateUnusable
from dray.telemetry import ProcessMetrics, configure_logging
from dray.topics.compaction_requests import CompactionRequests

_log = structlog.get_logger(__name__)

_LOOK_FOR_A_CLUSTER_SECONDS = 2.0
_STOP_SECONDS = 5.0


def compact(settings: Settings, *, once: bool) -> None:
    missing = missing_packages()
    if missing is not None:
        raise Failure(f"the compactor cannot run: {missing}")
    with asyncio.Runner() as runner:
        runner.run(_run(settings, once=once))


async def _run(settings: Settings, *, once: bool) -> None:
    runtime = SystemRuntime()
    fields = {"process": "compactor"}
    configure_logging(
        log_format(settings), settings.logging.level, runtime, cast(TextIO, StandardError()), fields
    )
    for chatty in ("pyiceberg", "py4j"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    signals = StopSignals(asyncio.get_running_loop())
    working = asyncio.ensure_future(_work(settings, runtime, once=once))
    stopping = asyncio.ensure_future(signals.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await _stop_working(working)
        else:
            await working
    finally:
        stopping.cancel()
        runtime.close()


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
    opened = await open_stores(settings, runtime)
    http = CompactorHttp(opened, runtime, metrics)
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
        guard = await claimed_bucket(http.stores, pipeline.cluster, runtime)
        with ExitStack() as stack:
            shown = stack.enter_context(CompactorProgress(bars=_has_terminal(), eager=once))
            with shown.waiting("Spark is starting"):
                writer = await _open_writer(settings, runtime, stack)
            http.cycles = CycleHealth(runtime.monotonic, settings.compaction.interval)
            counted = CompactorMetrics(metrics, runtime.wall_ms, settings.compaction.metrics_topics)
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
                Observers(shown, counted, http.collection, http.cycles),
                expiry=clocks,
                requests=CompactionRequests(http.stores.metadata, runtime),
            )
            try:
                if once:
                    await clocks.settle()  # or nothing would expire in the only cycle
                    report(await compactor.run_cycle(everything=True))
                else:
                    await compactor.run(asyncio.Event())
            except (WriterGone, SparkJobFailed) as error:
                raise Failure(f"{error}; what was under way is carried on by the next compactor") from error
            finally:
                await clocks.stop()
    finally:
        await http.stop()
        await opened.close()


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


async def _open_writer(settings: Settings, runtime: Runtime, stack: ExitStack) -> UnitWriter:
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
        revealed(objects.secrets),
        foreign_addresses(settings),
    )
    _log.info("Spark is warm", master=wanted.master.partition(";")[0])  # behind it may be a token
    return SparkUnitWriter(session, address, runtime)


def _stop(session: SparkProcess) -> None:
    with suppress(SparkDied):  # then there is nothing to stop
        session.stop()


def _absolute(url: str) -> str:
    """Workers may run in another directory."""
    if not url.startswith("file:"):
        return url
    return f"file:{Path(url.removeprefix('file:').removeprefix('//')).absolute()}"
