"""Users, ACLs and quotas straight in the metadata store, for whoever may write there: no broker is asked, and
no right is needed but that to the store. If brokers ask for a user, the first one can only be made so.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import structlog

from dray.base.runtime import Runtime, SystemRuntime
from dray.base.telemetry import quiet_logs
from dray.broker.security.acls.store import Acls
from dray.broker.security.audit import AuditedAct, AuditLog, write_line
from dray.broker.security.key_follower import SecurityUnavailable
from dray.broker.security.quotas.store import Quotas
from dray.broker.security.users import NoSuchCredential, Upsertion, UserFault, Users
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.stores import open_metadata
from dray.daemons.config import Settings
from dray.kafka.acls import CLUSTER_NAME, AclBinding, AclFilter, AclOperation, AclResourceType, text_of
from dray.kafka.quotas import Parts, entity_of, parts_of, text_of_change
from dray.kafka.sasl.credentials import ScramMechanism, make_credential
from dray.metadata.contract import MetadataError, MetadataStore


class _Kept(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


KeptT = TypeVar("KeptT", bound=_Kept)
T = TypeVar("T")


def put_user(
    settings: Settings, name: str, password: str, mechanisms: list[ScramMechanism], iterations: int
) -> None:
    """A credential for each mechanism, over older ones."""

    async def put(users: Users, runtime: Runtime) -> None:
        for mechanism in mechanisms:
            credential = make_credential(mechanism, password, runtime.random, iterations)
            await users.put(Upsertion(name, mechanism, credential))

    _with(settings, Users, put)
    note_changes([f"set the password of user {name}"])


def delete_user(settings: Settings, name: str) -> None:
    """With all passwords. One that is gone meanwhile is no fault."""

    async def delete(users: Users, _: Runtime) -> None:
        last = users.set_last(name)
        for mechanism in sorted(users.of(name), key=lambda each: each is last):
            with suppress(NoSuchCredential):
                await users.delete(name, mechanism)

    _with(settings, Users, delete)
    note_changes([f"delete the password of user {name}"])


def list_users(settings: Settings) -> dict[str, dict[str, int]]:
    """Iterations, by user and mechanism."""

    async def look(users: Users, _: Runtime) -> dict[str, dict[str, int]]:
        return {
            name: {mechanism.sasl_name: held.iterations for mechanism, held in sorted(users.of(name).items())}
            for name in users.names()
        }

    return _with(settings, Users, look)


def create_acls(settings: Settings, bindings: Sequence[AclBinding]) -> None:
    _with(settings, Acls, lambda acls, _: acls.create(bindings))
    note_changes(f"add {text_of(each)}" for each in bindings)


def list_acls(settings: Settings, wanted: AclFilter) -> list[AclBinding]:
    async def look(acls: Acls, _: Runtime) -> list[AclBinding]:
        return acls.index.matching(wanted)

    return _with(settings, Acls, look)


def delete_acls(settings: Settings, wanted: AclFilter) -> list[AclBinding]:
    async def delete(acls: Acls, _: Runtime) -> list[AclBinding]:
        [found] = await acls.delete([wanted])
        return found

    deleted = _with(settings, Acls, delete)
    note_changes(f"delete {text_of(each)}" for each in deleted)
    return deleted


def list_quotas(settings: Settings, wanted: Parts) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Those of all entities that have these names, and perhaps further ones."""

    async def look(quotas: Quotas, _: Runtime) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        return [
            (parts, dict(held))
            for entity, held in quotas.table.items()
            if wanted.items() <= (parts := parts_of(entity)).items()
        ]

    return _with(settings, Quotas, look)


def alter_quotas(settings: Settings, changes: Sequence[tuple[Parts, Mapping[str, float | None]]]) -> None:
    async def alter(quotas: Quotas, _: Runtime) -> None:
        for parts, wanted in changes:
            await quotas.alter(entity_of(parts), wanted)

    _with(settings, Quotas, alter)
    note_changes((text_of_change(*change) for change in changes), AclOperation.ALTER_CONFIGS)


def _with(
    settings: Settings,
    kept: Callable[[MetadataStore, Runtime], KeptT],
    work: Callable[[KeptT, Runtime], Awaitable[T]],
) -> T:
    with quiet_logs():
        return asyncio.run(_open_and(settings, kept, work))


async def _open_and(
    settings: Settings,
    kept: Callable[[MetadataStore, Runtime], KeptT],
    work: Callable[[KeptT, Runtime], Awaitable[T]],
) -> T:
    runtime = SystemRuntime()
    try:
        store = await open_metadata(settings, runtime)
        opened = kept(store, runtime)
        try:
            await opened.start()
            return await work(opened, runtime)
        except UserFault as error:
            raise Failure(str(error)) from error
        except (SecurityUnavailable, MetadataError) as error:
            raise Failure(f"the metadata store: {error}") from error
        finally:
            await opened.stop()
            await store.close()
    finally:
        runtime.close()


# --- the audit log of these changes
# No broker is asked for them, so no broker's log has them: the command that makes one writes the line itself,
# to standard error.


def note_changes(changes: Iterable[str], operation: AclOperation = AclOperation.ALTER) -> None:
    """One JSON line each, as a broker with `logging.format: json` writes them, and as few. `operation` is
    what a broker would have asked for. On a terminal the line is one that people read."""
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    log = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    ).bind(logger="dray.audit", through="the metadata store")
    runtime = SystemRuntime(threads=1)
    try:
        audit = AuditLog(
            runtime.monotonic, lambda act, times, left_out: write_line(act, times, left_out, log)
        )
        for change in changes:
            audit.note(
                AuditedAct(
                    True,
                    f"System:{_system_user()}",
                    socket.gethostname(),
                    operation.name,
                    AclResourceType.CLUSTER.name,
                    CLUSTER_NAME,
                    change,
                )
            )
        audit.write_counted(everything=True)
    finally:
        runtime.close()


def _system_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in many containers
        return str(os.getuid())
