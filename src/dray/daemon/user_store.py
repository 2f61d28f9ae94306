"""Users, changed directly in the metadata store: the first user cannot be made through a broker that asks for
one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from dray.config import Settings
from dray.daemon.failures import Failure
from dray.daemon.store_audit import note_changes
from dray.daemon.stores import open_metadata
from dray.metadata.contract import MetadataError
from dray.runtime import Runtime, SystemRuntime
from dray.security.faults import SecurityUnavailable
from dray.security.scram_credentials import ScramMechanism, make_credential
from dray.security.users import NoSuchCredential, Upsertion, UserFault, Users
from dray.telemetry import quiet_logs

T = TypeVar("T")


def put_user(
    settings: Settings, name: str, password: str, mechanisms: list[ScramMechanism], iterations: int
) -> None:
    """A credential for each mechanism, over older ones."""

    async def put(users: Users, runtime: Runtime) -> None:
        for mechanism in mechanisms:
            credential = make_credential(mechanism, password, runtime.random, iterations)
            await users.put(Upsertion(name, mechanism, credential))

    _with_users(settings, put)
    note_changes([f"set the password of user {name}"])


def delete_user(settings: Settings, name: str) -> None:
    """With all passwords. One that is gone meanwhile is no fault."""

    async def delete(users: Users, _runtime: Runtime) -> None:
        last = users.set_last(name)
        for mechanism in sorted(users.of(name), key=lambda each: each is last):
            with suppress(NoSuchCredential):
                await users.delete(name, mechanism)

    _with_users(settings, delete)
    note_changes([f"delete the password of user {name}"])


def list_users(settings: Settings) -> dict[str, dict[str, int]]:
    """Iterations, by user and mechanism."""

    async def look(users: Users, _runtime: Runtime) -> dict[str, dict[str, int]]:
        return {
            name: {mechanism.sasl_name: held.iterations for mechanism, held in sorted(users.of(name).items())}
            for name in users.names()
        }

    return _with_users(settings, look)


def _with_users(settings: Settings, work: Callable[[Users, Runtime], Awaitable[T]]) -> T:
    with quiet_logs():
        return asyncio.run(_open_and(settings, work))


async def _open_and(settings: Settings, work: Callable[[Users, Runtime], Awaitable[T]]) -> T:
    runtime = SystemRuntime()
    try:
        store = await open_metadata(settings, runtime)
        users = Users(store, runtime)
        try:
            await users.start()
            return await work(users, runtime)
        except UserFault as error:
            raise Failure(str(error)) from error
        except (SecurityUnavailable, MetadataError) as error:
            raise Failure(f"the metadata store: {error}") from error
        finally:
            await users.stop()
            await store.close()
    finally:
        runtime.close()
