"""`drayd admin groups`: what consumers read, how far behind they are, and where they go on.

It is as users of `kafka-consumer-groups` expect, with the same words: a reset is a dry run until `--execute`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from dray.base.runtime import SystemRuntime
from dray.cli import group_views
from dray.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    ExecuteOption,
    JsonOption,
    ask,
)
from dray.cli.output import print_json, print_table
from dray.daemons.assembly.failures import USAGE, Failure
from dray.inspection.groups.resets import RESETTABLE, OffsetMove, find_bounds, plan_moves
from dray.inspection.groups.views import GroupView
from dray.kafka.client import Cluster
from dray.kafka.client.groups import GroupCalls, refuse_live
from dray.kafka.protocol.messages.list_groups import ListedGroup

app = typer.Typer(
    help="List, describe and delete consumer groups, and reset their offsets.", no_args_is_help=True
)

STATES = ("Assigning", "CompletingRebalance", "Dead", "Empty", "PreparingRebalance", "Reconciling", "Stable")
TYPES = ("classic", "consumer", "share", "streams")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
GroupsArgument = Annotated[list[str], typer.Argument(metavar="GROUP...", help="Ids of groups.")]


@app.command("list")
def list_(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help=f"Only in this state ({', '.join(STATES)}); repeatable."
        ),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help=f"Only of this type ({', '.join(TYPES)}); repeatable."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the groups, with their type and state.

    [dim]Example:[/] drayd admin groups list --state Stable --type consumer
    """
    states, types = _known("--state", state, STATES), _known("--type", type_, TYPES)

    async def list_groups(cluster: Cluster) -> list[ListedGroup]:
        return await GroupCalls(cluster).list_groups(states, types)

    found = ask(bootstrap, command_config, list_groups)
    if json:
        print_json(
            [
                {
                    "group": group.group_id,
                    "type": group.group_type,
                    "state": group.group_state,
                    "protocol_type": group.protocol_type,
                }
                for group in found
            ]
        )
    elif found:
        print_table(
            ["group", "type", "state", "protocol-type"],
            [
                (group.group_id, group.group_type, group.group_state, group.protocol_type or "-")
                for group in found
            ],
        )
    else:
        print("no groups" + (" like that" if states or types else " yet"))


@app.command("describe")
def describe(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP...", help="Ids of groups.", show_default=False)
    ] = None,
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every group there is.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Offsets and lag of each partition: the default.")
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="The members, and what each reads.")] = False,
    state: Annotated[bool, typer.Option("--state", help="One line per group.")] = False,
    json: JsonOption = False,
) -> None:
    """Show groups: state, members, and how far each partition is read.

    [dim]Example:[/] drayd admin groups describe billing --members --offsets
    """
    if bool(groups) == all_groups:
        raise Failure("give the ids of groups, or --all-groups", USAGE)

    async def view(cluster: Cluster) -> list[GroupView]:
        calls = GroupCalls(cluster)
        names = groups or [group.group_id for group in await calls.list_groups(types=("classic", "consumer"))]
        return [await group_views.view_group(name, cluster) for name in names]

    views = ask(bootstrap, command_config, view)
    if json:
        print_json([group_views.as_plain(found) for found in views])
        return
    if state:
        group_views.print_states(views)
    if state and not (members or offsets):
        return
    for number, found in enumerate(views):
        if number or state:
            print()
        group_views.print_summary(found)
        if members:
            group_views.print_members(found)
        if offsets or not members:
            group_views.print_offsets(found)


@app.command("delete")
def delete(
    groups: GroupsArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="It is no error if there is none.")] = False,
    execute: ExecuteOption = False,
) -> None:
    """Delete groups that have no members, with all their offsets. Only shows which, unless told to --execute.

    [dim]Example:[/] drayd admin groups delete billing --execute
    """

    async def delete_each(cluster: Cluster) -> None:
        calls = GroupCalls(cluster)
        if not execute:
            absent = [name for name in groups if if_exists and await calls.describe_if_any(name) is None]
            for name in absent:
                print(f"there is no group {name}")
            for name in [name for name in groups if name not in absent]:
                found = await group_views.view_group(name, cluster)
                group_views.print_summary(found)
                group_views.print_offsets(found)
            if len(absent) < len(groups):
                print("nothing was deleted: add --execute to do this")
            return
        for name in groups:
            deleted = await calls.delete(name, if_exists)
            print(f"group {name} deleted" if deleted else f"there is no group {name}")

    ask(bootstrap, command_config, delete_each)


@app.command("reset-offsets")
def reset_offsets(
    group: GroupArgument,
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC[:0,1]", help="Of this topic, or partitions; repeatable."
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Of every partition with a committed offset.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record there is.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To where it is; else latest.")] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", help="To this offset.", show_default=False)
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="Forward by so many, or back.", show_default=False)
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            "--to-time",
            metavar="TIME",
            help="To the first record from this time on: 2026-01-31T18:00:00.000; UTC without a zone.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="DURATION", help="To so long ago, such as PT2H or 90m."),
    ] = None,
    execute: ExecuteOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show it: the default.")] = False,
    json: JsonOption = False,
) -> None:
    """Set where a group goes on. Only shows the new offsets, unless told to --execute.

    Only for a group without live members. A group that does not exist yet can be given a start this way.

    [dim]Example:[/] drayd admin groups reset-offsets billing --topic orders --to-earliest --execute
    """
    if execute and dry_run:
        raise Failure("give --execute or --dry-run, not both", USAGE)
    if bool(topic) == all_topics:
        raise Failure("say what to reset: --topic TOPIC, --topic TOPIC:0,1 or --all-topics", USAGE)
    chosen = None if all_topics else group_views.parse_topics(topic or [])
    target = group_views.choose_target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
        now_ms=SystemRuntime().wall_ms(),
    )

    async def reset(cluster: Cluster) -> list[OffsetMove]:
        calls = GroupCalls(cluster)
        found = await calls.describe_if_any(group)
        if found is not None and found.state != RESETTABLE:
            refuse_live(group, found.state, len(found.members))
        committed = {} if found is None else await calls.committed(group)
        bounds = await find_bounds(chosen, committed, target, cluster)
        moves = plan_moves(target, bounds, committed)
        if execute and moves:
            await calls.commit(group, {(move.topic, move.partition): move.new for move in moves})
        return moves

    moves = ask(bootstrap, command_config, reset)
    if json:
        print_json(group_views.plain_moves(group, moves, execute))
        return
    if not moves:
        print(f"group {group} has no committed offsets: nothing to reset")
        return
    group_views.print_moves(moves)
    print(f"group {group} reset" if execute else "nothing was changed: add --execute to do this")


def _known(flag: str, given: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Kafka's lists may be separated by commas, in any case."""
    by_lower = {name.lower(): name for name in known}
    wanted = [part.strip() for text in given or () for part in text.split(",")]
    for name in wanted:
        if name.lower() not in by_lower:
            raise Failure(f"{flag} = {name!r}: must be one of {', '.join(known)}", USAGE)
    return [by_lower[name.lower()] for name in wanted]
