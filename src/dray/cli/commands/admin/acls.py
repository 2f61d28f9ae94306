"""`drayd admin acl`: who may do what, through a broker or straight in the metadata store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated

import typer

from dray.broker.security.principals import WILDCARD
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
from dray.kafka.acls import (
    ANYTHING,
    CLUSTER_NAME,
    SUPPORTED,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    fault_of,
)
from dray.kafka.client import Cluster
from dray.kafka.client import access as through_broker
from dray.kafka.client.access import WireAcl, bindings_of

if TYPE_CHECKING:
    from dray.daemons import direct
else:
    direct = LazyModule("dray.daemons.direct")


app = typer.Typer(
    help="Add, list and delete ACLs; security.authorization: acls has brokers follow them. With --data-dir "
    "or --config, straight in the metadata store; else through a broker.",
    no_args_is_help=True,
)

_PERMISSIONS = {"allow": Permission.ALLOW, "deny": Permission.DENY}

TopicOption = Annotated[
    str | None, typer.Option("--topic", metavar="NAME", help="A topic; '*': all of them.")
]
GroupOption = Annotated[str | None, typer.Option("--group", metavar="NAME", help="A group; '*': all.")]
TransactionalIdOption = Annotated[
    str | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id; '*': all.")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
PrefixedOption = Annotated[
    bool, typer.Option("--prefixed", help="The name is the beginning of the names that are meant.")
]
OperationOption = Annotated[
    list[str] | None,
    typer.Option("--operation", "-o", metavar="NAME", help="read, write, ... or all; repeatable."),
]
HostOption = Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Only from there. \\[*]")]


@app.command("add")
def add(
    *,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="PRINCIPAL", help="User:NAME that may; repeatable. 'User:*': all."),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option("--deny", metavar="PRINCIPAL", help="User:NAME that may not, whatever else allows."),
    ] = None,
    operation: OperationOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    host: HostOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be added.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Add ACLs: one for each principal and operation. Those that are there stay.

    [dim]Example:[/] drayd admin acl add --allow User:app --operation read --topic orders
    """
    found = _resource(topic, group, transactional_id, cluster)
    if found is None:
        raise Failure("give what it is about: --topic, --group, --transactional-id or --cluster", USAGE)
    if not allow and not deny:
        raise Failure("give who may or may not: --allow User:NAME or --deny User:NAME", USAGE)
    if not operation:
        raise Failure(f"give --operation: {_choices(found[0])}", USAGE)
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    wanted = [
        AclBinding(found[0], pattern, found[1], principal, host or ANYTHING, one, permission)
        for permission, principals in ((Permission.ALLOW, allow), (Permission.DENY, deny))
        for principal in principals or ()
        for one in _operations(found[0], operation)
    ]
    for each in wanted:
        fault = fault_of(each)
        if fault is not None:
            raise Failure(fault, USAGE)
    if not dry_run:
        Way(bootstrap, command_config, config, data_dir).run(
            lambda caller: through_broker.create_acls(caller, [WireAcl(*one) for one in wanted]),
            lambda settings: direct.create_acls(settings, wanted),
        )
    _print(wanted)
    print("nothing was added: leave --dry-run out to do this" if dry_run else f"added: {len(wanted)}")


PrincipalOption = Annotated[
    str | None, typer.Option("--principal", metavar="PRINCIPAL", help="Only those that name it.")
]
PermissionOption = Annotated[
    str | None, typer.Option("--permission", metavar="NAME", help="Only those that allow, or that deny.")
]
LiteralOption = Annotated[
    bool, typer.Option("--literal", help="Only those of the name itself, not of names that begin so.")
]
MatchOption = Annotated[
    bool, typer.Option("--matching", help="Also those with prefixes and '*' that apply to this name.")
]


