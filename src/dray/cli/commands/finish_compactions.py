"""`drayd admin finish-compactions`: jobs that wait for a compactor which never comes."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from dray.cli.options import ConfigOption, DataDirOption, JsonOption, load_config
from dray.cli.output import print_json, print_table
from dray.compaction.waiting_compactions import WaitingCompactions
from dray.config import Settings
from dray.daemon.failures import Failure
from dray.daemon.settings import log_settings
from dray.daemon.stores import open_stores, read_cluster
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata.contract import MetadataError
from dray.runtime import SystemRuntime
from dray.telemetry import quiet_logs


def finish_compactions(
    *,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without this, the command only says what it would do.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Finish compactions that wait for their table, without the table: where no compactor will come any more.

    Until then such a partition keeps all its records, and DeleteRecords is refused. No record is lost:
    consumers read them from the written file. A compactor that runs again later adds the file to the table.

    [bold]No compactor may run on this cluster meanwhile[/], not even one that hangs: it might commit a file
    whose records are deleted since.

    [dim]Example:[/] drayd admin finish-compactions --data-dir ./dray-data --yes
    """
    with quiet_logs():
        found = asyncio.run(_finish(load_config(config, data_dir).settings, yes=yes))
    if json:
        print_json(found)
    elif found:
        print_table(list(found[0]), [tuple(row.values()) for row in found])
    else:
        typer.echo("No compaction waits for a table.")
    if found and not yes and not json:
        typer.echo("Nothing was done. Stop every compactor of this cluster, then add --yes.")


async def _finish(settings: Settings, *, yes: bool) -> list[dict[str, object]]:
    runtime = SystemRuntime()
    stores = await open_stores(settings, runtime)
    try:
        cluster = await read_cluster(stores)
        knobs = log_settings(settings)
        streams = StreamStore(stores.metadata, cluster.domains, knobs.producer_expiry_ms)
        release = WaitingCompactions(streams, runtime, knobs)
        found: list[dict[str, object]] = []
        for each in await release.waiting():
            state = "waits: its topic is deleted, and only a compactor can go on" if each.deleted else "waits"
            if yes and not each.deleted:
                state = "finished" if await release.finish(each) else "somebody else carries it on"
            start, end = each.offsets
            found.append(
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "from offset": start,
                    "to offset": end - 1,
                    "state": state,
                }
            )
        return found
    except (MetadataError, LogError) as error:
        raise Failure(f"the metadata store: {error}") from error
    finally:
        await stores.close()
        runtime.close()
