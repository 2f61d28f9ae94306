"""`drayd admin finish-compactions`: jobs that wait for a compactor which never comes."""

from __future__ import annotations

import asyncio

import typer

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import quiet_logs
from dray.cli.options import ConfigOption, DataDirOption, ExecuteOption, JsonOption, load_config
from dray.cli.output import print_json, print_table
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.settings import log_settings
from dray.daemons.assembly.stores import open_stores, read_cluster
from dray.daemons.config import Settings
from dray.daemons.recovery.ownership import owned_bucket
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError
from dray.tables.compaction.planning.job_board import WaitingCompactions


def finish_compactions(
    *,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    execute: ExecuteOption = False,
    json: JsonOption = False,
) -> None:
    """Finish compactions that wait for their table, without the table: where no compactor will come any more.

    Until then such a partition keeps all its records, and DeleteRecords is refused. No record is lost:
    consumers read them from the written file. A compactor that runs again later adds the file to the table.

    A running compactor does this by itself, after an hour.

    [dim]Example:[/] drayd admin finish-compactions --data-dir ./dray-data --execute
    """
    with quiet_logs():
        found = asyncio.run(_finish(load_config(config, data_dir).settings, execute=execute))
    if json:
        print_json(found)
    elif found:
        print_table(list(found[0]), [tuple(row.values()) for row in found])
    else:
        typer.echo("No compaction waits for a table.")
    if found and not execute and not json:
        typer.echo("Nothing was done. To do it, add --execute.")


async def _finish(settings: Settings, *, execute: bool) -> list[dict[str, object]]:
    runtime = SystemRuntime()
    stores = await open_stores(settings, runtime)
    try:
        cluster = await read_cluster(stores)
        if execute:  # a file that a copy of the metadata still has written may be gone
            await owned_bucket(stores, cluster, runtime, settings.tally_interval)
        knobs = log_settings(settings)
        streams = StreamStore(stores.metadata, cluster.domains, knobs.producer_expiry_ms)
        release = WaitingCompactions(streams, runtime, knobs)
        found: list[dict[str, object]] = []
        for each in await release.waiting():
            state = "waits: its topic is deleted, and only a compactor can go on" if each.deleted else "waits"
            if execute and not each.deleted:
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
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error
    finally:
        await stores.close()
        runtime.close()
