"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ApiVersionsRequest: versions 0 to 4
ApiVersionsResponse: versions 0 to 4
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    DecodeError,
    read_compact_count,
    read_compact_string,
    read_count,
    read_tag,
    read_tag_count,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_count,
    write_tags,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
unpack_hhB = Layout(">hhB").unpack_from
pack_hhh = Layout(">hhh").pack
unpack_hhh = Layout(">hhh").unpack_from
unpack_hhhB = Layout(">hhhB").unpack_from
pack_hhhx = Layout(">hhhx").pack
pack_hhx = Layout(">hhx").pack
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_iB = Layout(">iB").unpack_from
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from
pack_q = Layout(">q").pack
unpack_q = Layout(">q").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    """Versions 0 to 4."""

    API_KEY = 18
    VERSIONS = (0, 4)
    FLEXIBLE_FROM = 3

    client_software_name: str = ""
    client_software_version: str = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ApiVersionsRequest, int]:
        if version >= 3:
            client_software_name, position = read_compact_string(buffer, position, limit)
            client_software_version, position = read_compact_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ApiVersionsRequest(client_software_name, client_software_version), position
        return ApiVersionsRequest("", ""), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 3:
            write_compact_string(out, self.client_software_name)
            write_compact_string(out, self.client_software_version)
            out.append(0)
            return
        pass


@dataclass(slots=True, eq=False, repr=False)
class ApiVersion(Struct):
    """Versions 0 to 4. Part of ApiVersionsResponse."""

    api_key: int = 0
    min_version: int = 0
    max_version: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ApiVersion, int]:
        if version >= 3:
            api_key, min_version, max_version, tags = unpack_hhhB(buffer, position)
            position += 7
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ApiVersion(api_key, min_version, max_version), position
        api_key, min_version, max_version = unpack_hhh(buffer, position)
        position += 6
        return ApiVersion(api_key, min_version, max_version), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 3:
            out += pack_hhhx(self.api_key, self.min_version, self.max_version)
            return
        out += pack_hhh(self.api_key, self.min_version, self.max_version)


@dataclass(slots=True, eq=False, repr=False)
class SupportedFeatureKey(Struct):
    """Versions 3 to 4. Part of ApiVersionsResponse."""

    name: str = ""
    min_version: int = 0
    max_version: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[SupportedFeatureKey, int]:
        name, position = read_compact_string(buffer, position, limit)
        min_version, max_version, tags = unpack_hhB(buffer, position)
        position += 5
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return SupportedFeatureKey(name, min_version, max_version), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        out += pack_hhx(self.min_version, self.max_version)


@dataclass(slots=True, eq=False, repr=False)
class FinalizedFeatureKey(Struct):
    """Versions 3 to 4. Part of ApiVersionsResponse."""

    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[FinalizedFeatureKey, int]:
        name, position = read_compact_string(buffer, position, limit)
        max_version_level, min_version_level, tags = unpack_hhB(buffer, position)
        position += 5
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return FinalizedFeatureKey(name, max_version_level, min_version_level), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        out += pack_hhx(self.max_version_level, self.min_version_level)


@dataclass(slots=True, eq=False, repr=False)
class ApiVersionsResponse(Response):
    """Versions 0 to 4."""

    API_KEY = 18
    VERSIONS = (0, 4)
    FLEXIBLE_FROM = 3

    error_code: int = 0
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: int = 0
    supported_features: list[SupportedFeatureKey] = field(default_factory=list)
    finalized_features_epoch: int = -1
    finalized_features: list[FinalizedFeatureKey] = field(default_factory=list)
    zk_migration_ready: bool = False

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ApiVersionsResponse, int]:
        api_keys: list[ApiVersion]
        supported_features: list[SupportedFeatureKey]
        finalized_features_epoch: int
        finalized_features: list[FinalizedFeatureKey]
        zk_migration_ready: bool
        if version >= 3:
            (error_code,) = unpack_h(buffer, position)
            position += 2
            count, position = read_compact_count(buffer, position, limit, 7)
            api_keys = []
            for _ in range(count):
                api_version, position = ApiVersion.read(buffer, position, limit, version)
                api_keys.append(api_version)
            throttle_time_ms, tags = unpack_iB(buffer, position)
            position += 5
            supported_features = []
            finalized_features_epoch = -1
            finalized_features = []
            zk_migration_ready = False
            if tags:
                tags, position = read_tag_count(buffer, position - 1, limit)
                tag = -1
                for _ in range(tags):
                    tag, start, end = read_tag(buffer, position, limit, tag)
                    if tag == 0:
                        count, start = read_compact_count(buffer, start, end, 6)
                        supported_features = []
                        for _ in range(count):
                            supported_feature_key, start = SupportedFeatureKey.read(
                                buffer, start, end, version
                            )
                            supported_features.append(supported_feature_key)
                    elif tag == 1:
                        (finalized_features_epoch,) = unpack_q(buffer, start)
                        start += 8
                    elif tag == 2:
                        count, start = read_compact_count(buffer, start, end, 6)
                        finalized_features = []
                        for _ in range(count):
                            finalized_feature_key, start = FinalizedFeatureKey.read(
                                buffer, start, end, version
                            )
                            finalized_features.append(finalized_feature_key)
                    elif tag == 3:
                        (zk_migration_ready,) = unpack_o(buffer, start)
                        start += 1
                    else:
                        start = end
                    if start != end:
                        raise DecodeError("a tagged field of ApiVersionsResponse has the wrong size")
                    position = end
            return ApiVersionsResponse(
                error_code,
                api_keys,
                throttle_time_ms,
                supported_features,
                finalized_features_epoch,
                finalized_features,
                zk_migration_ready,
            ), position
        (error_code,) = unpack_h(buffer, position)
        position += 2
        count, position = read_count(buffer, position, limit, 6)
        api_keys = []
        for _ in range(count):
            api_version, position = ApiVersion.read(buffer, position, limit, version)
            api_keys.append(api_version)
        if version >= 1:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        return ApiVersionsResponse(error_code, api_keys, throttle_time_ms, [], -1, [], False), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 3:
            out += pack_h(self.error_code)
            write_compact_count(out, len(self.api_keys))
            for api_version in self.api_keys:
                api_version.write(out, version, cuts)
            out += pack_i(self.throttle_time_ms)
            if (
                not self.supported_features
                and self.finalized_features_epoch == -1
                and not self.finalized_features
                and self.zk_migration_ready == False
            ):
                out.append(0)
                return
            tagged: list[tuple[int, bytearray]] = []
            if self.supported_features:
                value = bytearray()
                write_compact_count(value, len(self.supported_features))
                for supported_feature_key in self.supported_features:
                    supported_feature_key.write(value, version, cuts)
                tagged.append((0, value))
            if self.finalized_features_epoch != -1:
                value = bytearray()
                value += pack_q(self.finalized_features_epoch)
                tagged.append((1, value))
            if self.finalized_features:
                value = bytearray()
                write_compact_count(value, len(self.finalized_features))
                for finalized_feature_key in self.finalized_features:
                    finalized_feature_key.write(value, version, cuts)
                tagged.append((2, value))
            if self.zk_migration_ready != False:
                value = bytearray()
                value += pack_o(self.zk_migration_ready)
                tagged.append((3, value))
            write_tags(out, tagged)
            return
        out += pack_h(self.error_code)
        write_count(out, len(self.api_keys))
        for api_version in self.api_keys:
            api_version.write(out, version, cuts)
        if version >= 1:
            out += pack_i(self.throttle_time_ms)
