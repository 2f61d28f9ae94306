"""`drayd admin cluster`: its id, its level, its brokers, and the builds of its processes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dray.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    ConfigOption,
    DataDirOption,
    JsonOption,
    ask,
    load_config,
)
from dray.cli.output import print_json, print_table
from dray.kafka.client.admin import describe_cluster

if TYPE_CHECKING:
    from dray.inspection.storage.stored import KnownBuilds

NOTHING = "-"


def cluster(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Show the cluster's id and its brokers.

    Also which build each process is. Kafka's protocol has no word for that: it comes from the cluster's own
    metadata store, which --config or --data-dir names.
    """
    found = ask(bootstrap, command_config, describe_cluster)
    brokers = sorted(found.brokers, key=lambda broker: broker.broker_id)
    builds = _read_builds(load_config(config, data_dir).settings, found.cluster_id)
    of_brokers = {} if builds is None else builds.of_brokers
    others = [] if builds is None else builds.of_others
    if json:
        shown: dict[str, Any] = {
            "cluster_id": found.cluster_id,
            "controller": found.controller_id,
            "brokers": [
                {
                    "id": broker.broker_id,
                    "host": broker.host,
                    "port": broker.port,
                    "rack": broker.rack,
                    "build": of_brokers.get(broker.broker_id),
                }
                for broker in brokers
            ],
            "processes": [{"role": role, "build": build, "http": http} for role, build, http in others],
            "mixed_builds": None if builds is None else len(builds.different) > 1,
            "level": None if builds is None else builds.level,
        }
        print_json(shown)
        return
    level = "" if builds is None or builds.level is None else f", level {builds.level}"
    print(f"cluster {found.cluster_id}, controller {found.controller_id}{level}")
    print_table(
        ["broker", "address", "rack", "build"],
        [
            (
                broker.broker_id,
                f"{broker.host}:{broker.port}",
                broker.rack or NOTHING,
                of_brokers.get(broker.broker_id, NOTHING),
            )
            for broker in brokers
        ],
    )
    if others:
        print_table(
            ["process", "health", "build"], [(role, http or NOTHING, build) for role, build, http in others]
        )
    if builds is None:
        print("which build each is: give the cluster's own --config or --data-dir")
    else:
        print_mixed(builds.different)


def print_mixed(builds: Sequence[str]) -> None:
    if len(builds) > 1:
        print(f"mixed builds: {', '.join(builds)}")


def _read_builds(settings: Any, cluster_id: str) -> KnownBuilds | None:
    """None where the store is not that of the cluster, or is not to be had from here."""
    from dray.cli.clean_views import read_builds  # brings the stores, which not every command needs

    return asyncio.run(read_builds(settings, cluster_id))
