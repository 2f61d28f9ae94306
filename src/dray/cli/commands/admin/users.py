"""`drayd admin user`: users and their passwords, through a broker or straight in the metadata store."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dray.base.config.kinds import Address
from dray.base.runtime import SystemRuntime
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
    client_security,
    parse_bootstrap,
)
from dray.cli.output import print_json, print_table
from dray.daemons.assembly.failures import USAGE, Failure
from dray.kafka.client import access as through_broker
from dray.kafka.sasl.credentials import LEAST_ITERATIONS, MOST_ITERATIONS, ScramMechanism, mechanism_of

if TYPE_CHECKING:
    from dray.daemons import direct
    from dray.daemons.config import Settings
else:
    direct = LazyModule("dray.daemons.direct")


app = typer.Typer(
    help="Add, list and delete users, and set the passwords that listeners with SASL ask for. "
    "With --data-dir or --config, straight in the metadata store; else through a broker.",
    no_args_is_help=True,
)

_LARGEST_FILE = 4096

UserArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]


@app.command("add")
def add(
    name: UserArgument,
    *,
    password_file: Annotated[
        str,
        typer.Option(
            "--password-file", metavar="FILE", help="Holds the password; '-': read it from standard input."
        ),
    ],
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism", metavar="NAME", help="SCRAM-SHA-256 or SCRAM-SHA-512; repeatable. \\[both]"
        ),
    ] = None,
    iterations: Annotated[int, typer.Option(help="Rounds of hashing.")] = LEAST_ITERATIONS,
    without_tls: Annotated[
        bool,
        typer.Option("--without-tls", help="Through a broker elsewhere in clear: who hears it can log in."),
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Add a user, or give one a new password. The password itself is stored nowhere.

    A new password ends no connection that stands. To end them all, delete the user and add it again.

    [dim]Example:[/] drayd admin user add admin --password-file secret.txt --data-dir ./dray-data
    """
    # PLAIN is checked against the last: SHA-256 takes half as long.
    mechanisms = [_mechanism(each) for each in mechanism or ()] or [
        ScramMechanism.SHA_512,
        ScramMechanism.SHA_256,
    ]
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise Failure(f"--iterations = {iterations}: must be {LEAST_ITERATIONS} to {MOST_ITERATIONS}", USAGE)
    _checked("NAME", name)
    password = _checked("the password", _read_password(password_file))
    way = Way(bootstrap, command_config, config, data_dir)
    if not without_tls and not way.is_direct:
        _check_way(bootstrap, command_config)
    random = SystemRuntime().random
    salts = {each.sasl_name: random.randbytes(32) for each in mechanisms}
    way.run(
        lambda caller: through_broker.put_user(caller, name, password, salts, iterations),
        lambda settings: direct.put_user(settings, name, password, mechanisms, iterations),
    )
    print(f"user {name} has a password for {', '.join(each.sasl_name for each in sorted(mechanisms))}")
    if set(mechanisms) != set(ScramMechanism):
        set_now = {each.sasl_name for each in mechanisms}
        for other in _listed(way).get(name, {}).keys() - set_now:
            print(f"the password for {other} is the one it was: that mechanism still takes it")


@app.command("list")
def list_(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """List the users, and for which mechanisms they have a password."""
    found = _listed(Way(bootstrap, command_config, config, data_dir))
    if json:
        print_json(found)
    elif found:
        _print(found)
    else:
        print("no users yet: drayd admin user add NAME --password-file FILE")


@app.command("delete")
def delete(
    name: UserArgument,
    *,
    execute: ExecuteOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Delete a user with all passwords; its connections end. Only shows which, unless told to --execute.

    [dim]Example:[/] drayd admin user delete app --execute
    """
    way = Way(bootstrap, command_config, config, data_dir)
    held = _listed(way).get(name)
    if held is None:
        raise Failure(f"there is no user {name}")
    if not execute:
        _print({name: held})
        print("nothing was deleted: add --execute to do this")
        return
    way.run(
        lambda caller: through_broker.delete_user(caller, name, list(held)),
        lambda settings: direct.delete_user(settings, name),
    )
    print(f"user {name} deleted")


def _listed(way: Way) -> dict[str, dict[str, int]]:
    def directly(settings: Settings) -> dict[str, dict[str, int]]:
        return direct.list_users(settings)

    return way.run(through_broker.list_users, directly)


def _print(found: Mapping[str, Mapping[str, int]]) -> None:
    print_table(["user", "mechanisms"], [(name, ", ".join(held)) for name, held in found.items()])


def _check_way(bootstrap: str, command_config: Path | None) -> None:
    """The sent secret is not the password, but as good: anybody who hears it can log in with SCRAM."""
    if client_security(command_config).tls is not None:
        return
    for address in starmap(Address, parse_bootstrap(bootstrap)):
        if not address.is_loopback:
            raise Failure(
                f"--bootstrap = {address}: the way there is in clear, and who hears the hashed password can "
                "log in; give --command-config with security.protocol=SASL_SSL or SSL, or add --without-tls",
                USAGE,
            )


def _mechanism(name: str) -> ScramMechanism:
    found = mechanism_of(name.upper())
    if found is None:
        raise Failure(f"--mechanism = {name!r}: must be SCRAM-SHA-256 or SCRAM-SHA-512", USAGE)
    return found


def _checked(what: str, text: str) -> str:
    from dray.broker.security.users import NotPrepared, check_prepared

    try:
        check_prepared(text)
    except NotPrepared as error:
        raise Failure(f"{what} cannot be used: {error}", USAGE) from None
    return text


def _read_password(file: str) -> str:
    """The file's one line: editors end it with a newline, which is not part of the password."""
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(_LARGEST_FILE + 1)
        else:
            with Path(file).open("rb") as opened:
                raw = opened.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise Failure(f"--password-file = {file!r}: {error.strerror}", USAGE) from error
    try:
        return raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Failure(f"--password-file = {file!r}: is no UTF-8", USAGE) from None
