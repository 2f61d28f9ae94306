"""`drayd admin quota`: how much clients may send, fetch and ask, through a broker or straight in the metadata
store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from dray.cli.lazy import LazyModule
from dray.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    ConfigOption,
    DataDirOption,
    ExecuteOption,
    JsonOption,
    Way,
)
from dray.cli.output import print_json, print_table
from dray.daemons.assembly.failures import USAGE, Failure
from dray.kafka.client import access as through_broker
from dray.kafka.quotas import KINDS, Parts, entity_of, fault_of, fault_of_value

if TYPE_CHECKING:
    from dray.daemons import direct
else:
    direct = LazyModule("dray.daemons.direct")


app = typer.Typer(
    help="Set, list and delete quotas of users, client ids and addresses: each broker measures for itself. "
    "With --data-dir or --config, straight in the metadata store; else through a broker.",
    no_args_is_help=True,
)

_DEFAULT_SHOWN = "(default)"
_Held = tuple[Parts, Mapping[str, float]]

UserOption = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user.")]
DefaultUserOption = Annotated[bool, typer.Option("--default-user", help="Of users without one of their own.")]
ClientOption = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="Of this client id.")]
DefaultClientOption = Annotated[
    bool, typer.Option("--default-client-id", help="Of client ids without one of their own.")
]
AddressOption = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Of this address.")]
DefaultAddressOption = Annotated[
    bool, typer.Option("--default-ip", help="Of addresses without one of their own.")
]


@app.command("set")
def set_(
    quotas: Annotated[
        list[str],
        typer.Argument(
            metavar="QUOTA=VALUE...",
            help="producer_byte_rate, consumer_byte_rate (bytes a second), request_percentage (of one core), "
            "controller_mutation_rate (partitions a second); of addresses: connection_creation_rate.",
        ),
    ],
    *,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientOption = None,
    default_client_id: DefaultClientOption = False,
    ip: AddressOption = None,
    default_ip: DefaultAddressOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be set.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Set quotas of an entity: a user, a client id, both, or an address. Others that it has stay.

    [dim]Example:[/] drayd admin quota set producer_byte_rate=1048576 --user app
    """
    entity = _entity(user, default_user, client_id, default_client_id, ip, default_ip)
    if not entity:
        raise Failure("give whose: --user, --client-id, --ip, or --default-user and the like", USAGE)
    wanted = dict(_parsed(one) for one in quotas)
    for key, value in wanted.items():
        fault = fault_of_value(entity_of(entity), key, value)
        if fault is not None:
            raise Failure(fault, USAGE)
    way = Way(bootstrap, command_config, config, data_dir)
    if not (dry_run and way.is_direct):  # a broker checks them even so
        way.run(
            lambda caller: through_broker.alter_quotas(caller, [(entity, wanted)], validate_only=dry_run),
            lambda settings: direct.alter_quotas(settings, [(entity, wanted)]),
        )
    _print([(entity, wanted)])
    print("nothing was set: leave --dry-run out to do this" if dry_run else f"set: {len(wanted)}")


@app.command("list")
def list_(
    *,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientOption = None,
    default_client_id: DefaultClientOption = False,
    ip: AddressOption = None,
    default_ip: DefaultAddressOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """List quotas: all of them, or those of entities that the options name."""
    entity = _entity(user, default_user, client_id, default_client_id, ip, default_ip)
    found = _find(Way(bootstrap, command_config, config, data_dir), entity)
    if json:
        print_json([{"entity": dict(parts), "quotas": dict(held)} for parts, held in found])
    elif found:
        _print(found)
    else:
        print("no such quotas: drayd admin quota set producer_byte_rate=1048576 --user NAME")


@app.command("delete")
def delete(
    quotas: Annotated[
        list[str] | None, typer.Argument(metavar="[QUOTA...]", help="Only these. \\[all of the entity]")
    ] = None,
    *,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientOption = None,
    default_client_id: DefaultClientOption = False,
    ip: AddressOption = None,
    default_ip: DefaultAddressOption = False,
    execute: ExecuteOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Delete quotas of exactly this entity. Only shows which, unless told to --execute.

    [dim]Example:[/] drayd admin quota delete producer_byte_rate --user app --execute
    """
    entity = _entity(user, default_user, client_id, default_client_id, ip, default_ip)
    if not entity:
        raise Failure("give whose: --user, --client-id, --ip, or --default-user and the like", USAGE)
    way = Way(bootstrap, command_config, config, data_dir)
    held = next((held for parts, held in _find(way, entity) if dict(parts) == dict(entity)), {})
    gone = {key: value for key, value in held.items() if not quotas or key in quotas}
    if not gone:
        raise Failure("there are no such quotas")
    _print([(entity, gone)])
    if not execute:
        print("nothing was deleted: add --execute to do this")
        return
    changes: Mapping[str, float | None] = dict.fromkeys(gone)
    way.run(
        lambda caller: through_broker.alter_quotas(caller, [(entity, changes)]),
        lambda settings: direct.alter_quotas(settings, [(entity, changes)]),
    )
    print(f"deleted: {len(gone)}")


def _find(way: Way, wanted: Parts) -> list[_Held]:
    found = way.run(
        lambda caller: through_broker.list_quotas(caller, wanted),
        lambda settings: direct.list_quotas(settings, wanted),
    )
    return sorted(found, key=lambda one: [(kind, one[0].get(kind) or "") for kind in KINDS if kind in one[0]])


def _entity(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
) -> dict[str, str | None]:
    """Empty where nothing is named."""
    entity: dict[str, str | None] = {}
    for kind, name, default in (
        ("client-id", client_id, default_client_id),
        ("user", user, default_user),
        ("ip", ip, default_ip),
    ):
        if name is not None and default:
            raise Failure(f"give --{kind} or --default-{kind}, not both", USAGE)
        if name is not None or default:
            entity[kind] = name
    fault = fault_of(entity) if entity else None
    if fault is not None:
        raise Failure(fault, USAGE)
    return entity


def _parsed(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    try:
        if not equals:
            raise ValueError
        return key.strip(), float(value)
    except ValueError:
        raise Failure(
            f"{text!r}: must be a quota and its value, as producer_byte_rate=1048576", USAGE
        ) from None


def _print(found: Iterable[_Held]) -> None:
    rows = [
        (*(_shown(parts, kind) for kind in ("user", "client-id", "ip")), key, f"{value:.15g}")
        for parts, held in found
        for key, value in sorted(held.items())
    ]
    print_table(["user", "client-id", "ip", "quota", "value"], rows)


def _shown(parts: Parts, kind: str) -> str:
    if kind not in parts:
        return "-"
    return parts[kind] or _DEFAULT_SHOWN
