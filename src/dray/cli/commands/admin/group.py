"""`drayd admin`: topics, groups, the cluster and garbage collection, from the shell."""

from __future__ import annotations

from typing import Final

import typer

from dray.cli.lazy import CommandEntry, LazyGroup

_EITHER_WAY: Final = "With --data-dir or --config, straight in the metadata store; else through a broker."

COMMANDS: Final = {
    "topics": CommandEntry("admin.topics", "app", "Create, list, describe, delete and alter topics."),
    "groups": CommandEntry(
        "admin.groups", "app", "List, describe and delete consumer groups, and reset their offsets."
    ),
    "cluster": CommandEntry("admin.cluster", "cluster", "Show the cluster's id and its brokers."),
    "user": CommandEntry(
        "admin.users",
        "app",
        f"Add, list and delete users, and set the passwords that listeners with SASL ask for. {_EITHER_WAY}",
    ),
    "acl": CommandEntry(
        "admin.acls",
        "app",
        "Add, list and delete ACLs; security.authorization: acls has brokers follow them. " + _EITHER_WAY,
    ),
    "quota": CommandEntry(
        "admin.quotas",
        "app",
        "Set, list and delete quotas of users, client ids and addresses: each broker measures for itself. "
        + _EITHER_WAY,
    ),
    "table": CommandEntry(
        "admin.table",
        "table",
        "Show a topic's Iceberg table: where it is, what it holds, and how far it is behind the log.",
    ),
    "compact": CommandEntry(
        "admin.compact",
        "compact",
        "Ask the compactors to move all that a topic has now into Parquet files and its table.",
    ),
    "lost": CommandEntry(
        "admin.lost",
        "lost",
        "Show which objects the log names and no store has: WAL objects, compacted files, foreign segments.",
    ),
    "finish-compactions": CommandEntry(
        "admin.finish_compactions",
        "finish_compactions",
        "Finish compactions that wait for their table, without the table: where no compactor will come any "
        "more.",
    ),
    "level": CommandEntry(
        "admin.level",
        "app",
        "Show the cluster's level: which formats it may store. It rises by itself a day after every process "
        "can read the next one; it is to be lowered before one goes back to an older build.",
    ),
    "gc": CommandEntry(
        "admin.bucket",
        "gc",
        "Collect WAL objects, files and tables that nothing refers to: one round over the configured stores.",
    ),
    "adopt-bucket": CommandEntry(
        "admin.bucket",
        "adopt_bucket",
        "Say that the object store belongs to the cluster of the metadata store, where nothing says so yet.",
    ),
}


class AdminGroup(LazyGroup):
    entries = COMMANDS


app = typer.Typer(
    cls=AdminGroup,
    help="Manage topics and groups, and look at the cluster. topics, groups, cluster, user, acl and quota "
    "speak the Kafka protocol, and work on Apache Kafka too; the others work on Dray's stores.",
    no_args_is_help=True,
)


@app.callback()
def _admin() -> None:
    """Makes a group of the app though it registers no command itself."""
