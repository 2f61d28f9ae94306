"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

SaslAuthenticateRequest: versions 0 to 2
SaslAuthenticateResponse: versions 0 to 2
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response
from dray.kafka.protocol.wire import (
    Cuts,
    read_bytes,
    read_compact_bytes,
    read_compact_nullable_string,
    read_nullable_string,
    skip_tags,
    write_bytes,
    write_compact_bytes,
    write_compact_nullable_string,
    write_nullable_string,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_q = Layout(">q").pack
unpack_q = Layout(">q").unpack_from
unpack_qB = Layout(">qB").unpack_from
pack_qx = Layout(">qx").pack


@dataclass(slots=True, eq=False, repr=False)
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    """Versions 0 to 2."""

    API_KEY = 36
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 2

    auth_bytes: bytes = b""

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[SaslAuthenticateRequest, int]:
        if version >= 2:
            auth_bytes, position = read_compact_bytes(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return SaslAuthenticateRequest(auth_bytes), position
        auth_bytes, position = read_bytes(buffer, position, limit)
        return SaslAuthenticateRequest(auth_bytes), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_bytes(out, self.auth_bytes)
            out.append(0)
            return
        write_bytes(out, self.auth_bytes)


@dataclass(slots=True, eq=False, repr=False)
class SaslAuthenticateResponse(Response):
    """Versions 0 to 2."""

    API_KEY = 36
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 2

    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[SaslAuthenticateResponse, int]:
        error_message: str | None
        if version >= 2:
            (error_code,) = unpack_h(buffer, position)
            position += 2
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            auth_bytes, position = read_compact_bytes(buffer, position, limit)
            session_lifetime_ms, tags = unpack_qB(buffer, position)
            position += 9
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return SaslAuthenticateResponse(
                error_code, error_message, auth_bytes, session_lifetime_ms
            ), position
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_nullable_string(buffer, position, limit)
        auth_bytes, position = read_bytes(buffer, position, limit)
        if version >= 1:
            (session_lifetime_ms,) = unpack_q(buffer, position)
            position += 8
        else:
            session_lifetime_ms = 0
        return SaslAuthenticateResponse(error_code, error_message, auth_bytes, session_lifetime_ms), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_h(self.error_code)
            write_compact_nullable_string(out, self.error_message)
            write_compact_bytes(out, self.auth_bytes)
            out += pack_qx(self.session_lifetime_ms)
            return
        out += pack_h(self.error_code)
        write_nullable_string(out, self.error_message)
        write_bytes(out, self.auth_bytes)
        if version >= 1:
            out += pack_q(self.session_lifetime_ms)
