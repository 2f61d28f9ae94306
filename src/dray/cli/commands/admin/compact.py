"""`drayd admin compact`: have a topic compacted now."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import quiet_logs
from dray.broker.topics.compaction_requests import CompactionRequests, TooManyRequests
from dray.cli.options import ConfigOption, DataDirOption, JsonOption, load_config
from dray.cli.output import print_json
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.stores import open_stores, read_cluster
from dray.daemons.config import Settings
from dray.inspection.plain import as_plain
from dray.inspection.records.reading import NoSuchTopic
from dray.inspection.storage.stored import StoredCluster
from dray.inspection.topics.views import CompactionProgress, ask_compaction, compaction_of
from dray.metadata.contract import MetadataError
from dray.metadata.values import UnreadableValue

_LOOK_SECONDS: Final = 0.5


def compact(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    *,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    wait: Annotated[
        float,
        typer.Option("--wait", min=0, max=3600, metavar="SECONDS", help="Wait so long for it to be done."),
    ] = 0.0,
    json: JsonOption = False,
) -> None:
    """Ask the compactors to move all that a topic has now into Parquet files and its table.

    Records are compacted by themselves when they are old or many enough (`compaction.wal_max_age`); this is
    for a query that should not wait. A running compactor notices within seconds; without one, the request
    waits for the next. Asked again, the command says how far it is.

    [dim]Example:[/] drayd admin compact orders --data-dir ./dray-data --wait 60
    """
    with quiet_logs():
        found = asyncio.run(_compact(load_config(config, data_dir).settings, topic, wait))
    if json:
        print_json(as_plain(found))
    else:
        typer.echo(found.line)
    if found.state == "failed" or (wait and found.is_open):
        raise typer.Exit(1)


async def _compact(settings: Settings, topic: str, wait: float) -> CompactionProgress:
    runtime = SystemRuntime()
    stores = await open_stores(settings, runtime)
    try:
        cluster = await read_cluster(stores)
        expiry_ms = settings.log.producer_expiry_ms
        stored = StoredCluster(stores.metadata, cluster.domains, settings.topics.defaults, expiry_ms)
        requests = CompactionRequests(stores.metadata, runtime)
        found = await ask_compaction(stored, requests, topic)
        until = runtime.monotonic() + wait
        while found.is_open and runtime.monotonic() < until:
            await runtime.sleep(_LOOK_SECONDS)
            found = await compaction_of(stored, requests, topic) or found
        return found
    except (NoSuchTopic, TooManyRequests, UnreadableValue) as error:
        raise Failure(str(error)) from error
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    finally:
        await stores.close()
        runtime.close()
