"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

SaslHandshakeRequest: versions 0 to 1
SaslHandshakeResponse: versions 0 to 1
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import NEVER_FLEXIBLE, Request, Response
from dray.kafka.protocol.wire import (
    Cuts,
    read_count,
    read_string,
    write_count,
    write_string,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """Versions 0 to 1."""

    API_KEY = 17
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = NEVER_FLEXIBLE

    mechanism: str = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[SaslHandshakeRequest, int]:
        mechanism, position = read_string(buffer, position, limit)
        return SaslHandshakeRequest(mechanism), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_string(out, self.mechanism)


@dataclass(slots=True, eq=False, repr=False)
class SaslHandshakeResponse(Response):
    """Versions 0 to 1."""

    API_KEY = 17
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = NEVER_FLEXIBLE

    error_code: int = 0
    mechanisms: list[str] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[SaslHandshakeResponse, int]:
        mechanisms: list[str]
        (error_code,) = unpack_h(buffer, position)
        position += 2
        count, position = read_count(buffer, position, limit, 2)
        mechanisms = []
        for _ in range(count):
            string_value, position = read_string(buffer, position, limit)
            mechanisms.append(string_value)
        return SaslHandshakeResponse(error_code, mechanisms), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_h(self.error_code)
        write_count(out, len(self.mechanisms))
        for string_value in self.mechanisms:
            write_string(out, string_value)
