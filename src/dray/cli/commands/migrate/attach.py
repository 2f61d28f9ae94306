"""`drayd migrate`: topics that another system wrote become topics here, in place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from dray.cli.commands.migrate import live as migrate_live
from dray.cli.commands.migrate.stragglers import stragglers
from dray.cli.link_views import live_as_plain, print_live
from dray.cli.migration_views import (
    AttachBar,
    borrowed_text,
    plan_as_plain,
    print_plan,
    print_status,
    status_as_plain,
)
from dray.cli.options import (
    CommandConfigOption,
    ConfigOption,
    DataDirOption,
    ExecuteOption,
    JsonOption,
    ask,
    load_config,
    to_be_done,
)
from dray.cli.output import print_json, say
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.config import Settings
from dray.daemons.migrator import links, migration
from dray.kafka.client import Cluster, RequestFailed
from dray.kafka.client.admin import describe_cluster
from dray.kafka.protocol import ErrorCode
from dray.migration.attach.inventory import SourceLayout, parse_topic_id
from dray.migration.attach.plan import AttachPlan
from dray.migration.record import MigrationState
from dray.migration.status import MigrationStatus

SHOWN_SECONDS = 30

app = typer.Typer(
    help="Bring topics of Kafka here: from a running cluster, or from what one left in tiered storage.\n\n"
    "A running one: [bold]link[/], [bold]status[/], [bold]switch[/]. One that is gone or stopped: "
    "[bold]plan[/], [bold]attach[/]; what it left is read in place, and nothing is copied.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name at the source.")]
FromOption = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="STORE",
        help="Where it lies: a name of foreign.stores in the config, or a URL (file:, s3://, gs://, az://), "
        "or a path. For driftq: the file of its log.",
    ),
]
LayoutOption = Annotated[
    SourceLayout,
    typer.Option(
        "--layout",
        help="kafka-tiered: Apache's LocalTieredStorage. aiven-1: Aiven's tiered-storage plugin. "
        "kafscale-1: a stopped KafScale's bucket. log-dir: the log directory of a stopped broker, which is "
        "uploaded. driftq: DriftQ's log, which is converted.",
    ),
]
TopicIdOption = Annotated[
    str | None,
    typer.Option(
        "--topic-id",
        metavar="ID",
        help="Which one, where several topics of this name lie there: a UUID, or as Kafka writes it.",
        show_default=False,
    ),
]
OffsetsOption = Annotated[
    Path | None,
    typer.Option(
        "--offsets",
        metavar="FILE",
        help="Offsets that groups had committed: lines of group,topic,partition,offset, or what etcdctl get "
        "--prefix /kafscale/consumers/ printed. Those in a log directory and in DriftQ's log are found.",
        show_default=False,
    ),
]
RemoteMetadataOption = Annotated[
    str | None,
    typer.Option(
        "--remote-metadata",
        metavar="DIR",
        help="A broker's log directory with __remote_log_metadata: only copies that it says are finished "
        "count. Without it, those of which all files are there.",
        show_default=False,
    ),
]
PartitionsOption = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        metavar="N",
        min=1,
        help="How many partitions the topic had: those of which nothing lies there begin empty.",
        show_default=False,
    ),
]


@app.command("plan")
def plan(
    topic: TopicArgument,
    *,
    place: FromOption,
    layout: LayoutOption,
    topic_id: TopicIdOption = None,
    offsets: OffsetsOption = None,
    remote_metadata: RemoteMetadataOption = None,
    partitions: PartitionsOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Show what an attach would do: partitions, offsets, groups, and what stands in the way. Only the
    source is read, and nothing is written anywhere.

    [dim]Example:[/] drayd migrate plan orders --from s3://old-bucket/tier --layout aiven-1
    """
    request = _request(topic, place, layout, topic_id, offsets, remote_metadata, partitions)
    with AttachBar("looking at the source") as bar:
        found = migration.look(load_config(config, data_dir).settings, request, bar)
    if json:
        print_json(plan_as_plain(found))
    else:
        print_plan(found)
    if found.refused:
        raise Failure(_refusal(found))


