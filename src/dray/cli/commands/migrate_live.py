"""`drayd migrate link`, `switch`: a topic moves here while its clients work. Migrators do it (`drayd
migrator`); these commands ask for it."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from dray.cli.link_views import (
    preview_as_plain,
    print_hand_over,
    print_handed_over,
    print_link,
    print_switch,
)
from dray.cli.migration_views import AttachBar
from dray.cli.options import ConfigOption, DataDirOption, JsonOption, load_config
from dray.cli.output import print_json, say
from dray.daemon import links
from dray.daemon.failures import USAGE, Failure
from dray.daemon.hand_over import hand_over as hand_over_groups
from dray.daemon.migration import SourceRequest
from dray.migration.following import GroupsOfTopic
from dray.migration.inventory import SourceLayout
from dray.migration.record import MigrationRecord

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name, here and there.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


class FenceKind(StrEnum):
    ACL = "acl"
    SIZE = "size"
    STOPPED = "stopped"


def link(
    topic: TopicArgument,
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
    look: Annotated[bool, typer.Option("--look", help="Show what would happen, and do nothing.")] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Make a topic here of one that a Kafka cluster has, and keep it like that one: records, offsets,
    configs, the offsets of groups. Clients can read it here from then on. The source goes on to own it until
    [bold]drayd migrate switch[/].

    It shows what will happen, and asks. A migrator must run ([bold]drayd up[/] runs one, or [bold]drayd
    migrator[/]), and every broker needs the cluster in its config. It may be run again after a failure.

    [dim]Example:[/] drayd migrate link orders --from-cluster old --config /etc/dray.yaml
    """
    settings = load_config(config, data_dir).settings
    request = links.LinkRequest(topic, upstream, _tier(topic, place, layout))
    with AttachBar("looking at the source") as bar:
        if look:
            found = links.preview(settings, request, bar, say)
            bar.pause()
            print_json(preview_as_plain(found)) if json else print_link(found)
            return

        def approve(seen: links.LinkPreview) -> bool:
            bar.pause()
            if not json:
                print_link(seen)
            return _agreed(yes, f"Link {topic}?")

        done = links.link(settings, request, approve, bar, say)
    if done is None:
        print("Nothing was done.")
        return
    if json:
        print_json({"topic": topic, "state": done.state.value, "topic_id": str(done.topic_id)})
        return
    print(f"topic {topic} is linked: {done.partitions} partitions, id {done.topic_id}")
    print(f"watch the mirror with: drayd migrate status {topic} --watch")


def switch(
    topic: TopicArgument,
    *,
    fence: Annotated[
        FenceKind,
        typer.Option(
            "--fence",
            help="How the source's writers are stopped. acl: WRITE is denied to all (needs an authorizer; "
            "super users are not stopped). size: no batch is small enough (refused while transactions are "
            "open). stopped: you have stopped them, and nothing is checked but that the end stands still.",
        ),
    ] = FenceKind.ACL,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is done, or went back.")] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Make a linked topic Dray's: the source's writers are fenced off, the rest is mirrored, and from then on
    records are appended here. There is no way back behind this.

    Should something not come right, the fence is lifted and everything is as before: [bold]drayd migrate
    status[/] says why.

    [dim]Example:[/] drayd migrate switch orders --wait --config /etc/dray.yaml
    """
    settings = load_config(config, data_dir).settings

    def approve(seen: links.SwitchPreview) -> bool:
        if not json:
            print_switch(topic, fence.value, seen)
        return _agreed(yes, f"Switch {topic}? There is no way back.")

    asked = links.switch(settings, topic, fence.value, approve, say)
    if asked is None:
        print("Nothing was done.")
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
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Hand the groups of a switched topic over, though the source cannot say any more whether they have
    members there. While it can, a migrator does it when the last member has left, with its last offsets.

    [dim]Example:[/] drayd migrate hand-over orders --without-source --config /etc/dray.yaml
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
        return _agreed(yes, f"Hand the groups of {topic} over?")

    done = hand_over_groups(settings, topic, approve)
    if done is None:
        print("Nothing was done.")
    elif json:
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


def _agreed(yes: bool, question: str) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Failure("nothing was done: add --yes", USAGE)
    return typer.confirm(question)
