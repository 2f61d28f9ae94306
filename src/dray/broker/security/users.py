"""Users: their SCRAM credentials, one key per user and mechanism. No clear password is ever stored.

Every broker keeps them in memory: a login must not wait for a read.
"""

from __future__ import annotations

import stringprep
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from dray.base.runtime import Runtime
from dray.broker.security.key_follower import KeyFollower, SecurityUnavailable
from dray.kafka.sasl.credentials import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    mechanism_of,
)
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Delete, MetadataError, MetadataStore, Operation, Put, StoredValue
from dray.metadata.update import update
from dray.metadata.values import UnreadableValue, ValueCorrupt, seal_json, unseal_json

# --- SASLprep (RFC 4013): names and passwords that every client writes alike
#
# Kafka's own clients send a name and a password as they were typed; others (those of Go's scram library)
# prepare them first. A text that preparation changes or refuses would work with some clients and not with
# others, and two names that look alike could be two users. So both are refused where a user is made.

_PROHIBITED: Final[tuple[Callable[[str], bool], ...]] = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,  # unassigned: what is stored must not change its meaning later
)

LONGEST: Final = 255
"""The longest name or password, in bytes: RFC 4616 asks every server to accept as much, and a key holds no
more."""


class NotPrepared(ValueError):
    """A name or a password that not every client writes alike. The text itself is never in the message."""


def saslprep(text: str) -> str:
    """As a stored string: raises `NotPrepared` for what is prohibited."""
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(prohibits(character) for character in prepared for prohibits in _PROHIBITED):
        raise NotPrepared(
            "it has a character that SASLprep (RFC 4013) prohibits, such as a control character"
        )
    _check_directions(prepared)
    return prepared


def _check_directions(prepared: str) -> None:
    """RFC 3454, section 6."""
    if not any(map(stringprep.in_table_d1, prepared)):
        return
    if any(map(stringprep.in_table_d2, prepared)):
        raise NotPrepared("it mixes letters that are written from the right with others from the left")
    if not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])):
        raise NotPrepared("it is written from the right, but does not begin and end so")


def check_prepared(text: str) -> None:
    """Raises `NotPrepared` unless every client writes this text alike."""
    if not text:
        raise NotPrepared("it is empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise NotPrepared("it is no valid Unicode text") from None
    if size > LONGEST:
        raise NotPrepared(f"it is longer than {LONGEST} bytes")
    if saslprep(text) != text:
        raise NotPrepared("SASLprep (RFC 4013) changes it, so not every client would send it alike")


# --- credentials

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
