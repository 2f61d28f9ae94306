"""`drayd migrate link`, `switch`: a topic moves here while its clients work. Migrators do it (`drayd
migrator`); these commands ask for it."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from dray.cli.commands.migrate.many import ManySwitches, is_pattern, link_many, switch_many
from dray.cli.link_views import (
    preview_as_plain,
    print_hand_over,
    print_handed_over,
    print_link,
    print_switch,
)
from dray.cli.migration_views import AttachBar
from dray.cli.options import ConfigOption, DataDirOption, ExecuteOption, JsonOption, load_config, to_be_done
from dray.cli.output import print_json, say
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.migrator import links
from dray.daemons.migrator.migration import SourceRequest
from dray.daemons.migrator.migration import hand_over as hand_over_groups
from dray.migration.attach.inventory import SourceLayout
from dray.migration.groups.rounds import GroupsOfTopic
from dray.migration.record import ASSIGNING, TRANSACTIONS, MigrationRecord

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name, here and there.")]
PatternArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="The topic's name, here and there; or a pattern in quotes, such as 'orders.*'."
    ),
]
AclsOption = Annotated[
    bool,
    typer.Option(
        "--acls", help="Add the ACLs on the topic and its groups that the source has and Dray lacks."
    ),
]
QuotasOption = Annotated[
    bool,
    typer.Option("--quotas", help="Set the quotas of users and clients that the source has and Dray lacks."),
]


class FenceKind(StrEnum):
    ACL = "acl"
    SIZE = "size"
    STOPPED = "stopped"


def link(
    topic: PatternArgument,
    *,
    upstream: Annotated[
        str,
        typer.Option(
            "--from-cluster", metavar="NAME", help="The cluster that has it: a name of upstream.clusters."
        ),
    ],
    place: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="STORE",
            help="Where the source's tiered storage is: a name of foreign.stores. Its segments are read "
            "where they lie, and only what is behind them is mirrored.",
            show_default=False,
        ),
    ] = None,
    layout: Annotated[
        SourceLayout | None,
        typer.Option(
            "--layout", help="With --from: kafka-tiered or aiven-1.", show_default=False, show_choices=False
        ),
    ] = None,
    acls: AclsOption = False,
    quotas: QuotasOption = False,
    open_to_all: Annotated[
        bool,
        typer.Option(
            "--open-to-all",
            help="Though Dray asks nobody who may do what, and the source does: whoever reaches Dray may "
            "then read the topic, and write into the source.",
        ),
    ] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    execute: ExecuteOption = False,
    json: JsonOption = False,
) -> None:
    """Make a topic here of one that a Kafka cluster has, and keep it like that one: records, offsets,
    configs, the offsets of groups. Clients can read it here from then on. The source goes on to own it until
    [bold]drayd migrate switch[/].

    A pattern (with [bold]*[/] or [bold]?[/], as in a shell) stands for all topics of the source that it names
    and that are not linked yet: they are shown together, and linked one after the other.

    It shows what will happen, and does it with --execute. A migrator must run ([bold]drayd up[/] runs one,
    or [bold]drayd migrator[/]), and every broker needs the cluster in its config. It may be run again after a
    failure.

    [dim]Example:[/] drayd migrate link orders --from-cluster old --config /etc/dray.yaml --execute
    """
    settings = load_config(config, data_dir).settings
    tier = _tier(topic, place, layout)
    request = links.LinkRequest(topic, upstream, tier, open_to_all, acls, quotas)
    if is_pattern(topic):
        link_many(settings, request, execute=execute, json=json)
        return
    with AttachBar("looking at the source") as bar:
        if not execute:
            found = links.preview(settings, request, bar, say)
            bar.pause()
            print_json(preview_as_plain(found)) if json else print_link(found)
            to_be_done(execute)
            return

        def approve(seen: links.LinkPreview) -> bool:
            bar.pause()
            if not json:
                print_link(seen)
            return True

        done = links.link(settings, request, approve, bar, say)
    if done is None:
        return
    if json:
        print_json({"topic": topic, "state": done.state.value, "topic_id": str(done.topic_id)})
        return
    print(f"topic {topic} is linked: {done.partitions} partitions, id {done.topic_id}")
    print(f"watch the mirror with: drayd migrate status {topic} --watch")


def switch(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]", help="The topic's name, or a pattern in quotes, such as 'orders.*'."
        ),
    ] = None,
    *,
    all_topics: Annotated[bool, typer.Option("--all", help="All topics that are linked.")] = False,
    fence: Annotated[
        FenceKind | None,
        typer.Option(
            "--fence",
            show_default=False,
            help="How the source's writers are stopped; by itself acl, or size where the source has no "
            "authorizer. acl: WRITE is denied to all (needs an authorizer; "
            "super users are not stopped). size: no batch is small enough (refused while transactions are "
            "open). stopped: you have stopped them, and nothing is checked but that the end stands still.",
        ),
    ] = None,
    without_transactions: Annotated[
        bool,
        typer.Option(
            "--without-transactions",
            help="Switch it though transactional producers write to it at the source: they can write to "
            "neither side afterwards.",
        ),
    ] = False,
    consumers_stopped: Annotated[
        bool,
        typer.Option(
            "--consumers-stopped",
            help="Consumers that assign partitions to themselves (Flink, say) are stopped at the source. "
            "What they commit there behind the switch is lost.",
        ),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is done, or went back.")] = False,
    acls: AclsOption = False,
    quotas: QuotasOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    execute: ExecuteOption = False,
    json: JsonOption = False,
) -> None:
    """Make a linked topic Dray's: the source's writers are fenced off, the rest is mirrored, and from then on
    records are appended here. There is no way back behind this.

    A pattern, or [bold]--all[/], stands for all linked topics that are still mirrored: all of them are looked
    at and shown together; where one is refused, none is switched.

    Should something not come right, the fence is lifted and everything is as before: [bold]drayd migrate
    status[/] says why.

    [dim]Example:[/] drayd migrate switch orders --wait --config /etc/dray.yaml --execute
    """
    settings = load_config(config, data_dir).settings
    said = {TRANSACTIONS: without_transactions, ASSIGNING: consumers_stopped}
    allows = [what for what, is_said in said.items() if is_said]
    if all_topics == (topic is not None):
        raise Failure("which topic? A name, a pattern in quotes, or --all", USAGE)
    if topic is None or is_pattern(topic):
        wanted = ManySwitches(topic or "*", fence, tuple(allows), acls, quotas)
        switch_many(settings, wanted, execute=execute, wait=wait, json=json)
        return

    def approve(seen: links.SwitchPreview) -> bool:
        if not json:
            print_switch(topic, seen)
        if refusal := seen.users.refusal(topic, allows):
            raise Failure(f"nothing was done: {refusal}")
        if not json:
            print("there is no way back behind this")
        return to_be_done(execute)

    asked = links.switch(
        settings, topic, fence, approve, say, allows=allows, carries_acls=acls, carries_quotas=quotas
    )
    if asked is None:
        return
    done = links.wait_switched(settings, topic, asked, _Said(quiet=json)) if wait else asked
    if json:
        print_json({"topic": topic, "state": done.state.value, "fence": done.fence, "attempt": done.attempt})
    elif wait:
        print(f"topic {topic} is Dray's")
    else:
        print(f"topic {topic}: {done.state.value}; a migrator goes on: drayd migrate status {topic} --watch")


def hand_over(
    topic: TopicArgument,
    *,
    without_source: Annotated[
        bool,
        typer.Option(
            "--without-source",
            help="The source is gone for good: groups are Dray's with the offsets that were copied last.",
        ),
    ] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    execute: ExecuteOption = False,
    json: JsonOption = False,
) -> None:
    """Hand the groups of a switched topic over, though the source cannot say any more whether they have
    members there. While it can, a migrator does it when the last member has left, with its last offsets.

    [dim]Example:[/] drayd migrate hand-over orders --without-source --config /etc/dray.yaml --execute
    """
    if not without_source:
        raise Failure(
            "a migrator hands groups over when their last member has left the source; if that is gone for "
            "good, add --without-source",
            USAGE,
        )
    settings = load_config(config, data_dir).settings

    def approve(found: GroupsOfTopic) -> bool:
        if not json:
            print_hand_over(topic, found)
        return to_be_done(execute)

    done = hand_over_groups(settings, topic, approve)
    if done is None:
        return
    if json:
        report = done.report
        found = {"handed_over": report.handed_over, "released": report.released, "waiting": report.waiting}
        print_json({"topic": topic, "state": done.record.state.value, **found})
    else:
        print_handed_over(topic, done)


class _Said:
    """Each state of a wait once, on standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._last = ""

    def __call__(self, record: MigrationRecord) -> None:
        text = record.state.value if record.why is None else f"{record.state.value}: {record.why}"
        if text != self._last and not self._quiet:
            print(text, file=sys.stderr)
        self._last = text


def _tier(topic: str, place: str | None, layout: SourceLayout | None) -> SourceRequest | None:
    if (place is None) != (layout is None):
        raise Failure("--from and --layout go together: where the tier is, and who wrote it", USAGE)
    if place is None or layout is None:
        return None
    if layout not in (SourceLayout.KAFKA_TIERED, SourceLayout.AIVEN):
        raise Failure(
            f"--layout = {layout.value!r}: a live topic has its tier as kafka-tiered or aiven-1", USAGE
        )
    return SourceRequest(topic, place, layout)
