"""`drayd admin lost`: what the log has lost, and the way out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dray.cli.options import ConfigOption, DataDirOption, ExecuteOption, JsonOption, load_config
from dray.cli.output import print_json, print_table
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.words import counted
from dray.daemons.recovery.lost import LostRange, WayOut
from dray.daemons.recovery.lost import lost as find_lost


def lost(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="The topic's name; without it, all topics.")
    ] = None,
    *,
    give_up: Annotated[
        bool,
        typer.Option("--give-up", help="Let consumers go on behind what is gone. Its records are lost then."),
    ] = False,
    recover: Annotated[
        bool,
        typer.Option(
            "--recover",
            help="Bring back the rows that other compacted files, or the topic's table, still have.",
        ),
    ] = False,
    undelete: Annotated[
        bool,
        typer.Option("--undelete", help="Bring back what the bucket still has a version of (S3)."),
    ] = False,
    execute: ExecuteOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Show which objects the log names and no store has: WAL objects, compacted files, foreign segments.

    Consumers stop at such a place with an error (INVALID_MSG, CORRUPT_MESSAGE). Each object is asked for
    several times, with pauses, and only if the bucket is the cluster's own. If you have a copy, put
    the object back under its path: nothing else is to be done then.

    With --undelete, objects come back of which the bucket still has a version (on S3; it needs boto3): the
    delete markers on top of them are taken away. Try this first. It works without a topic's name, too.

    With --recover, rows come back into files of the log: from a compacted file that the log does not name, as
    after a restore of earlier metadata; or those that the topic's table still has in files of another writer
    (rewrite_data_files, then expire_snapshots). These are what the table says: drayd admin table shows
    whether somebody changed its rows.

    With --give-up, consumers are led over these offsets, and all that lies behind is served. Nothing brings
    the records back after that. All brokers and compactors must run this version or a later one.

    [dim]Example:[/] drayd admin lost orders --data-dir ./dray-data --give-up --execute
    """
    asked = {WayOut.UNDELETE: undelete, WayOut.RECOVER: recover, WayOut.GIVE_UP: give_up}
    if sum(asked.values()) > 1:
        raise Failure("one after the other: --undelete first, then --recover, and --give-up last", USAGE)
    way = next((each for each, is_asked in asked.items() if is_asked), WayOut.LOOK)
    if way in (WayOut.GIVE_UP, WayOut.RECOVER) and topic is None:
        raise Failure("of which topic?", USAGE)
    if execute and way is WayOut.LOOK:
        raise Failure("--execute: to what? Add --undelete, --recover or --give-up", USAGE)
    found = find_lost(load_config(config, data_dir).settings, topic, way, confirmed=execute)
    if json:
        print_json([asdict(each) for each in found])
    else:
        _print(found, way, execute=execute)


def _print(found: list[LostRange], way: WayOut, *, execute: bool) -> None:
    if not found:
        typer.echo("Nothing is lost: each object that the index names is in its store.")
        return
    heads = ["topic", "partition", "from offset", "to offset", "kind", "state", "object"]
    rows = [
        (each.topic, each.partition, each.first, each.last, each.kind, each.state, each.path)
        for each in found
    ]
    print_table(heads, rows)
    offsets = sum(each.last - each.first + 1 for each in found)
    if way is WayOut.RECOVER:
        stays = "What is neither in files nor in the table stays gone."
        typer.echo(stays if execute else "Nothing was done. To bring the rows back, add --execute.")
    elif way is WayOut.UNDELETE:
        stays = "Consumers go on within a minute. For what is not back: --recover, then --give-up."
        typer.echo(stays if execute else "Nothing was done. To bring the versions back, add --execute.")
    elif execute:
        typer.echo(f"{counted(offsets, 'offset')} given up: consumers go on behind them.")
    elif way is WayOut.GIVE_UP:
        typer.echo(f"Nothing was done. To give {counted(offsets, 'offset')} up for good, add --execute.")
    else:
        typer.echo(
            "Put the objects back if you can: --undelete. Else --give-up. Both say first what they would do."
        )
