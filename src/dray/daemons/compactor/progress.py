"""The output of a compactor: progress bars on a terminal, lines in a log, and a report at the end."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.words import about_size, counted
from dray.tables.compaction.summary import CompactionObserver, CycleSummary, Phase

_log = structlog.get_logger(__name__)

LINE_SECONDS: Final = 30.0
"""So often a line says how far it is where there are no bars."""

_DOING = {
    Phase.PLAN: "planning",
    Phase.WRITE: "writing files",
    Phase.COMMIT: "committing tables",
    Phase.SWAP: "swapping the index",
    Phase.RETAIN: "retention",
    Phase.COLLECT: "collecting garbage",
}


class StandardError(io.TextIOBase):
    """Standard error as it is at the moment of writing: while bars are shown, lines have to go above them."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr.isatty()


class CompactorProgress(CompactionObserver):
    """A line in the log for every cycle that did something; and while one is at work, progress bars, where
    they have a terminal of their own (`bars`). An idle cycle shows nothing, unless `eager`."""

    def __init__(self, monotonic: Callable[[], float], *, bars: bool, eager: bool = False) -> None:
        self._monotonic = monotonic
        self._began: float | None = None  # the first bytes of a cycle
        self._said = 0.0
        self._has_bars = bars
        self._eager = eager
        self._progress: Progress | None = None
        self._bars: dict[Phase, TaskID] = {}

    def __enter__(self) -> CompactorProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show that something takes long, before there is anything to count."""
        if not self._has_bars:
            yield
            return
        with Console(stderr=True).status(what):
            yield

    def progress(self, phase: Phase, done: int, total: int) -> None:
        if not self._has_bars or not total:
            return
        if self._progress is None:
            if not self._eager and phase is not Phase.WRITE:
                return
            self._progress = _bars()
            self._progress.start()
        if phase not in self._bars:
            self._bars[phase] = self._progress.add_task(_DOING[phase], total=total)
        self._progress.update(self._bars[phase], completed=done, total=total)

    def compacted(self, done: int, total: int) -> None:
        """How far a long `--once` is, and when it ends if it goes on like this."""
        now = self._monotonic()
        if self._began is None:
            self._began = self._said = now
        if not done or not self._eager:
            return
        left = (now - self._began) * (total - done) / done
        if Phase.WRITE in self._bars and self._progress is not None:
            text = f"{_DOING[Phase.WRITE]}, {about_size(total - done)} left, {_minutes(left)}"
            self._progress.update(self._bars[Phase.WRITE], description=text)
        elif not self._has_bars and now - self._said >= LINE_SECONDS:
            self._said = now
            _log.info(
                "compacting", done=about_size(done), left=about_size(total - done), time_left=_minutes(left)
            )

    def interrupted(self) -> None:
        self._clear()

    def finished(self, summary: CycleSummary) -> None:
        self._clear()
        if not self._eager and self._did_something(summary):
            _log.info("compaction cycle", **_figures(summary))

    def _clear(self) -> None:
        """Take the bars away: what stays on the screen is the line about the cycle."""
        self._began = None
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
            self._bars.clear()

    @staticmethod
    def _did_something(summary: CycleSummary) -> bool:
        return bool(summary.finished or summary.raised or summary.files_deleted or summary.troubles)


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description:<20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def _minutes(seconds: float) -> str:
    return "less than a minute" if seconds < 60 else f"about {counted(round(seconds / 60), 'minute')}"


def _figures(summary: CycleSummary) -> dict[str, int | float]:
    """The figures that are not zero: a line full of zeros would hide them."""
    figures = {
        "files": summary.files,
        "records": summary.records,
        "input_bytes": summary.input_bytes,
        "output_bytes": summary.output_bytes,
        "commits": summary.commits,
        "jobs": summary.finished,
        "starts_raised": summary.raised,
        "files_deleted": summary.files_deleted,
        "troubles": len(summary.troubles),
    }
    shown: dict[str, int | float] = {name: figure for name, figure in figures.items() if figure}
    return shown | {"seconds": round(summary.seconds, 1)}


def report(summary: CycleSummary) -> None:
    """For people, at the end of `--once`; an exit code that cron understands."""
    if summary.files:
        rate = summary.input_bytes / 1e6 / summary.seconds if summary.seconds else 0.0
        print(
            f"compacted {summary.records:,} records into {counted(summary.files, 'file')}: "
            f"{about_size(summary.input_bytes)} became {about_size(summary.output_bytes)} "
            f"in {summary.seconds:.1f} s ({rate:,.1f} MB/s)"
        )
    else:
        print(f"nothing to compact in {counted(summary.streams, 'partition')} ({summary.seconds:.1f} s)")
    lines = [
        (summary.commits, counted(summary.commits, "table commit")),
        (summary.raised, f"records of {counted(summary.raised, 'partition')} expired"),
        (summary.files_deleted, f"{counted(summary.files_deleted, 'old file')} deleted"),
        (summary.files_pending, f"{counted(summary.files_pending, 'old file')} kept a while for readers"),
    ]
    if any(number for number, _ in lines):
        print(", ".join(text for number, text in lines if number))
    if summary.troubles:
        for trouble in summary.troubles:
            where = trouble.topic if trouble.partition < 0 else f"{trouble.topic}-{trouble.partition}"
            print(f"drayd: {where}: {' '.join(trouble.reason.split())}", file=sys.stderr)
        raise Failure(f"{len(summary.troubles)} of it did not go well, see above; the rest is done")
