"""`drayd admin user`: users and their passwords, through a broker or straight in the metadata store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dray.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    ConfigOption,
    DataDirOption,
    JsonOption,
    ask,
    load_config,
)
from dray.cli.output import print_json, print_table
from dray.client import users as through_broker
from dray.daemon import user_store
from dray.daemon.failures import USAGE, Failure
from dray.runtime import SystemRuntime
from dray.security.names import NotPrepared, check_prepared
from dray.security.scram_credentials import LEAST_ITERATIONS, MOST_ITERATIONS, ScramMechanism, mechanism_of

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
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Add a user, or give one a new password. The password itself is stored nowhere.

    [dim]Example:[/] drayd admin user add admin --password-file secret.txt --data-dir ./dray-data
    """
    mechanisms = [_mechanism(each) for each in mechanism or [each.sasl_name for each in ScramMechanism]]
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise Failure(f"--iterations = {iterations}: must be {LEAST_ITERATIONS} to {MOST_ITERATIONS}", USAGE)
    _checked("NAME", name)
    password = _checked("the password", _read_password(password_file))
    if config is None and data_dir is None:
        random = SystemRuntime().random
        salts = {each.sasl_name: random.randbytes(32) for each in mechanisms}
        ask(
            bootstrap,
            command_config,
            lambda caller: through_broker.put_user(caller, name, password, salts, iterations),
        )
    else:
        user_store.put_user(load_config(config, data_dir).settings, name, password, mechanisms, iterations)
    print(f"user {name} has a password for {', '.join(each.sasl_name for each in mechanisms)}")


@app.command("list")
def list_(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """List the users, and for which mechanisms they have a password."""
    if config is None and data_dir is None:
        found = ask(bootstrap, command_config, through_broker.list_users)
    else:
        found = user_store.list_users(load_config(config, data_dir).settings)
    if json:
        print_json(found)
    elif found:
        print_table(["user", "mechanisms"], [(name, ", ".join(held)) for name, held in found.items()])
    else:
        print("no users yet: drayd admin user add NAME --password-file FILE")


@app.command("delete")
def delete(
    name: UserArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Delete a user with all passwords."""
    if config is None and data_dir is None:
        held = ask(bootstrap, command_config, through_broker.list_users).get(name, {})
        if held:
            ask(
                bootstrap, command_config, lambda caller: through_broker.delete_user(caller, name, list(held))
            )
        deleted = bool(held)
    else:
        deleted = user_store.delete_user(load_config(config, data_dir).settings, name)
    if not deleted:
        raise Failure(f"there is no user {name}")
    print(f"user {name} deleted")


def _mechanism(name: str) -> ScramMechanism:
    found = mechanism_of(name.upper())
    if found is None:
        raise Failure(f"--mechanism = {name!r}: must be SCRAM-SHA-256 or SCRAM-SHA-512", USAGE)
    return found


def _checked(what: str, text: str) -> str:
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