@app.command("attach")
def attach(
    topic: TopicArgument,
    *,
    place: FromOption,
    layout: LayoutOption,
    topic_id: TopicIdOption = None,
    offsets: OffsetsOption = None,
    remote_metadata: RemoteMetadataOption = None,
    partitions: PartitionsOption = None,
    topic_config: Annotated[
        list[str] | None,
        typer.Option(
            "--topic-config",
            metavar="NAME=VALUE",
            help="A config of the topic; repeatable. Without retention.ms and retention.bytes nothing "
            "expires.",
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT,...",
            help="Brokers of this cluster. They are asked whether it is theirs that the config names, and "
            "the command ends when they show the topic.",
            show_default=False,
        ),
    ] = None,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    execute: ExecuteOption = False,
) -> None:
    """Make a topic of what lies at the source. Clients then read it with their offsets, and append behind it.

    It shows the plan, and does it with --execute. It may be run again after a failure, and goes on where it
    was. Brokers may run meanwhile. A store that segments are read from must be in foreign.stores of every
    broker's config.

    [dim]Example:[/] drayd migrate attach orders --from old --layout kafka-tiered --execute
    """
    request = _request(topic, place, layout, topic_id, offsets, remote_metadata, partitions)
    configs = _pairs(topic_config)
    settings = load_config(config, data_dir).settings
    if bootstrap is not None:
        _must_be_ours(settings, bootstrap, command_config)
    shown: list[AttachPlan] = []

    def approve(found: AttachPlan) -> bool:
        bar.begin("attaching")
        shown.append(found)
        print_plan(found)
        return not found.refused and to_be_done(execute)

    with AttachBar("looking at the source") as bar:
        done = migration.attach(settings, request, configs, approve, bar)
    if done is None:
        if shown and shown[0].refused:
            raise Failure(_refusal(shown[0]))
        return
    if bootstrap is not None:
        expected = done.topic_id
        ask(bootstrap, command_config, lambda cluster: _until_shown(cluster, topic, expected))
    print(f"topic {topic} is attached: {done.partitions} partitions, id {done.topic_id}")


