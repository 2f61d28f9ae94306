"""Users: their SCRAM credentials, one key per user and mechanism. No clear password is ever stored.

Every broker keeps them in memory: a login must not wait for a read.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from dray.metadata import keys
from dray.metadata.contract import (
    ABSENT,
    Delete,
    MetadataError,
    MetadataStore,
    Operation,
    Put,
    StoredValue,
)
from dray.metadata.update import update
from dray.metadata.values import UnreadableValue, ValueCorrupt, seal_json, unseal_json
from dray.runtime import Runtime
from dray.security.faults import SecurityUnavailable
from dray.security.key_follower import KeyFollower
from dray.security.names import NotPrepared, check_prepared
from dray.security.scram_credentials import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    mechanism_of,
)

_log = structlog.get_logger(__name__)

CREDENTIAL_FORMAT: Final = 1
_NONE: Final[Mapping[ScramMechanism, ScramCredential]] = {}


def encode_credential(credential: ScramCredential) -> bytes:
    return seal_json(
        CREDENTIAL_FORMAT,
        {
            "salt": b64encode(credential.salt).decode(),
            "stored_key": b64encode(credential.stored_key).decode(),
            "server_key": b64encode(credential.server_key).decode(),
            "iterations": credential.iterations,
            **({"incarnation": credential.incarnation} if credential.incarnation else {}),
        },
    )


def decode_credential(user: str, value: bytes) -> ScramCredential:
    what = f"the credential of user '{user}'"
    _, fields = unseal_json(what, value, CREDENTIAL_FORMAT)
    try:
        return ScramCredential(
            salt=b64decode(fields["salt"], validate=True),
            stored_key=b64decode(fields["stored_key"], validate=True),
            server_key=b64decode(fields["server_key"], validate=True),
            iterations=int(fields["iterations"]),
            incarnation=str(fields.get("incarnation", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueCorrupt(what, f"{type(error).__name__} in its fields") from None


class UserFault(Exception):
    """Why a credential cannot be changed as asked."""


class UnacceptableCredential(UserFault):
    pass


class NoSuchCredential(UserFault):
    pass


@dataclass(frozen=True, slots=True)
class Upsertion:
    user: str
    mechanism: ScramMechanism
    credential: ScramCredential


def check_upsertion(user: str, iterations: int) -> None:
    """Raises `UnacceptableCredential`, as Kafka does, and also for names that not every client writes
    alike."""
    if not user:
        raise UnacceptableCredential("Username must not be empty")
    try:
        check_prepared(user)
    except NotPrepared as error:
        raise UnacceptableCredential(f"The user name cannot be used: {error}") from None
    if iterations < LEAST_ITERATIONS:
        raise UnacceptableCredential("Too few iterations")
    if iterations > MOST_ITERATIONS:
        raise UnacceptableCredential("Too many iterations")


class Users:
    """Is the `Credentials` of every exchange."""

    def __init__(self, store: MetadataStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._known: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        self._followed = KeyFollower(
            store, runtime, keys.USERS, learn=self._learn, forget=self._forget, together=_of_the_same_user
        )

    async def start(self) -> None:
        await self._followed.start()

    async def stop(self) -> None:
        await self._followed.stop()

    def of(self, user: str) -> Mapping[ScramMechanism, ScramCredential]:
        return self._known.get(user, _NONE)

    def set_last(self, user: str) -> ScramMechanism | None:
        """By the versions of the store, which grow."""
        held = self._known.get(user)
        if held is None:
            return None
        versions = {
            each: version
            for each in ScramMechanism
            if (version := self._followed.version_of(keys.user(user, each.sasl_name))) is not None
        }
        last = max(versions, key=versions.__getitem__)
        return last if last in held else None  # an older one may have been replaced for a reason

    def names(self) -> list[str]:
        return sorted(self._known)

    async def put(self, upsertion: Upsertion) -> None:
        """Store a credential, over an older one. Raises `UserFault` and `SecurityUnavailable`."""
        check_upsertion(upsertion.user, upsertion.credential.iterations)
        key = keys.user(upsertion.user, upsertion.mechanism.sasl_name)

        def put_over(before: StoredValue | None) -> Operation | None:
            if before is None:
                incarnation = f"{self._runtime.random.getrandbits(64):016x}"
            else:
                incarnation = decode_credential(upsertion.user, before.value).incarnation
            value = encode_credential(replace(upsertion.credential, incarnation=incarnation))
            if before is not None and before.value == value:
                return None  # an earlier attempt did it
            return Put(key, value, ABSENT if before is None else before.version)

        await self._change(upsertion.user, key, put_over)

    async def delete(self, user: str, mechanism: ScramMechanism) -> None:
        """Raises `NoSuchCredential` and `SecurityUnavailable`."""
        key = keys.user(user, mechanism.sasl_name)
        tried = False

        def delete_it(before: StoredValue | None) -> Operation | None:
            nonlocal tried
            if before is None and not tried:
                raise NoSuchCredential("Attempt to delete a user credential that does not exist")
            tried = True
            return None if before is None else Delete(key, before.version)

        await self._change(user, key, delete_it)

    async def _change(
        self, user: str, key: str, change: Callable[[StoredValue | None], Operation | None]
    ) -> None:
        """By compare-and-set: a write that arrives late must not bring an old password back."""
        try:
            await update(self._runtime, lambda: self._try_change(user, key, change))
            await self._followed.read_keys([key])
        except MetadataError as error:
            raise SecurityUnavailable(str(error)) from error

    async def _try_change(
        self, user: str, key: str, change: Callable[[StoredValue | None], Operation | None]
    ) -> bool | None:
        """None where another write came in between."""
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        before = await self._store.get(keys.CLUSTER_DOMAIN, key)
        if before is not None:
            decode_credential(user, before.value)  # what a newer build wrote is not written over
        operation = change(before)
        if operation is None:
            return True
        [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [operation])
        return outcome.applied or None

    # --- knowing

    def _learn(self, key: str, value: bytes) -> None:
        """A credential that cannot be read lets no client in: the older one may have been replaced for a
        reason."""
        named = keys.credential_of(key)
        mechanism = None if named is None else mechanism_of(named[1])
        if named is None or mechanism is None:
            return
        try:
            self._known.setdefault(named[0], {})[mechanism] = decode_credential(named[0], value)
        except UnreadableValue as error:
            self._forget(key)
            _log.error("a user's credential is not used", user=named[0], error=str(error))

    def _forget(self, key: str) -> None:
        named = keys.credential_of(key)
        mechanism = None if named is None else mechanism_of(named[1])
        if named is None or mechanism is None:
            return
        held = self._known.get(named[0], {})
        held.pop(mechanism, None)
        if not held:
            self._known.pop(named[0], None)


def _of_the_same_user(key: str) -> list[str]:
    """The password that was set last counts: without it an older one would, which may be gone as well."""
    named = keys.credential_of(key)
    if named is None:
        return [key]
    return sorted({key, *(keys.user(named[0], each.sasl_name) for each in ScramMechanism)})
