"""A serving process: its node, from the lock to the last signal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import structlog
import uvloop
from rich.console import Console

from dray.base.config.kinds import Address
from dray.base.runtime import Runtime, SystemRuntime
from dray.base.runtime.turn_watch import TurnWatch
from dray.base.telemetry import configure_logging
from dray.broker.cluster import BrokerIdTaken, BucketRefused, LevelTooNew
from dray.broker.groups.coordinator.contract import classic_settings, consumer_settings
from dray.broker.server import AddressInUse
from dray.broker.server.tls.listener import CertificateUnusable
from dray.broker.topics import TopicError
from dray.broker.topics.configs import check_configs
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.http_security import TokensUnusable
from dray.daemons.assembly.log_format import log_format
from dray.daemons.assembly.notify import tell_manager
from dray.daemons.assembly.process import (
    FileLock,
    StopSignals,
    goes_with_its_terminal,
    local_machine,
    raise_file_limit,
    settle_garbage_collector,
    tune_memory,
)
from dray.daemons.assembly.reread import Rereading
from dray.daemons.assembly.stores import open_stores, warn_of_readable_files, warn_of_unread_profiles
from dray.daemons.broker.node import CannotListen, Node
from dray.daemons.broker.security import KeySetUnusable
from dray.daemons.config import Settings
from dray.daemons.config.listeners import PLAINTEXT
from dray.daemons.migrator.upstream_clusters import UpstreamClusters
from dray.daemons.recovery.ballast import Ballast
from dray.daemons.supervisor.children import ConsoleBeside, children_beside, start_console
from dray.daemons.supervisor.processes import Supervisor
from dray.metadata.contract import MetadataError
from dray.objects import ObjectError

_log = structlog.get_logger(__name__)


def serve(
    settings: Settings,
    lock: FileLock | None,
    *,
    banner: bool,
    again: Callable[[], Settings],
    compacts: bool = False,
    config: Path | None = None,
) -> None:
    """`compacts`: run a compactor beside the broker, and a migrator where there is something to move, with
    the same `config` file. `again`: what the config says by now."""
    check_settings(settings)
    tune_memory()
    raise_file_limit()
    with lock or nullcontext(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, banner=banner, again=again, compacts=compacts, config=config))


def check_settings(settings: Settings) -> None:
    """Check what the config room alone cannot. A wrong setting is one line, and nothing is started."""
    _check_topic_defaults(settings)
    _check_groups(settings)
    _check_listeners(settings)


def _check_topic_defaults(settings: Settings) -> None:
    """Check the defaults for topics. The config room does not know the configs of topics; the topics room
    does."""
    try:
        check_configs(settings.topics.defaults)
    except TopicError as error:
        raise Failure(f"topics.defaults = {dict(settings.topics.defaults)}: {error}", USAGE) from error


def _check_groups(settings: Settings) -> None:
    """Check that the timeouts of groups fit together. The room of groups knows the rule."""
    try:
        classic_settings(settings.groups)
        consumer_settings(settings.groups)
    except ValueError as error:
        raise Failure(f"groups: {error}", USAGE) from error


def _check_listeners(settings: Settings) -> None:
    """Refuse a login that anybody may walk around. If rights are asked for, a client that walks around the
    login is nobody, and may do what nobody may."""
    broker = settings.broker
    asking = next((name for name, place in broker.listeners.items() if place.knows_clients), None)
    if settings.security.authorization != "none" or asking is None:
        return
    for key, address in broker.open_listeners.items():
        if not address.is_loopback:
            raise Failure(
                f"{key} = {address}: whoever does not want to log in at {asking} may do everything here: set "
                f"security.authorization: acls, or {key} to a loopback address"
                f"{' or off' if key == 'broker.listen' else ''}",
                USAGE,
            )


async def _run(
    settings: Settings,
    *,
    banner: bool,
    again: Callable[[], Settings],
    compacts: bool,
    config: Path | None,
) -> None:
    runtime = SystemRuntime()
    configure_logging(log_format(settings), settings.logging.level, runtime, fields=_log_fields(settings))
    beside: Supervisor | None = None
    console: ConsoleBeside | None = None
    rereading = Rereading(runtime, again)

    def hang_up() -> None:
        rereading.ask()
        for children in (beside, console):
            if children is not None:
                children.hang_up()

    with_terminal = compacts and goes_with_its_terminal()
    signals = StopSignals(asyncio.get_running_loop(), None if with_terminal else hang_up)
    upstream = UpstreamClusters(settings, runtime, for_brokers=True)
    for name, why in upstream.left_out.items():
        # A broker serves all other topics: a file of the migrator's that it may not read does not stop it.
        _log.error("what is produced here is not passed on to a source", upstream=name, reason=why)
    warn_of_readable_files(settings)
    warn_of_unread_profiles(settings, os.environ)
    stores = await open_stores(settings, runtime, waits=True, on_damage=signals.cannot_go_on)
    try:
        node = Node(
            settings,
            runtime,
            stores.metadata,
            stores.objects,
            machine=local_machine(),
            foreign=stores.foreign,
            upstream=upstream,
        )
    except (CertificateUnusable, KeySetUnusable, TokensUnusable) as error:
        await stores.close()
        raise Failure(str(error), USAGE) from error
    watch = TurnWatch(node.note_held_up)
    ballast = ballast_of(settings, runtime, node)
    try:
        if await _start_unless_stopped(node, settings, signals):
            settle_garbage_collector()
            if ballast is not None:
                await ballast.start()
            watch.start()  # only now: long turns during the start keep no served client waiting
            _tell_manager(node, settings)
            kafka = str(_kafka_address(node, settings))
            console = start_console(settings, config, [kafka], runtime) if compacts else None
            if banner:
                _print_banner(node, settings, console is not None)
            others = await runtime.in_thread(children_beside, settings, config) if compacts else []
            if others:
                beside = Supervisor(others, runtime)
                await _unless_stopped(beside.start(), signals)
            await signals.wait()
    except BaseException:
        with suppress(Exception):  # this failure is logged; the first one matters
            if ballast is not None:
                await ballast.stop()
            if beside is not None:
                await beside.stop()
        if console is not None:
            await console.stop()
        with suppress(Exception):
            await node.stop()
        watch.stop()
        raise
    try:
        if ballast is not None:
            await ballast.stop()
        if console is not None:
            await console.stop()
        if beside is not None:
            await beside.stop()
        await node.stop()
    except Exception as error:
        raise Failure(f"stopping went wrong: {str(error) or repr(error)}; the log says more") from error
    finally:
        watch.stop()
        runtime.close()
    if signals.reason is not None:
        raise Failure(f"the metadata file {signals.reason}")


def ballast_of(settings: Settings, runtime: Runtime, node: Node) -> Ballast | None:
    size = settings.metadata.ballast
    if settings.metadata.engine != "sqlite" or not size:
        return None
    return Ballast(settings.metadata_path.parent, size, runtime, node.hold_appends)


async def _start_unless_stopped(node: Node, settings: Settings, signals: StopSignals) -> bool:
    """True once the node serves, False when a signal came first."""
    return await _unless_stopped(_start(node, settings), signals)


async def _unless_stopped(work: Coroutine[Any, Any, object], signals: StopSignals) -> bool:
    """True once the work is done, False when a signal came first: then it was cancelled."""
    starting = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(signals.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        stopping.cancel()
        await starting
        return True
    starting.cancel()
    await asyncio.wait({starting})
    return False


async def _start(node: Node, settings: Settings) -> None:
    try:
        await node.start()
    except AddressInUse as error:
        taken = Address(error.host, error.port)
        choices = {
            Address(place.host, place.port): "--listen" if name == PLAINTEXT else f"broker.listeners.{name}"
            for name, place in settings.broker.all_listeners.items()
        }
        choice = choices.get(taken, "--http")
        raise Failure(f"{error}: stop what listens there, or choose another {choice}") from error
    except CannotListen as error:
        raise Failure(str(error)) from error
    except LevelTooNew as error:
        raise Failure(str(error), USAGE) from error
    except (BrokerIdTaken, BucketRefused) as error:
        raise Failure(str(error)) from error
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error


def _log_fields(settings: Settings) -> dict[str, int]:
    """The broker's id in every line, so that brokers can share a terminal or a collector of logs."""
    return {} if settings.broker.id is None else {"broker": settings.broker.id}


