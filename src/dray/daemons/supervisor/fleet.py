"""`drayd up --brokers N`: N brokers on this machine, one process each, on one pair of stores.

A broker is one process on one core, so this is how a machine uses all of its cores. It is also the smallest
real cluster: each broker has its own id and addresses, and any of them may be killed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from rich.console import Console

from dray.base.config.kinds import Address, size_text
from dray.base.runtime import SystemRuntime
from dray.base.telemetry import configure_logging
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.log_format import log_format
from dray.daemons.assembly.process import FileLock, StopSignals, goes_with_its_terminal
from dray.daemons.assembly.reread import Rereading
from dray.daemons.broker.node import LEAST_STOP_SECONDS
from dray.daemons.broker.process import check_settings
from dray.daemons.config import Settings
from dray.daemons.config.listeners import ListenerPlace
from dray.daemons.supervisor.children import ConsoleBeside, children_beside, start_console
from dray.daemons.supervisor.processes import Child, Supervisor

LARGEST_PORT = 65535


def serve_fleet(
    settings: Settings,
    count: int,
    config: Path | None,
    lock: FileLock,
    *,
    banner: bool,
    again: Callable[[], Settings],
) -> None:
    check_settings(settings)
    children = broker_children(settings, count, config)
    with lock, asyncio.Runner() as runner:
        runner.run(_run(settings, children, config, banner=banner, again=again))


def broker_children(settings: Settings, count: int, config: Path | None) -> list[Child]:
    """The commands of the brokers. Ids and ports count upwards from those of the settings; where the system
    chooses the ports (0), it does so for each."""
    _check_shared(settings)
    broker = settings.broker
    first_id = broker.id or 0
    listening: dict[str, Address] = {
        f"broker.listeners.{name}": address for name, address in broker.listeners.items()
    }
    if broker.listen is not None:
        listening["broker.listen"] = broker.listen
    if broker.http is not None:
        listening["broker.http"] = broker.http
    advertised = {
        f"broker.advertised_listeners.{n}": address for n, address in broker.advertised_listeners.items()
    }
    if broker.advertised is not None:
        advertised["broker.advertised"] = broker.advertised
    for key, address in (listening | advertised).items():
        if address.port and address.port + count - 1 > LARGEST_PORT:
            raise Failure(f"{key}: {count} ports from {address.port} on are beyond {LARGEST_PORT}", USAGE)
    _check_apart(listening, count)
    grace = broker.shutdown_grace + 4 * LEAST_STOP_SECONDS
    return [
        Child(
            f"broker {first_id + number}",
            _arguments(settings, number, first_id + number, config),
            _environment(settings, number, count),
            stop_seconds=grace,
        )
        for number in range(count)
    ]


def _check_shared(settings: Settings) -> None:
    """Refuse stores in memory: several processes cannot share them."""
    for key, chosen in (("metadata.engine", settings.metadata.engine), ("objects.url", settings.objects_url)):
        if chosen.startswith("memory"):
            raise Failure(f"{key} = {chosen}: several brokers need a store that they can share", USAGE)


def _check_apart(listening: Mapping[str, Address], count: int) -> None:
    """One broker's ports may lie side by side; those of several must leave room for each other."""
    for (one, first), (other, second) in combinations(listening.items(), 2):
        if first.host == second.host and first.port and second.port and abs(first.port - second.port) < count:
            raise Failure(
                f"{one} = {first} and {other} = {second}: {count} brokers count upwards from there and would "
                "share ports: choose addresses further apart",
                USAGE,
            )


def _arguments(settings: Settings, number: int, broker_id: int, config: Path | None) -> Sequence[str]:
    broker = settings.broker
    arguments = ["broker", "--data-dir", settings.data_dir, "--broker-id", str(broker_id)]
    arguments += ["--listen", "off" if broker.listen is None else str(_nth(broker.listen, number))]
    arguments += ["--http", "off" if broker.http is None else str(_nth(broker.http, number))]
    if config is not None:
        arguments += ["--config", str(config)]
    return arguments


def _environment(settings: Settings, number: int, count: int) -> Mapping[str, str]:
    """The settings of a child that have no flags."""
    broker = settings.broker
    variables = {}
    if settings.log.tail_cache_bytes is None:
        variables["DRAY_LOG__TAIL_CACHE_BYTES"] = size_text(settings.for_one_of(count).log.tail_bytes)
    if broker.advertised is not None:
        variables["DRAY_BROKER__ADVERTISED"] = str(_nth(broker.advertised, number))
    for name, listener in broker.listeners.items():
        place = replace(listener, port=_nth(listener, number).port)
        shown = ListenerPlace().render(place)
        variables[f"DRAY_BROKER__LISTENERS__{name}"] = shown if isinstance(shown, str) else json.dumps(shown)
    for name, address in broker.advertised_listeners.items():
        variables[f"DRAY_BROKER__ADVERTISED_LISTENERS__{name}"] = str(_nth(address, number))
    return variables


def _nth(address: Address, number: int) -> Address:
    return Address(address.host, address.port + number if address.port else 0)


async def _run(
    settings: Settings,
    children: Sequence[Child],
    config: Path | None,
    *,
    banner: bool,
    again: Callable[[], Settings],
) -> None:
    runtime = SystemRuntime()
    configure_logging(log_format(settings), settings.logging.level, runtime)
    supervisor = Supervisor([*children, *children_beside(settings, config)], runtime)
    console: ConsoleBeside | None = None
    rereading = Rereading(runtime, again)

    def hang_up() -> None:
        rereading.ask()
        supervisor.hang_up()
        if console is not None:
            console.hang_up()

    signals = StopSignals(asyncio.get_running_loop(), None if goes_with_its_terminal() else hang_up)
    stopping = asyncio.ensure_future(signals.wait())
    starting = asyncio.ensure_future(supervisor.start())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            ready = await starting
            kafka = [fields["X_DRAY_KAFKA"] for fields in ready[: len(children)]]
            console = start_console(settings, config, kafka, runtime)
            if banner:
                _print_banner(ready[: len(children)], settings, console is not None)
        await signals.wait()
    finally:
        if console is not None:
            await console.stop()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})  # the cancelled start stops the children itself
        elif not starting.cancelled() and starting.exception() is None:
            await supervisor.stop()
        stopping.cancel()
        runtime.close()


def _print_banner(ready: Sequence[Mapping[str, str]], settings: Settings, has_console: bool) -> None:
    addresses = [fields["X_DRAY_KAFKA"] for fields in ready]
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"\n[bold]Dray is up[/] with {len(ready)} brokers.  Kafka clients connect to")
    console.print(f"  [bold cyan]{','.join(addresses)}[/]")
    if has_console:
        console.print(f"  console             [bold cyan]http://{settings.console.listen}/[/]")
    for fields in ready:
        if http := fields.get("X_DRAY_HTTP"):
            console.print(f"  health and metrics  http://{http}/healthz  http://{http}/metrics")
    console.print(f"  data                {settings.data_dir}")
    console.print(f"  try it              echo hello | kcat -b {addresses[0]} -t greetings -P")
    console.print(f"                      kcat -b {addresses[-1]} -t greetings -C -e")
    console.print("  stop                Ctrl-C\n")
