"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

AlterUserScramCredentialsRequest: version 0
AlterUserScramCredentialsResponse: version 0
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_bytes,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    skip_tags,
    write_compact_bytes,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
)

unpack_bB = Layout(">bB").unpack_from
pack_bi = Layout(">bi").pack
unpack_bi = Layout(">bi").unpack_from
pack_bx = Layout(">bx").pack
pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class ScramCredentialDeletion(Struct):
    """Version 0. Part of AlterUserScramCredentialsRequest."""

    name: str = ""
    mechanism: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ScramCredentialDeletion, int]:
        name, position = read_compact_string(buffer, position, limit)
        mechanism, tags = unpack_bB(buffer, position)
        position += 2
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ScramCredentialDeletion(name, mechanism), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        out += pack_bx(self.mechanism)


@dataclass(slots=True, eq=False, repr=False)
class ScramCredentialUpsertion(Struct):
    """Version 0. Part of AlterUserScramCredentialsRequest."""

    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes = b""

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ScramCredentialUpsertion, int]:
        name, position = read_compact_string(buffer, position, limit)
        mechanism, iterations = unpack_bi(buffer, position)
        position += 5
        salt, position = read_compact_bytes(buffer, position, limit)
        salted_password, position = read_compact_bytes(buffer, position, limit)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ScramCredentialUpsertion(name, mechanism, iterations, salt, salted_password), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        out += pack_bi(self.mechanism, self.iterations)
        write_compact_bytes(out, self.salt)
        write_compact_bytes(out, self.salted_password)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class AlterUserScramCredentialsRequest(Request["AlterUserScramCredentialsResponse"]):
    """Version 0."""

    API_KEY = 51
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    deletions: list[ScramCredentialDeletion] = field(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterUserScramCredentialsRequest, int]:
        deletions: list[ScramCredentialDeletion]
        upsertions: list[ScramCredentialUpsertion]
        count, position = read_compact_count(buffer, position, limit, 3)
        deletions = []
        for _ in range(count):
            scram_credential_deletion, position = ScramCredentialDeletion.read(
                buffer, position, limit, version
            )
            deletions.append(scram_credential_deletion)
        count, position = read_compact_count(buffer, position, limit, 9)
        upsertions = []
        for _ in range(count):
            scram_credential_upsertion, position = ScramCredentialUpsertion.read(
                buffer, position, limit, version
            )
            upsertions.append(scram_credential_upsertion)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return AlterUserScramCredentialsRequest(deletions, upsertions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_count(out, len(self.deletions))
        for scram_credential_deletion in self.deletions:
            scram_credential_deletion.write(out, version, cuts)
        write_compact_count(out, len(self.upsertions))
        for scram_credential_upsertion in self.upsertions:
            scram_credential_upsertion.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class AlterUserScramCredentialsResult(Struct):
    """Version 0. Part of AlterUserScramCredentialsResponse."""

    user: str = ""
    error_code: int = 0
    error_message: str | None = ""

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterUserScramCredentialsResult, int]:
        error_message: str | None
        user, position = read_compact_string(buffer, position, limit)
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return AlterUserScramCredentialsResult(user, error_code, error_message), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.user)
        out += pack_h(self.error_code)
        write_compact_nullable_string(out, self.error_message)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class AlterUserScramCredentialsResponse(Response):
    """Version 0."""

    API_KEY = 51
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    results: list[AlterUserScramCredentialsResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterUserScramCredentialsResponse, int]:
        results: list[AlterUserScramCredentialsResult]
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_count(buffer, position, limit, 5)
        results = []
        for _ in range(count):
            alter_user_scram_credentials_result, position = AlterUserScramCredentialsResult.read(
                buffer, position, limit, version
            )
            results.append(alter_user_scram_credentials_result)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return AlterUserScramCredentialsResponse(throttle_time_ms, results), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.throttle_time_ms)
        write_compact_count(out, len(self.results))
        for alter_user_scram_credentials_result in self.results:
            alter_user_scram_credentials_result.write(out, version, cuts)
        out.append(0)
