"""`drayd admin cluster`: its id and its brokers."""

from __future__ import annotations

from dray.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, JsonOption, ask
from dray.cli.output import print_json, print_table
from dray.client.admin import describe_cluster


def cluster(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show the cluster's id and its brokers."""
    found = ask(bootstrap, command_config, describe_cluster)
    brokers = sorted(found.brokers, key=lambda broker: broker.broker_id)
    if json:
        print_json(
            {
                "cluster_id": found.cluster_id,
                "controller": found.controller_id,
                "brokers": [
                    {
                        "id": broker.broker_id,
                        "host": broker.host,
                        "port": broker.port,
                        "rack": broker.rack,
                    }
                    for broker in brokers
                ],
            }
        )
        return
    print(f"cluster {found.cluster_id}, controller {found.controller_id}")
    print_table(
        ["broker", "address", "rack"],
        [(broker.broker_id, f"{broker.host}:{broker.port}", broker.rack or "-") for broker in brokers],
    )