@app.command("status")
def status(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="One topic; without it, all.", show_default=False)
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every second, until it is Dray's.")
    ] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Show the topics that were attached or linked, how far each has come, and which still need their
    source. With a topic: also whether all segments are where they were, a request for each; and of one that
    is linked its mirror, partition by partition."""
    settings = load_config(config, data_dir).settings
    if topic is not None and watch:
        links.watch_live(
            settings, topic, lambda live: print_json(live_as_plain(live)) if json else print_live(live)
        )
        return
    live = None if topic is None else links.live_status(settings, topic)
    if live is not None:
        print_json(live_as_plain(live)) if json else print_live(live)
        return
    found = migration.status(settings, topic)
    if json:
        print_json([status_as_plain(each) for each in found])
    else:
        print_status(found)
    if topic is not None and not found:
        raise Failure(f"topic {topic} was never attached or linked here")


@app.command("copy")
def copy(
    topic: TopicArgument,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    execute: ExecuteOption = False,
) -> None:
    """Copy the segments that a topic still reads from its source into our own store. Then the source may
    go."""
    settings = load_config(config, data_dir).settings
    with AttachBar("copying", of_bytes=True) as bar:

        def approve(found: MigrationStatus) -> bool:
            print(f"{borrowed_text(found)}: each is copied into {settings.objects_url}")
            return to_be_done(execute)

        count = migration.take_over(settings, topic, approve, copy=True, progress=bar)
    if count is None:
        return
    if count:
        print(f"topic {topic}: {count} segments copied; the source is not needed any more")
    else:
        print(f"topic {topic}: nothing is borrowed, the source is not needed any more")


@app.command("adopt")
def adopt(
    topic: TopicArgument,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    execute: ExecuteOption = False,
) -> None:
    """Take over the segments of a topic where they lie. From then on they are Dray's: retention, compaction
    and the deletion of the topic delete them.

    [bold]Only once the source is shut down for good[/]: a source that still runs would find its segments
    gone, or delete them itself. The credentials of the foreign store must allow to delete.
    """
    settings = load_config(config, data_dir).settings
    with AttachBar("adopting") as bar:

        def approve(found: MigrationStatus) -> bool:
            print(f"{borrowed_text(found)}: from now on Dray deletes them there once nothing needs them")
            print(f"only do this once the source of {topic} is shut down for good")
            return to_be_done(execute)

        count = migration.take_over(settings, topic, approve, copy=False, progress=bar)
    if count is None:
        return
    if count:
        print(f"topic {topic}: {count} segments adopted")
    else:
        print(f"topic {topic}: nothing is borrowed, there is nothing to adopt")


@app.command("abort")
def abort(
    topic: TopicArgument,
    *,
    without_source: Annotated[
        bool,
        typer.Option(
            "--without-source", help="The source is gone for good: do not try to lift a fence there."
        ),
    ] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    execute: ExecuteOption = False,
) -> None:
    """Take back an attach that did not come to its end, or a link before it is switched: the topic goes here,
    and the source is as before. A fence that a switch put up there is lifted.

    A topic that is Dray's is deleted like any other (drayd admin topics delete); what it borrowed stays where
    it is."""
    settings = load_config(config, data_dir).settings
    found = migration.status(settings, topic)
    if not found:
        print(f"topic {topic}: there is nothing to abort")
        return
    record = found[0].record
    what = "link" if record.is_live else "attach"
    if record.state not in (MigrationState.ATTACHED, MigrationState.SWITCHED, MigrationState.MOVED):
        more = ", and delete what was mirrored of it here" if record.is_live else ""
        print(f"take back the {what} of {topic}{more}")
        if not to_be_done(execute):
            return
    links.abort(settings, topic, without_source=without_source, said=say)
    print(f"topic {topic}: the {what} was taken back")


app.command("link")(migrate_live.link)
app.command("switch")(migrate_live.switch)
app.command("hand-over")(migrate_live.hand_over)
app.command("stragglers")(stragglers)


def _must_be_ours(settings: Settings, bootstrap: str, command_config: Path | None) -> None:
    """A topic that is laid down in other stores than those of the brokers would be seen by nothing."""
    theirs = ask(bootstrap, command_config, describe_cluster).cluster_id
    ours = migration.cluster_id(settings)
    if theirs != ours:
        raise Failure(
            f"--bootstrap = {bootstrap!r}: its brokers are of cluster {theirs}, and the stores of the config "
            f"are those of {ours}: give that cluster's --config or --data-dir",
            USAGE,
        )


async def _until_shown(cluster: Cluster, topic: str, topic_id: UUID) -> None:
    async def look() -> None:
        await cluster.learn([topic])
        if cluster.view.topic_ids.get(topic) != topic_id:
            text = f"topic {topic} is attached, and the brokers do not show it within {SHOWN_SECONDS} s"
            raise RequestFailed(text, ErrorCode.UNKNOWN_TOPIC_ID)

    await cluster.patiently(look, SHOWN_SECONDS)


def _request(
    topic: str,
    place: str,
    layout: SourceLayout,
    topic_id: str | None,
    offsets: Path | None,
    remote_metadata: str | None,
    partitions: int | None,
) -> migration.SourceRequest:
    found = None if topic_id is None else _topic_id(topic_id)
    return migration.SourceRequest(topic, place, layout, found, offsets, remote_metadata, partitions)


def _topic_id(text: str) -> UUID:
    try:
        return parse_topic_id(text)
    except ValueError as error:
        raise Failure(
            f"--topic-id = {text!r}: must be a UUID, or 22 characters as Kafka writes it", USAGE
        ) from error


def _refusal(plan: AttachPlan) -> str:
    more = len(plan.refused) - 1
    return f"topic {plan.topic} cannot be attached: {plan.refused[0]}" + (
        f" (and {more} more)" if more else ""
    )


def _pairs(given: Sequence[str] | None) -> dict[str, str]:
    pairs = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise Failure(
                f"--topic-config = {text!r}: must be NAME=VALUE, such as retention.ms=86400000", USAGE
            )
        pairs[name] = value
    return pairs
