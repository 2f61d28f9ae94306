"""What a compactor shows: progress bars on a terminal, lines in a log, and a report at the end."""

from __future__ import annotations

import sys

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from dray.cli.failures import Failure
from dray.cli.output import about_size
from dray.compaction.summary import CompactionObserver, CycleSummary, Phase

_log = structlog.get_logger(__name__)

_DOING = {
    Phase.PLAN: "planning",
    Phase.WRITE: "writing files",
    Phase.COMMIT: "committing tables",
    Phase.SWAP: "swapping the index",
    Phase.RETAIN: "retention",
    Phase.COLLECT: "collecting garbage",
}


class Shown(CompactionObserver):
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

    def __enter__(self) -> Shown:
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


def report(summary: CycleSummary) -> None:
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
