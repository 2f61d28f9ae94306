"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DescribeUserScramCredentialsRequest: version 0
DescribeUserScramCredentialsResponse: version 0
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_nullable_string,
    read_compact_string,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
)

unpack_biB = Layout(">biB").unpack_from
pack_bix = Layout(">bix").pack
pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class UserName(Struct):
    """Version 0. Part of DescribeUserScramCredentialsRequest."""

    name: str = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[UserName, int]:
        name, position = read_compact_string(buffer, position, limit)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return UserName(name), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    """Version 0."""

    API_KEY = 50
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    users: list[UserName] | None = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeUserScramCredentialsRequest, int]:
        users: list[UserName] | None
        count, position = read_compact_nullable_count(buffer, position, limit, 2)
        if count < 0:
            users = None
        else:
            users = []
            for _ in range(count):
                user_name, position = UserName.read(buffer, position, limit, version)
                users.append(user_name)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeUserScramCredentialsRequest(users), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if self.users is None:
            out += bytes(1)
        else:
            write_compact_count(out, len(self.users))
            for user_name in self.users:
                user_name.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class CredentialInfo(Struct):
    """Version 0. Part of DescribeUserScramCredentialsResponse."""

    mechanism: int = 0
    iterations: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[CredentialInfo, int]:
        mechanism, iterations, tags = unpack_biB(buffer, position)
        position += 6
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return CredentialInfo(mechanism, iterations), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_bix(self.mechanism, self.iterations)


@dataclass(slots=True, eq=False, repr=False)
class DescribeUserScramCredentialsResult(Struct):
    """Version 0. Part of DescribeUserScramCredentialsResponse."""

    user: str = ""
    error_code: int = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeUserScramCredentialsResult, int]:
        error_message: str | None
        credential_infos: list[CredentialInfo]
        user, position = read_compact_string(buffer, position, limit)
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 6)
        credential_infos = []
        for _ in range(count):
            credential_info, position = CredentialInfo.read(buffer, position, limit, version)
            credential_infos.append(credential_info)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeUserScramCredentialsResult(user, error_code, error_message, credential_infos), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.user)
        out += pack_h(self.error_code)
        write_compact_nullable_string(out, self.error_message)
        write_compact_count(out, len(self.credential_infos))
        for credential_info in self.credential_infos:
            credential_info.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribeUserScramCredentialsResponse(Response):
    """Version 0."""

    API_KEY = 50
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeUserScramCredentialsResponse, int]:
        error_message: str | None
        results: list[DescribeUserScramCredentialsResult]
        throttle_time_ms, error_code = unpack_ih(buffer, position)
        position += 6
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 6)
        results = []
        for _ in range(count):
            describe_user_scram_credentials_result, position = DescribeUserScramCredentialsResult.read(
                buffer, position, limit, version
            )
            results.append(describe_user_scram_credentials_result)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeUserScramCredentialsResponse(
            throttle_time_ms, error_code, error_message, results
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ih(self.throttle_time_ms, self.error_code)
        write_compact_nullable_string(out, self.error_message)
        write_compact_count(out, len(self.results))
        for describe_user_scram_credentials_result in self.results:
            describe_user_scram_credentials_result.write(out, version, cuts)
        out.append(0)
