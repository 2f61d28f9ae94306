"""`drayd migrate stragglers`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from dray.base.runtime.shown import printable
from dray.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    ConfigOption,
    DataDirOption,
    ExecuteOption,
    JsonOption,
    client_security,
    load_config,
    parse_bootstrap,
)
from dray.cli.output import print_json, print_table, say
from dray.daemons.assembly.failures import Failure
from dray.daemons.migrator import stragglers as daemon
from dray.migration.live.stragglers import StragglersLeft

KEY_SHOWN = 40


def stragglers(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic that was linked and has switched.")],
    produce: Annotated[
        bool, typer.Option("--produce", help="Produce them to the topic at Dray, each once.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    execute: ExecuteOption = False,
    json: JsonOption = False,
) -> None:
    """Show the records that reached the source after the topic had become Dray's: writers that no fence
    stopped were told that they are stored, and they are not here. Ends with 1 while there are any.

    With --produce they are produced to Dray with their keys, values, headers and times, behind what is there
    by now. It may be run again after a failure, and sends none twice.

    [dim]Example:[/] drayd migrate stragglers orders --produce --execute
    """
    settings = load_config(config, data_dir).settings
    found = daemon.look(settings, topic, say)
    if json:
        print_json(_as_plain(topic, found))
    elif found.shown:
        _print(topic, found)
    elif not found.undecided:
        print(f"topic {topic}: no record is left behind at the source")
        if found.ranges and not produce:
            print("some offsets are, without a record that is missing: with --produce they are not counted")
    if found.shown and not produce:
        raise Failure(f"topic {topic}: records are at the source alone: add --produce to produce them here")
    if found.shown and not execute:
        raise Failure("nothing was done: add --execute to produce them")
    if produce and found.ranges:  # also where it is markers alone: they are not counted any more then
        brokers = parse_bootstrap(bootstrap)
        sent = daemon.produce(settings, topic, brokers, client_security(command_config), say)
        if not json:
            print(f"topic {topic}: {sent} records were produced")
    if found.undecided:
        partitions = ", ".join(map(str, found.undecided))
        raise Failure(
            f"topic {topic}: a transaction is open at the source behind the boundary (partitions "
            f"{partitions}): end it (kafka-transactions.sh), then run this again"
        )


def _print(topic: str, found: StragglersLeft) -> None:
    for partition, each in found.ranges.items():
        print(f"topic {topic}, partition {partition}: offsets {each.start} to {each.end - 1} at the source")
    rows = [
        (
            str(each.partition),
            str(each.offset),
            datetime.fromtimestamp(each.timestamp / 1000, UTC).isoformat(timespec="milliseconds"),
            _key(each.key),
            str(each.size),
        )
        for each in found.shown
    ]
    print_table(("PARTITION", "OFFSET", "TIME", "KEY", "BYTES"), rows)
    if not found.are_all:
        print("... and more")


def _key(key: bytes | None) -> str:
    if key is None:
        return "(none)"
    return printable(key[:KEY_SHOWN].decode(errors="backslashreplace"))


def _as_plain(topic: str, found: StragglersLeft) -> dict[str, object]:
    return {
        "topic": topic,
        "ranges": {str(partition): [each.start, each.end] for partition, each in found.ranges.items()},
        "undecided": found.undecided,
        "records": [
            {
                "partition": each.partition,
                "offset": each.offset,
                "timestamp": each.timestamp,
                "key": None if each.key is None else _key(each.key),
                "bytes": each.size,
            }
            for each in found.shown
        ],
        "are_all": found.are_all,
    }
