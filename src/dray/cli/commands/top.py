"""`drayd top`: the cluster in a terminal, from the same views as the console."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dray.base.runtime import SystemRuntime
from dray.base.runtime.shown import printable
from dray.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    JsonOption,
    client_security,
    parse_bootstrap,
)
from dray.cli.output import print_json
from dray.daemons.assembly.failures import Failure
from dray.inspection.brokers import CLIENT_ID, LARGEST_FRAME, Brokers, BrokerUnreachable
from dray.inspection.cluster import ClusterSummary, cluster_view
from dray.inspection.groups.views import GroupAges, GroupsPage, groups_page
from dray.inspection.plain import as_plain
from dray.inspection.topics.views import TopicsPage, topics_page
from dray.kafka.client import ClientError, RequestFailed
from dray.kafka.client.properties import ClientSecurity


@dataclass(frozen=True)
class TopView:
    cluster: ClusterSummary
    topics: TopicsPage
    groups: GroupsPage
    ages: Mapping[str, int]
    """By group, how old its first unread record is, in milliseconds."""


def top(
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.5, max=3600, help="Seconds between two looks.")
    ] = 2.0,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, max=500, help="Topics and groups shown.")] = 15,
    wanted: Annotated[
        str,
        typer.Option(
            "--filter", "-f", metavar="TEXT", help="Only topics and groups with this in their name."
        ),
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Look once, print, and end.")] = False,
    json: JsonOption = False,
) -> None:
    """Watch a cluster in the terminal: brokers, topics and their traffic, groups and their lag.

    Speaks the Kafka protocol, so it works on Apache Kafka too. Stop it with Ctrl-C.

    [dim]Example:[/] drayd top --bootstrap 127.0.0.1:9092 --filter orders
    """
    addresses = parse_bootstrap(bootstrap)
    security = client_security(command_config)
    with suppress(KeyboardInterrupt):
        asyncio.run(_watch(addresses, security, interval, rows, wanted, once=once or json, json=json))


async def _watch(
    addresses: list[tuple[str, int]],
    security: ClientSecurity,
    interval: float,
    rows: int,
    wanted: str,
    *,
    once: bool,
    json: bool,
) -> None:
    runtime = SystemRuntime()
    brokers = Brokers(addresses, runtime, dial=security.dialer(CLIENT_ID, runtime, LARGEST_FRAME))
    try:
        ages = GroupAges(brokers)
        seen = await look(brokers, ages, rows, wanted)
        if json:
            print_json(as_plain(seen))
        elif once:
            Console().print(picture(seen, None, 0.0))
        else:
            await _follow(brokers, ages, seen, interval, rows, wanted)
    except (ClientError, RequestFailed, BrokerUnreachable) as error:
        raise Failure(str(error)) from error
    finally:
        await brokers.close()
        runtime.close()


async def _follow(
    brokers: Brokers, ages: GroupAges, seen: TopView, interval: float, rows: int, wanted: str
) -> None:
    runtime = brokers.runtime
    at = runtime.monotonic()
    with Live(picture(seen, None, 0.0), screen=True, auto_refresh=False) as live:
        while True:
            await runtime.sleep(interval)
            try:
                now = await look(brokers, ages, rows, wanted)
            except (ClientError, RequestFailed, BrokerUnreachable) as error:
                trouble = Text(f"not up to date: {error}", style="bold red")
                live.update(Group(trouble, picture(seen, None, 0.0)), refresh=True)
                continue
            seconds = runtime.monotonic() - at
            live.update(picture(now, seen, seconds), refresh=True)
            seen, at = now, at + seconds


async def look(brokers: Brokers, ages: GroupAges, rows: int, wanted: str) -> TopView:
    groups = await groups_page(brokers, wanted, size=rows)
    return TopView(
        await cluster_view(brokers),
        await topics_page(brokers, wanted, size=rows),
        groups,
        await ages.look([row.name for row in groups.rows]),
    )


def picture(view: TopView, before: TopView | None, seconds: float) -> RenderableType:
    """`before` and how long ago that was: what came in between is shown as a rate."""
    cluster = view.cluster
    states = ", ".join(f"{count} {state}" for state, count in sorted(cluster.groups.items())) or "none"
    head = Text.assemble(
        (f"cluster {printable(cluster.cluster_id)}", "bold"),
        f"  {len(cluster.brokers)} brokers  {cluster.topics} topics  {cluster.partitions} partitions",
        f"  groups: {states}",
    )
    troubles = [Text(printable(line), style="bold red") for line in _troubles(cluster)]
    return Group(head, *troubles, Text(), _topics(view, before, seconds), Text(), _groups(view))


def _troubles(cluster: ClusterSummary) -> list[str]:
    wrong = [f"{check.what}: {check.said}" for check in cluster.health if check.state == "bad"]
    return [*cluster.trouble, *wrong]


def _topics(view: TopView, before: TopView | None, seconds: float) -> Table:
    known = {row.name: row for row in before.topics.rows} if before is not None else {}
    table = _table(
        f"topics ({view.topics.matching})", "partitions", "records", "records/s", "bytes", "bytes/s"
    )
    for row in view.topics.rows:
        old = known.get(row.name)
        table.add_row(
            Text(printable(row.name)),
            str(row.partitions),
            _whole(row.records),
            _rate(row.records, None if old is None else old.records, seconds),
            _whole(row.size),
            _rate(row.size, None if old is None else old.size, seconds),
        )
    return table


def _rate(now: int | None, before: int | None, seconds: float) -> str:
    """The records that came in a second; nothing if fewer are there than before, since some have expired."""
    if now is None or before is None or seconds <= 0:
        return "-"
    return f"{max(0, now - before) / seconds:,.0f}"


def _groups(view: TopView) -> Table:
    table = _table(f"groups ({view.groups.matching})", "state", "type", "lag", "seconds")
    for row in view.groups.rows:
        age = view.ages.get(row.name)
        table.add_row(
            Text(printable(row.name)),
            row.state,
            row.group_type,
            _whole(row.lag),
            "-" if age is None else f"{age / 1000:,.1f}",
        )
    return table


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column(first, overflow="ellipsis", no_wrap=True, ratio=1)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _whole(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