@app.command("list")
def list_(
    *,
    principal: PrincipalOption = None,
    operation: OperationOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    cluster: ClusterOption = False,
    permission: PermissionOption = None,
    literal: LiteralOption = False,
    prefixed: PrefixedOption = False,
    matching: MatchOption = False,
    host: HostOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """List ACLs: all of them, or those that the options leave."""
    resource = _resource(topic, group, transactional_id, cluster)
    pattern = _pattern(literal=literal, prefixed=prefixed, matching=matching)
    wanted = _filter(resource, pattern, principal, host, operation, permission)
    found = _find(Way(bootstrap, command_config, config, data_dir), wanted)
    if json:
        print_json([_plain(one) for one in found])
    elif found:
        _print(found)
    else:
        print("no such ACLs: drayd admin acl add --allow User:NAME --operation read --topic NAME")


@app.command("delete")
def delete(
    *,
    principal: PrincipalOption = None,
    operation: OperationOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    cluster: ClusterOption = False,
    permission: PermissionOption = None,
    literal: LiteralOption = False,
    prefixed: PrefixedOption = False,
    host: HostOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All ACLs, if nothing else says less.")] = False,
    execute: ExecuteOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Delete ACLs. Only shows which, unless told to --execute.

    [dim]Example:[/] drayd admin acl delete --principal User:app --topic orders --permission deny --execute
    """
    resource = _resource(topic, group, transactional_id, cluster)
    pattern = _pattern(literal=literal, prefixed=prefixed)
    wanted = _filter(resource, pattern, principal, host, operation, permission)
    if wanted == AclFilter() and not everything:
        raise Failure("give which: --principal, --topic, ...; or --all for all ACLs", USAGE)
    way = Way(bootstrap, command_config, config, data_dir)
    found = _delete(way, wanted) if execute else _find(way, wanted)
    if not found:
        raise Failure("there are no such ACLs")
    _print(found)
    print(f"deleted: {len(found)}" if execute else "nothing was deleted: add --execute to do this")


def _find(way: Way, wanted: AclFilter) -> list[AclBinding]:
    async def ask(caller: Cluster) -> list[AclBinding]:
        return bindings_of(await through_broker.list_acls(caller, WireAcl(*wanted)))

    return way.run(ask, lambda settings: sorted(direct.list_acls(settings, wanted)))


def _delete(way: Way, wanted: AclFilter) -> list[AclBinding]:
    async def ask(caller: Cluster) -> list[AclBinding]:
        return bindings_of(await through_broker.delete_acls(caller, WireAcl(*wanted)))

    return way.run(ask, lambda settings: sorted(direct.delete_acls(settings, wanted)))


def _resource(
    topic: str | None, group: str | None, transactional_id: str | None, cluster: bool
) -> tuple[AclResourceType, str] | None:
    given = [
        (kind, name)
        for kind, name in (
            (AclResourceType.TOPIC, topic),
            (AclResourceType.GROUP, group),
            (AclResourceType.TRANSACTIONAL_ID, transactional_id),
            (AclResourceType.CLUSTER, CLUSTER_NAME if cluster else None),
        )
        if name is not None
    ]
    if len(given) > 1:
        raise Failure("give one of --topic, --group, --transactional-id and --cluster", USAGE)
    return given[0] if given else None


def _pattern(*, literal: bool, prefixed: bool, matching: bool = False) -> PatternType:
    given = [
        pattern
        for pattern, wanted in (
            (PatternType.LITERAL, literal),
            (PatternType.PREFIXED, prefixed),
            (PatternType.MATCH, matching),
        )
        if wanted
    ]
    if len(given) > 1:
        raise Failure("give one of --literal, --prefixed and --matching", USAGE)
    return given[0] if given else PatternType.ANY


def _filter(
    resource: tuple[AclResourceType, str] | None,
    pattern: PatternType,
    principal: str | None,
    host: str | None,
    operation: list[str] | None,
    permission: str | None,
) -> AclFilter:
    if operation and len(operation) > 1:
        raise Failure("give --operation once here", USAGE)
    if pattern is PatternType.MATCH and resource is None:
        raise Failure("--matching needs a name: --topic, --group or --transactional-id", USAGE)
    if permission is not None and permission.lower() not in _PERMISSIONS:
        raise Failure(f"--permission = {permission!r}: must be one of {', '.join(_PERMISSIONS)}", USAGE)
    kind, name = resource or (AclResourceType.ANY, None)
    [one] = _operations(kind, operation) if operation else [AclOperation.ANY]
    permitted = Permission.ANY if permission is None else _PERMISSIONS[permission.lower()]
    return AclFilter(kind, pattern, name, principal, host, one, permitted)


def _operations(kind: AclResourceType, names: Iterable[str]) -> list[AclOperation]:
    found = []
    for name in names:
        word = name.upper().replace("-", "_")
        possible = {one.name: one for one in _possible(kind)}
        if word not in possible:
            raise Failure(f"--operation = {name!r}: must be {_choices(kind)}", USAGE)
        found.append(possible[word])
    return found


def _possible(kind: AclResourceType) -> list[AclOperation]:
    supported = SUPPORTED.get(kind, tuple(AclOperation)[AclOperation.READ :])
    return [*supported, AclOperation.ALL]


def _choices(kind: AclResourceType) -> str:
    return f"one of {', '.join(_word(one) for one in _possible(kind))}"


def _word(value: IntEnum) -> str:
    return value.name.lower().replace("_", "-")


def _plain(one: AclBinding) -> dict[str, str]:
    return {
        "resource": _word(one.resource_type),
        "pattern": _word(one.pattern_type),
        "name": one.name,
        "principal": one.principal,
        "host": one.host,
        "operation": _word(one.operation),
        "permission": _word(one.permission),
    }


def _print(found: Sequence[AclBinding]) -> None:
    rows = [_plain(one) for one in found]
    headings = ["permission", "principal", "operation", "resource", "pattern", "name", "host"]
    print_table(headings, [tuple(row[heading] for heading in headings) for row in rows])
    if any(one.principal == WILDCARD and one.permission is Permission.ALLOW for one in found):
        print(f"{WILDCARD} is everybody, User:ANONYMOUS too: who comes in where no login is asked for")
