"""Plans and states of migrations, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from dray.cli.output import print_table
from dray.migration.attach.plan import AttachPlan, PartitionPlan
from dray.migration.status import MigrationStatus

_MOST_NOTES = 20
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class AttachBar:
    """Progress on standard error, where that is a terminal."""

    def __init__(self, what: str, *, of_bytes: bool = False) -> None:
        self._what = what
        self._of_bytes = of_bytes
        self._console = Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pause()

    def begin(self, what: str) -> None:
        """The next step, in the words that its bar has."""
        self.pause()
        self._what = what

    def expect(self, total: int) -> None:
        self.pause()
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn(self._what), BarColumn(), TaskProgressColumn(),
                DownloadColumn(binary_units=True) if self._of_bytes else MofNCompleteColumn(),
                TimeElapsedColumn(), console=self._console, transient=True,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=total)

    def advance(self, count: int = 1) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, count)

    def pause(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def print_plan(plan: AttachPlan) -> None:
    identity = f", id {plan.topic_id}" if plan.topic_id is not None else ", with a fresh id"
    print(f"topic {plan.topic}{identity}, as {plan.layout} left it")
    if plan.partitions:
        print_table(
            ["partition", "start", "end", "segments", "size", "newest record", "producers"],
            [_row(each) for each in plan.partitions],
            right=["size"],
        )
    way = "read where they lie" if plan.layout.is_borrowed else "uploaded into the cluster's own store"
    print(f"{plan.segments} segments of {size_text(plan.size)} in all, {way}")
    for group, offsets in _by_group(plan).items():
        print(f"group {group}: " + ", ".join(offsets))
    for note in plan.notes[:_MOST_NOTES]:
        print(f"note: {note}")
    if len(plan.notes) > _MOST_NOTES:
        print(f"note: and {len(plan.notes) - _MOST_NOTES} more (--json shows all)")
    for refusal in plan.refused:
        print(f"refused: {refusal}")


def _row(plan: PartitionPlan) -> tuple[object, ...]:
    newest = max((each.segment.max_timestamp for each in plan.lineage.chosen), default=-1)
    return (
        plan.partition,
        plan.start,
        plan.end,
        len(plan.lineage.chosen),
        size_text(plan.size),
        time_text(newest),
        len(plan.producers),
    )


def _by_group(plan: AttachPlan) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in plan.offsets:
        moved = f" (had {each.wanted})" if each.wanted != each.offset else ""
        found.setdefault(each.group, []).append(f"{each.partition} at {each.offset}{moved}")
    return found


def plan_as_plain(plan: AttachPlan) -> dict[str, Any]:
    return {
        "topic": plan.topic,
        "topic_id": None if plan.topic_id is None else str(plan.topic_id),
        "layout": plan.layout.value,
        "size": plan.size,
        "partitions": [
            {
                "partition": each.partition,
                "start": each.start,
                "end": each.end,
                "segments": len(each.lineage.chosen),
                "size": each.size,
                "leader_epoch": each.lineage.epoch,
                "producers": len(each.producers),
                "left_out": list(each.lineage.left_out),
            }
            for each in plan.partitions
        ],
        "groups": [
            {
                "group": each.group,
                "partition": each.partition,
                "offset": each.offset,
                "committed": each.wanted,
            }
            for each in plan.offsets
        ],
        "notes": list(plan.notes),
        "refused": [{"partition": each.partition, "reason": each.reason} for each in plan.refused],
    }


def print_status(found: Sequence[MigrationStatus]) -> None:
    if not found:
        print("no topic was attached yet: drayd migrate plan TOPIC --from STORE --layout LAYOUT")
        return
    print_table(
        ["topic", "state", "layout", "store", "partitions", "segments", "borrowed", "source"],
        [
            (
                each.topic,
                "deleted" if each.deleted else each.record.state.value,
                each.record.layout,
                each.record.store or "our own",
                each.record.partitions,
                each.segments,
                f"{each.borrowed} ({size_text(each.borrowed_bytes)})" if each.borrowed else 0,
                each.record.source,
            )
            for each in found
        ],
    )
    for each in found:
        if each.borrowed:
            print_borrowed(each.topic, each.borrowed)
        print_missing(each.topic, each.missing, each.unseen)


def print_missing(topic: str, missing: int | None, unseen: str) -> None:
    if missing:
        print(
            f"{topic}: {missing} segments are not where they were, or not what they were: consumers stop at "
            f"them. drayd admin lost {topic} says which, and what can be done"
        )
    if unseen:
        print(f"{topic}: whether its segments are there is not known: {unseen}")


def print_borrowed(topic: str, segments: int) -> None:
    print(
        f"{topic}: {segments} segments are borrowed: do not delete that topic at its source, nor its objects "
        f"(drayd migrate copy {topic})"
    )


def borrowed_text(status: MigrationStatus) -> str:
    size = size_text(status.borrowed_bytes)
    return f"topic {status.topic}: {status.borrowed} segments, {size}, borrowed from {status.record.source}"


def status_as_plain(status: MigrationStatus) -> dict[str, Any]:
    record = status.record
    return {
        "topic": status.topic,
        "state": "deleted" if status.deleted else record.state.value,
        "topic_id": str(record.topic_id),
        "layout": record.layout,
        "source": record.source,
        "store": record.store,
        "leader_epoch": record.leader_epoch,
        "partitions": [{"start": start, "boundary": end} for start, end in record.bounds],
        "segments": status.segments,
        "borrowed": status.borrowed,
        "borrowed_bytes": status.borrowed_bytes,
        "missing": status.missing,
    }


def size_text(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"


def time_text(time_ms: int) -> str:
    if time_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
