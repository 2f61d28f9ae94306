"""`drayd admin topics`: create, list, describe, delete and alter them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dray.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    ConfigOption,
    DataDirOption,
    ExecuteOption,
    JsonOption,
    ask,
    client_security,
    load_config,
)
from dray.cli.output import print_json, print_table
from dray.daemons.assembly.failures import USAGE, Failure
from dray.kafka.client import Cluster
from dray.kafka.client.admin import (
    TopicDescription,
    add_partitions,
    alter_configs,
    as_plain,
    create_topic,
    delete_topic,
    describe_cluster,
    describe_topics,
    list_topics,
    may_create_topics,
)
from dray.kafka.protocol.messages.metadata import MetadataResponseTopic

if TYPE_CHECKING:
    from dray.log.jobs.clean_shares import CleanShares

app = typer.Typer(help="Create, list, describe, delete and alter topics.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
NamesArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")]


@app.command("create")
def create(
    topic: NameArgument,
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1: the broker's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="Accepted for Kafka's sake: Dray keeps records in object storage.")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="A topic config; repeatable.")
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Only say whether it would work.")
    ] = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="It is no error if the topic exists.")
    ] = False,
) -> None:
    """Create a topic.

    [dim]Example:[/] drayd admin topics create orders --partitions 16 --config retention.ms=86400000
    """
    configs = _pairs("--config", config)
    created = ask(
        bootstrap,
        command_config,
        lambda cluster: create_topic(
            cluster,
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
            validate_only=validate_only,
            may_exist=if_not_exists,
        ),
    )
    if not created:
        print(f"topic {topic} exists already")
    elif validate_only:
        print(f"topic {topic} could be created")
    else:
        print(f"topic {topic} created")


@app.command("list")
def list_(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List the topics."""

    async def look(cluster: Cluster) -> tuple[list[MetadataResponseTopic], bool]:
        seen = await list_topics(cluster)
        return seen, bool(seen) or await may_create_topics(cluster)

    found, may_create = ask(bootstrap, command_config, look)
    if json:
        print_json(
            [
                {"name": topic.name, "topic_id": str(topic.topic_id), "partitions": len(topic.partitions)}
                for topic in found
            ]
        )
    elif found:
        print_table(
            ["topic", "partitions", "id"],
            [(topic.name, len(topic.partitions), topic.topic_id) for topic in found],
        )
    elif may_create:
        print("no topics yet: drayd admin topics create NAME")
    elif client_security(command_config).logs_in:
        print("no topics that this user may see: an ACL with DESCRIBE shows them (drayd admin acl add)")
    else:
        print(
            "no topics that you may see: this listener asks nobody for a name, so you are User:ANONYMOUS; "
            "log in with --command-config at a listener that does"
        )


@app.command("describe")
def describe(
    topics: NamesArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Show a topic's partitions with their offsets, and the configs it sets itself.

    Of a topic with cleanup.policy=compact also what steers its compaction by key, and what of it is clean,
    dirty and gone. The latter comes from the cluster's own metadata store, which --config or --data-dir
    names.
    """
    found, cluster_id = ask(bootstrap, command_config, lambda cluster: _describe(cluster, topics))
    compacted = [description.name for description in found if description.compaction]
    shares: dict[str, list[CleanShares]] = {}
    if compacted:
        from dray.cli.clean_views import read_clean_shares  # brings the log, which no other topic needs

        settings = load_config(config, data_dir).settings
        shares = asyncio.run(read_clean_shares(settings, cluster_id, compacted))
    if json:
        print_json([_topic_as_plain(description, shares.get(description.name)) for description in found])
        return
    for number, description in enumerate(found):
        if number:
            print()
        _print_topic(description, shares.get(description.name))


async def _describe(cluster: Cluster, topics: list[str]) -> tuple[list[TopicDescription], str]:
    """The topics, and the id of their cluster."""
    return await describe_topics(cluster, topics), (await describe_cluster(cluster)).cluster_id


@app.command("delete")
def delete(
    topics: NamesArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="It is no error if there is none.")] = False,
    execute: ExecuteOption = False,
) -> None:
    """Delete topics and their records, for good. Only shows which, unless told to --execute.

    [dim]Example:[/] drayd admin topics delete orders --execute
    """

    async def delete_each(cluster: Cluster) -> None:
        held = {topic.name for topic in await list_topics(cluster)} if if_exists else set(topics)
        here = [name for name in topics if name in held]
        if not execute:
            for name in sorted(set(topics) - held):
                print(f"there is no topic {name}")
            if not here:
                return
            print_table(
                ["topic", "partitions", "records"],
                [
                    (topic.name, len(topic.partitions), sum(each.records or 0 for each in topic.partitions))
                    for topic in await describe_topics(cluster, here)
                ],
            )
            print("nothing was deleted: add --execute to do this")
            return
        for name in topics:
            deleted = await delete_topic(cluster, name, if_exists)
            print(f"topic {name} deleted" if deleted else f"there is no topic {name}")

    ask(bootstrap, command_config, delete_each)


@app.command("alter")
def alter(
    topic: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new, larger number.", show_default=False)
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a config; repeatable.")
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Back to the default; repeatable."),
    ] = None,
) -> None:
    """Add partitions, set configs, or give configs back to their defaults.

    [dim]Example:[/] drayd admin topics alter orders --partitions 32 --set retention.ms=3600000
    """
    values = _pairs("--set", set_)
    if partitions is None and not values and not unset:
        raise Failure("nothing to alter: give --partitions, --set or --unset", USAGE)

    async def change(cluster: Cluster) -> None:
        if values or unset:
            await alter_configs(cluster, topic, values, unset or [])
        if partitions is not None:
            await add_partitions(cluster, topic, partitions)

    ask(bootstrap, command_config, change)
    print(f"topic {topic} altered")


def _pairs(flag: str, given: Sequence[str] | None) -> dict[str, str]:
    pairs = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise Failure(f"{flag} = {text!r}: must be NAME=VALUE, such as retention.ms=86400000", USAGE)
        pairs[name] = value
    return pairs


def _topic_as_plain(description: TopicDescription, shares: list[CleanShares] | None) -> dict[str, Any]:
    plain = as_plain(description)
    if shares is not None:
        from dray.cli.clean_views import clean_shares_as_plain

        plain["clean"] = [clean_shares_as_plain(number, each) for number, each in enumerate(shares)]
    return plain


def _print_topic(description: TopicDescription, shares: list[CleanShares] | None) -> None:
    print(f"topic {description.name}, id {description.topic_id}")
    for name, value in sorted(description.configs.items()):
        print(f"  {name} = {value}")
    for name, value in description.compaction.items():
        if name not in description.configs:
            print(f"  {name} = {value} (default)")
    print_table(
        ["partition", "leader", "start", "end", "records"],
        [
            (
                partition.partition,
                partition.leader,
                "-" if partition.start is None else partition.start,
                "-" if partition.end is None else partition.end,
                "-" if partition.records is None else partition.records,
            )
            for partition in description.partitions
        ],
    )
    for partition in description.partitions:
        if partition.trouble:
            print(f"partition {partition.partition} is not served: {partition.trouble}")
    if description.compaction:
        from dray.cli.clean_views import NOT_SHOWN, print_clean_shares

        if shares is None:
            print(NOT_SHOWN)
        else:
            print_clean_shares(shares)