def _tell_manager(node: Node, settings: Settings) -> None:
    kafka = str(_kafka_address(node, settings))
    fields = {"READY": "1", "STATUS": f"broker {node.broker_id} serves at {kafka}", "X_DRAY_KAFKA": kafka}
    if node.http_address is not None:
        fields["X_DRAY_HTTP"] = str(Address(*node.http_address))
    tell_manager(**fields)


def _kafka_address(node: Node, settings: Settings) -> Address:
    """Of the first listener, as clients see it."""
    first = next(iter(settings.broker.all_listeners))
    return settings.broker.all_advertised.get(first) or Address(*node.address)


def _print_banner(node: Node, settings: Settings, has_console: bool) -> None:
    kafka = _kafka_address(node, settings)
    console = Console(highlight=False)
    console.print(f"\n[bold]Dray is up.[/]  Kafka clients connect to [bold cyan]{kafka}[/]")
    if has_console:
        console.print(f"  console             [bold cyan]http://{settings.console.listen}/[/]")
    if node.http_address is not None:
        scheme = "http" if settings.http.certificate_file is None else "https"
        http = f"{scheme}://{Address(*node.http_address)}"
        console.print(f"  health and metrics  {http}/healthz  {http}/metrics")
    console.print(f"  data                {settings.data_dir}  (broker {node.broker_id})")
    console.print(f"  try it              echo hello | kcat -b {kafka} -t greetings -P")
    console.print(f"                      kcat -b {kafka} -t greetings -C -e")
    console.print("  stop                Ctrl-C\n")
