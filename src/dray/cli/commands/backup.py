"""`drayd backup` and `drayd restore`: the metadata store, copied and put back."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from dray.cli.options import ConfigOption, DataDirOption, ExecuteOption, JsonOption, load_config
from dray.cli.output import print_json, print_table
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.recovery.backups import back_up
from dray.daemons.recovery.restored import LostOffsets
from dray.daemons.recovery.restores import NEWEST, RestoreOrder, RestoreReport
from dray.daemons.recovery.restores import restore as run_restore


def backup(
    *,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FILE", help="Into this file, and not into the bucket.", show_default=False
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Copy the metadata store, while brokers run, whatever its engine: into the bucket, or a file.

    Objects are not in it: the bucket has them. Small records that are carried are, and those that are newer
    than the last backup are nowhere else. cluster.backup_interval has brokers do this by themselves.

    [dim]Example:[/] drayd backup --config /etc/dray.yaml --to /backups/dray.drayback
    """
    done = back_up(load_config(config, data_dir).settings, to)
    if json:
        print_json(
            {"place": done.place, "keys": done.keys, "bytes": done.size, "created_ms": done.created_ms}
        )
    else:
        print(f"{done.place}: {done.keys} keys, {done.size} bytes")


def restore(
    *,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Load this backup first.", show_default=False),
    ] = None,
    from_bucket: Annotated[
        bool, typer.Option("--from-bucket", help="Load the newest backup in the bucket first.")
    ] = False,
    backup: Annotated[
        str | None,
        typer.Option(
            "--backup",
            metavar="PATH",
            help="With --from-bucket: this one, and not the newest.",
            show_default=False,
        ),
    ] = None,
    execute: ExecuteOption = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Though a cluster lives on the bucket: it is locked out, and writes no more."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Say that this metadata store, as it is or with a backup, is the cluster from now on.

    For metadata that was lost or is older than the bucket: brokers then refuse to write until somebody
    decides. Records that it does not know come back where compacted files in the bucket have them and go on
    without a hole; the rest is given up, and what the bucket shows of it is listed. Producer and stream ids
    jump, and leader epochs rise, so that consumers hear that the log was cut. Stop all brokers first. A drill
    needs a copy of the bucket.

    [dim]Example:[/] drayd restore --config /etc/dray.yaml --from-bucket --execute
    """
    if source is not None and (from_bucket or backup):
        raise Failure("--from and --from-bucket exclude each other", USAGE)
    wanted = (backup or NEWEST) if from_bucket or backup else None
    report = run_restore(
        load_config(config, data_dir).settings,
        RestoreOrder(source, wanted, execute, take_over),
        lambda line: print(line, file=sys.stderr),
    )
    if json:
        print_json(_fields(report))
    else:
        _show(report)


def _fields(report: RestoreReport) -> dict[str, object]:
    return {
        "cluster": report.cluster_id,
        "backup": report.backup,
        "created_ms": report.created_ms,
        "topics": report.topics,
        "partitions": report.partitions,
        "mark": report.mark,
        "tally": report.number,
        "later_restore": report.later,
        "newer_topics": {"files": dict(report.newer.files), "records": report.newer.records},
        "files_below": dict(report.below),
        "executed": bool(report.number),
        "lost": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "from": each.end,
                "brought_back_to": each.brought_to,
                "known_to": each.known_to or None,
                "unordered_records": each.records,
                "objects": each.objects,
            }
            for each in report.lost
        ],
    }


def _show(report: RestoreReport) -> None:
    what = "this metadata store"
    if report.backup is not None and report.created_ms is not None:
        begun = datetime.fromtimestamp(report.created_ms / 1000, UTC).isoformat(timespec="seconds")
        what = f"{report.backup}, of {begun}"
    print(f"cluster {report.cluster_id}, from {what}")
    print(f"{report.topics} topics, {report.partitions} partitions; the bucket's tally is {report.mark}")
    if report.lost:
        rows = [
            (each.topic, each.partition, each.end, each.brought_to - each.end, _known(each), each.records)
            for each in report.lost
        ]
        print_table(
            ["topic", "partition", "ends at", "brought back", "known lost", "in unknown objects"], rows
        )
    if report.newer.are_seen:
        print(
            "topics that were made after that moment are gone; so far as the bucket shows: "
            + ", ".join(
                [
                    *(f"{topic} (compacted files: {count})" for topic, count in report.newer.files.items()),
                    f"{report.newer.records} records in WAL objects",
                ]
            )
        )
        print("their tables and files go with the first compactor: copy what is needed before it starts")
    if report.later is not None:
        print(
            f"nothing is brought back: restore {report.later} of this bucket is newer than the metadata, "
            "and gave its offsets to other records"
        )
    for topic, files in report.below.items():
        print(
            f"{files} files of {topic} were made since of objects that the log names. Those that are gone: "
            f"drayd admin lost {topic} --recover brings their records back, before a compactor starts"
        )
    print("records that were carried after that moment are nowhere, and not counted here")
    if report.number:
        print(f"done: the tally is {report.number}. Start the brokers, then see drayd admin lost")
    else:
        print("nothing was changed: run it again with --execute")


def _known(lost: LostOffsets) -> str:
    return f"{lost.brought_to} to {lost.known_to - 1}" if lost.known_to > lost.brought_to else ""
