"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ListTransactionsRequest: versions 0 to 2
ListTransactionsResponse: versions 0 to 2
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_numbers,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_numbers,
)

pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
pack_q = Layout(">q").pack
unpack_q = Layout(">q").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    """Versions 0 to 2."""

    API_KEY = 66
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 0

    state_filters: list[str] = field(default_factory=list)
    producer_id_filters: list[int] = field(default_factory=list)
    duration_filter: int = -1
    transactional_id_pattern: str | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ListTransactionsRequest, int]:
        state_filters: list[str]
        producer_id_filters: list[int]
        transactional_id_pattern: str | None
        count, position = read_compact_count(buffer, position, limit, 1)
        state_filters = []
        for _ in range(count):
            string_value, position = read_compact_string(buffer, position, limit)
            state_filters.append(string_value)
        count, position = read_compact_count(buffer, position, limit, 8)
        producer_id_filters, position = read_numbers(buffer, position, "q", 8, count)
        if version >= 1:
            (duration_filter,) = unpack_q(buffer, position)
            position += 8
        else:
            duration_filter = -1
        if version >= 2:
            transactional_id_pattern, position = read_compact_nullable_string(buffer, position, limit)
        else:
            transactional_id_pattern = None
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ListTransactionsRequest(
            state_filters, producer_id_filters, duration_filter, transactional_id_pattern
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_count(out, len(self.state_filters))
        for string_value in self.state_filters:
            write_compact_string(out, string_value)
        write_compact_count(out, len(self.producer_id_filters))
        write_numbers(out, "q", self.producer_id_filters)
        if version >= 1:
            out += pack_q(self.duration_filter)
        if version >= 2:
            write_compact_nullable_string(out, self.transactional_id_pattern)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class TransactionState(Struct):
    """Versions 0 to 2. Part of ListTransactionsResponse."""

    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TransactionState, int]:
        transactional_id, position = read_compact_string(buffer, position, limit)
        (producer_id,) = unpack_q(buffer, position)
        position += 8
        transaction_state, position = read_compact_string(buffer, position, limit)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return TransactionState(transactional_id, producer_id, transaction_state), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.transactional_id)
        out += pack_q(self.producer_id)
        write_compact_string(out, self.transaction_state)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ListTransactionsResponse(Response):
    """Versions 0 to 2."""

    API_KEY = 66
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: list[str] = field(default_factory=list)
    transaction_states: list[TransactionState] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ListTransactionsResponse, int]:
        unknown_state_filters: list[str]
        transaction_states: list[TransactionState]
        throttle_time_ms, error_code = unpack_ih(buffer, position)
        position += 6
        count, position = read_compact_count(buffer, position, limit, 1)
        unknown_state_filters = []
        for _ in range(count):
            string_value, position = read_compact_string(buffer, position, limit)
            unknown_state_filters.append(string_value)
        count, position = read_compact_count(buffer, position, limit, 11)
        transaction_states = []
        for _ in range(count):
            transaction_state, position = TransactionState.read(buffer, position, limit, version)
            transaction_states.append(transaction_state)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ListTransactionsResponse(
            throttle_time_ms, error_code, unknown_state_filters, transaction_states
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ih(self.throttle_time_ms, self.error_code)
        write_compact_count(out, len(self.unknown_state_filters))
        for string_value in self.unknown_state_filters:
            write_compact_string(out, string_value)
        write_compact_count(out, len(self.transaction_states))
        for transaction_state in self.transaction_states:
            transaction_state.write(out, version, cuts)
        out.append(0)
