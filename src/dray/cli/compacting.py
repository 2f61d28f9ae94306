"""A compactor, from its settings to a signal, or to the end of everything there is to compact."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from dray.cli.catalogs import make_tables
from dray.cli.failures import Failure
from dray.cli.notify import tell_manager
from dray.cli.output import about_size
from dray.cli.pipeline import (
    Pipeline,
    compaction_settings,
    open_pipeline,
    packages_missing,
)
from dray.cli.process import StopSignals
from dray.cli.serving import log_format
from dray.cli.stores import NoCluster, Stores, open_stores
from dray.compaction.cycle import Compactor
from dray.compaction.cycle import Stores as CompactedStores
from dray.compaction.model import UnitWriter
from dray.compaction.spark.java import SparkUnavailable
from dray.compaction.spark.session import Session, SparkDied, SparkSettings, open_session
from dray.compaction.spark.worker import StoreAddress
from dray.compaction.spark.writer import SparkJobFailed, SparkUnitWriter
from dray.compaction.summary import CompactionObserver, CycleSummary, Phase
from dray.config import Settings
from dray.runtime import Runtime, SystemRuntime
from dray.telemetry import configure_logging

_log = structlog.get_logger(__name__)

_LOOK_FOR_A_CLUSTER_SECONDS = 2.0
_STOP_SECONDS = 5.0

_DOING = {
    Phase.PLAN: "planning",
    Phase.WRITE: "writing files",
    Phase.COMMIT: "committing tables",
    Phase.SWAP: "swapping the index",
    Phase.RETAIN: "retention",
    Phase.COLLECT: "collecting garbage",
}


def compact(settings: Settings, *, once: bool) -> None:
    missing = packages_missing()
    if missing is not None:
        raise Failure(f"the compactor cannot run: {missing}")
    with asyncio.Runner() as runner:
        runner.run(_run(settings, once=once))


async def _run(settings: Settings, *, once: bool) -> None:
    runtime = SystemRuntime()
    configure_logging(log_format(settings), settings.logging.level, runtime, fields={"process": "compactor"})
    for chatty in ("pyiceberg", "py4j"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    signals = StopSignals(asyncio.get_running_loop())
    working = asyncio.ensure_future(_work(settings, runtime, once=once))
    stopping = asyncio.ensure_future(signals.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await _let_go(working)
        else:
            await working
    finally:
        stopping.cancel()
        runtime.close()


async def _let_go(working: asyncio.Future[None]) -> None:
    """Stop at any point: whoever comes next carries on where this one was. What takes long, a Spark that is
    only just starting, is not waited for; its JVM ends with this process."""
    working.cancel()
    await asyncio.wait({working}, timeout=_STOP_SECONDS)
    if not working.done():
        _log.info("stopped in the middle of something; the next compactor carries on")
        os._exit(0)


async def _work(settings: Settings, runtime: SystemRuntime, *, once: bool) -> None:
    stores = await open_stores(settings, runtime)
    try:
        if settings.iceberg.enabled:
            make_tables(settings, "", runtime)  # settings that do not fit together are refused at once
        tell_manager(READY="1", STATUS="the compactor works")
        pipeline = await _find_cluster(settings, runtime, stores, wait=not once)
        with ExitStack() as stack:
            writer = await _open_writer(settings, runtime, stack)
            shown = stack.enter_context(_Shown(logs=not once and not sys.stderr.isatty()))
            compactor = Compactor(
                CompactedStores(pipeline.streams, stores.objects),
                runtime,
                writer,
                pipeline.tables,
                pipeline.topics,
                compaction_settings(settings),
                shown,
            )
            try:
                if once:
                    _report(await compactor.run_cycle(everything=True))
                else:
                    await compactor.run(asyncio.Event())
            except (SparkDied, SparkJobFailed) as error:
                raise Failure(f"{error}; what was under way is carried on by the next compactor") from error
    finally:
        await stores.close()


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
    spark = settings.spark
    log = Path(settings.data_dir) / "spark.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    wanted = SparkSettings(spark.master, spark.driver_memory, spark.conf, str(log))
    try:
        session = await runtime.in_thread(open_session, wanted)
    except SparkUnavailable as error:
        raise Failure(str(error)) from error
    stack.callback(_stop, session)
    secrets = {name: secret.get_secret_value() for name, secret in settings.objects.secrets.items()}
    address = StoreAddress(_absolute(settings.objects_url), settings.objects.options, secrets)
    _log.info("Spark is warm", master=spark.master)
    return SparkUnitWriter(session, address, runtime)


def _stop(session: Session) -> None:
    with suppress(SparkDied):  # then there is nothing to stop
        session.stop()


def _absolute(url: str) -> str:
    """Workers may run in another directory."""
    if not url.startswith("file:"):
        return url
    return f"file:{Path(url.removeprefix('file:').removeprefix('//')).absolute()}"


class _Shown(CompactionObserver):
    """Progress bars on a terminal, and otherwise a line in the log for every cycle that did something."""

    def __init__(self, *, logs: bool) -> None:
        self._logs = logs
        self._progress = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=logs or not sys.stderr.isatty(),
        )
        self._bars: dict[Phase, TaskID] = {}

    def __enter__(self) -> _Shown:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def progress(self, phase: Phase, done: int, total: int) -> None:
        if phase not in self._bars:
            self._bars[phase] = self._progress.add_task(_DOING[phase], total=total)
        self._progress.update(self._bars[phase], completed=done, total=total)

    def finished(self, summary: CycleSummary) -> None:
        for bar in self._bars.values():
            self._progress.remove_task(bar)
        self._bars.clear()
        if self._did_something(summary):
            _log.info("compaction cycle", **_figures(summary))

    @staticmethod
    def _did_something(summary: CycleSummary) -> bool:
        return bool(summary.finished or summary.raised or summary.files_deleted or summary.troubles)


def _figures(summary: CycleSummary) -> dict[str, int | float | str]:
    return {
        "files": summary.files,
        "records": summary.records,
        "input_bytes": summary.input_bytes,
        "output_bytes": summary.output_bytes,
        "commits": summary.commits,
        "jobs": summary.finished,
        "starts_raised": summary.raised,
        "files_deleted": summary.files_deleted,
        "troubles": len(summary.troubles),
        "seconds": round(summary.seconds, 1),
    }


def _report(summary: CycleSummary) -> None:
    """For people, at the end of `--once`; an exit code that cron understands."""
    console = Console(highlight=False)
    rate = summary.input_bytes / 1e6 / summary.seconds if summary.seconds else 0.0
    console.print(
        f"compacted {summary.records:,} records into {summary.files} files: "
        f"{about_size(summary.input_bytes)} became {about_size(summary.output_bytes)} "
        f"in {summary.seconds:.1f} s ({rate:,.1f} MB/s)"
    )
    console.print(
        f"{summary.commits} table commits, {summary.raised} starts raised by retention, "
        f"{summary.files_deleted} files deleted, {summary.files_pending} wait out their grace time"
    )
    if summary.troubles:
        for trouble in summary.troubles:
            where = trouble.topic if trouble.partition < 0 else f"{trouble.topic}-{trouble.partition}"
            print(f"drayd: {where}: {trouble.reason}", file=sys.stderr)
        raise Failure(f"{len(summary.troubles)} of it did not go well, see above; the rest is done")
