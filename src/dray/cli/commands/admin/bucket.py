"""`drayd admin gc` and `adopt-bucket`: what lies in the object store, and whose it is."""

from __future__ import annotations

from typing import Annotated

import typer

from dray.cli.options import ConfigOption, DataDirOption, ExecuteOption, JsonOption, load_config, to_be_done
from dray.cli.output import print_json, print_table
from dray.daemons.assembly.failures import Failure
from dray.daemons.compactor.collection import CollectionRequest, collect
from dray.daemons.recovery.ownership import adopt


def gc(
    *,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="Do not wait until objects have been garbage for a while. No record is lost, but appends "
            "in flight are refused and readers may have to look again: for a cluster at rest. Metadata of "
            "tables waits all the same: some of it may be of a commit under way.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be deleted; with --now, all of it.")
    ] = False,
    release_brake: Annotated[
        bool,
        typer.Option(
            "--release-brake",
            help="Delete what the metadata store does not know, however much that is. Without it, more than "
            "half of what there is stays: a newer metadata store may know it. Shown first; done with "
            "--execute.",
        ),
    ] = False,
    execute: ExecuteOption = False,
    json: JsonOption = False,
) -> None:
    """Collect WAL objects, files and tables that nothing refers to: one round over the configured stores.

    Brokers and compactors do this by themselves all the time, and wait before they delete; a single round
    can only tell what there is, unless it is told not to wait. It first makes sure that no other metadata
    store uses the bucket: at once where brokers run, else within three times cluster.tally_interval.

    [dim]Example:[/] drayd admin gc --data-dir ./dray-data --now
    """
    dry_run = dry_run or (release_brake and not execute)
    done = collect(load_config(config, data_dir).settings, CollectionRequest(now, dry_run, release_brake))
    if json:
        print_json(done.counts)
    else:
        print_table(["what", "count"], list(done.counts.items()))
    if release_brake:
        to_be_done(execute)
    if done.held is not None:
        raise Failure(done.held)


def adopt_bucket(
    *,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    execute: ExecuteOption = False,
) -> None:
    """Say that the object store belongs to the cluster of the metadata store, where nothing says so yet.

    Brokers do this by themselves when the bucket is empty or they know all that lies in it. It is for a
    bucket from before there were owners, with objects that the metadata store does not know: once adopted,
    those are garbage, and are collected.

    [dim]Example:[/] drayd admin adopt-bucket --config /etc/dray.yaml --execute
    """
    done = adopt(load_config(config, data_dir).settings, confirmed=execute)
    if done.survey is None:
        print(f"the object store belongs to cluster {done.cluster_id} already")
        return
    survey = done.survey
    print(f"cluster {done.cluster_id}: {survey.listed} objects listed, {survey.looked_at} looked at")
    print(f"unknown to its metadata store: {survey.unknown}")
    for path in survey.examples:
        print(f"  {path}")
    if done.adopted:
        print("the object store belongs to this cluster now")
    else:
        print(
            "if no other cluster needs them, run it again with --execute: what is unknown is collected later"
        )
