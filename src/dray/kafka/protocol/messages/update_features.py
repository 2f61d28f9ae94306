"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

UpdateFeaturesRequest: versions 0 to 2
UpdateFeaturesResponse: versions 0 to 2
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
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
)

pack_b = Layout(">b").pack
unpack_b = Layout(">b").unpack_from
pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class FeatureUpdateKey(Struct):
    """Versions 0 to 2. Part of UpdateFeaturesRequest."""

    feature: str = ""
    max_version_level: int = 0
    upgrade_type: int = 1
    allow_downgrade: bool = False

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[FeatureUpdateKey, int]:
        feature, position = read_compact_string(buffer, position, limit)
        (max_version_level,) = unpack_h(buffer, position)
        position += 2
        if version >= 1:
            (upgrade_type,) = unpack_b(buffer, position)
            position += 1
        else:
            upgrade_type = 1
        if version <= 0:
            (allow_downgrade,) = unpack_o(buffer, position)
            position += 1
        else:
            allow_downgrade = False
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return FeatureUpdateKey(feature, max_version_level, upgrade_type, allow_downgrade), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.feature)
        out += pack_h(self.max_version_level)
        if version >= 1:
            out += pack_b(self.upgrade_type)
        if version <= 0:
            out += pack_o(self.allow_downgrade)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"]):
    """Versions 0 to 2."""

    API_KEY = 57
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 0

    timeout_ms: int = 60000
    feature_updates: list[FeatureUpdateKey] = field(default_factory=list)
    validate_only: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[UpdateFeaturesRequest, int]:
        feature_updates: list[FeatureUpdateKey]
        (timeout_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_count(buffer, position, limit, 5)
        feature_updates = []
        for _ in range(count):
            feature_update_key, position = FeatureUpdateKey.read(buffer, position, limit, version)
            feature_updates.append(feature_update_key)
        if version >= 1:
            (validate_only,) = unpack_o(buffer, position)
            position += 1
        else:
            validate_only = False
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return UpdateFeaturesRequest(timeout_ms, feature_updates, validate_only), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.timeout_ms)
        write_compact_count(out, len(self.feature_updates))
        for feature_update_key in self.feature_updates:
            feature_update_key.write(out, version, cuts)
        if version >= 1:
            out += pack_o(self.validate_only)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class UpdatableFeatureResult(Struct):
    """Versions 0 to 1. Part of UpdateFeaturesResponse."""

    feature: str = ""
    error_code: int = 0
    error_message: str | None = ""

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[UpdatableFeatureResult, int]:
        error_message: str | None
        feature, position = read_compact_string(buffer, position, limit)
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return UpdatableFeatureResult(feature, error_code, error_message), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.feature)
        out += pack_h(self.error_code)
        write_compact_nullable_string(out, self.error_message)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class UpdateFeaturesResponse(Response):
    """Versions 0 to 2."""

    API_KEY = 57
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[UpdateFeaturesResponse, int]:
        error_message: str | None
        results: list[UpdatableFeatureResult]
        throttle_time_ms, error_code = unpack_ih(buffer, position)
        position += 6
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        if version <= 1:
            count, position = read_compact_count(buffer, position, limit, 5)
            results = []
            for _ in range(count):
                updatable_feature_result, position = UpdatableFeatureResult.read(
                    buffer, position, limit, version
                )
                results.append(updatable_feature_result)
        else:
            results = []
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return UpdateFeaturesResponse(throttle_time_ms, error_code, error_message, results), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ih(self.throttle_time_ms, self.error_code)
        write_compact_nullable_string(out, self.error_message)
        if version <= 1:
            write_compact_count(out, len(self.results))
            for updatable_feature_result in self.results:
                updatable_feature_result.write(out, version, cuts)
        out.append(0)
