"""The stored form of a password: SCRAM's keys (RFC 5802), from which the password cannot be had back.

PLAIN is verified against the same: one credential per user and mechanism, and no clear password anywhere.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from random import Random
from typing import Final, Protocol

LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384
"""Kafka's bounds. The upper one bounds what one attempt to log in with PLAIN costs."""

_SALT_BYTES: Final = 32


class ScramMechanism(IntEnum):
    """With Kafka's numbers, as AlterUserScramCredentials has them."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return f"SCRAM-SHA-{self.hash_name[3:]}"

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"


def mechanism_of(sasl_name: str) -> ScramMechanism | None:
    return next((each for each in ScramMechanism if each.sasl_name == sasl_name), None)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int
    incarnation: str = field(default="", repr=False, compare=False)
    """The same while a password is set over another one, and new where there was none: who was deleted and
    added again is not who it was. Empty where it was set before there were any."""


class Credentials(Protocol):
    """The credentials of users."""

    def of(self, user: str) -> Mapping[ScramMechanism, ScramCredential]:
        """Empty for an unknown one."""

    def set_last(self, user: str) -> ScramMechanism | None:
        """Which of them was set last: they may be set one by one. None also where that one cannot be used."""


def is_still_there(
    credentials: Credentials, user: str, mechanism: ScramMechanism, proven: ScramCredential
) -> bool:
    """Whether a session stands that proved this credential. As with Kafka, a new password ends none."""
    held = credentials.of(user).get(mechanism)
    return held is not None and held.incarnation == proven.incarnation


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes a millisecond or more: in a thread. The password as it is: Kafka's clients do not prepare it."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_from_salted(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    name = mechanism.hash_name
    client_key = hmac.digest(salted, b"Client Key", name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", name),
        iterations=iterations,
    )


def make_credential(
    mechanism: ScramMechanism, password: str, random: Random, iterations: int = LEAST_ITERATIONS
) -> ScramCredential:
    salt = random.randbytes(_SALT_BYTES)
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_from_salted(mechanism, salted, salt, iterations)


def verify_password(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Takes a millisecond or more: in a thread."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_from_salted(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)
