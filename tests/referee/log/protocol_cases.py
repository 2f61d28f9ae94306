"""Versions, unknown APIs, malformed frames, and what a broker says of itself."""

from __future__ import annotations

import struct

from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest
from dray.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.referee.cases import case
from tests.referee.session import Session

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19


def header(key: int, version: int, flexible: bool = False, client: bytes | None = b"referee") -> bytes:
    name = struct.pack(">h", -1) if client is None else struct.pack(">h", len(client)) + client
    return struct.pack(">hhi", key, version, 77) + name + (b"\0" if flexible else b"")


@case
async def api_versions(session: Session) -> None:
    await session.raw("v99", header(API_VERSIONS, 99, flexible=True), show=True)
    await session.raw(
        "v99 with a body", header(API_VERSIONS, 99, flexible=True) + b"\x05name\x042.0\0", show=True
    )
    await session.raw("v-1", header(API_VERSIONS, -1), show=True)
    for label, name, version in (
        ("good", "dray", "1.0"),
        ("empty name", "", "1.0"),
        ("empty version", "dray", ""),
        ("bad name", "-dray!", "1.0"),
        ("bad version", "dray", "1 0"),
    ):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        response = await session.ask(f"{label} client", request, 3)
        session.notes[f"{label} client"] = response if response is None else response.error_code


@case
async def versions_out_of_range(session: Session) -> None:
    for name, key in (
        ("produce", PRODUCE),
        ("fetch", FETCH),
        ("list offsets", LIST_OFFSETS),
        ("metadata", METADATA),
        ("create topics", CREATE_TOPICS),
    ):
        await session.raw(f"{name} v99", header(key, 99, flexible=True) + b"\0" * 20)
        await session.raw(f"{name} v-1", header(key, -1) + b"\0" * 20)
    await session.raw("fetch v3", header(FETCH, 3) + b"\0" * 30)
    await session.raw("list offsets v0", header(LIST_OFFSETS, 0) + b"\0" * 30)
    await session.raw("create topics v1", header(CREATE_TOPICS, 1) + b"\0" * 30)
    await session.raw("unknown api", header(999, 0))
    await session.raw("negative api", header(-3, 0))


@case
async def malformed_frames(session: Session) -> None:
    await session.raw("empty frame", b"")
    await session.raw("three bytes", b"\0\3\0")
    await session.raw("negative size", b"", size=-1)
    await session.raw("huge size", b"", size=2**31 - 1)
    await session.raw("metadata cut short", header(METADATA, 1) + struct.pack(">i", 5))
    await session.raw("huge array", header(METADATA, 1) + struct.pack(">i", 2**31 - 1))
    await session.raw("negative array", header(METADATA, 1) + struct.pack(">i", -7))
    await session.raw(
        "string longer than the frame", header(METADATA, 1) + struct.pack(">ih", 1, 500) + b"abc"
    )
    await session.raw("null where a name must be", header(METADATA, 1) + struct.pack(">ih", 1, -1))
    await session.raw("client id longer than the frame", struct.pack(">hhih", METADATA, 1, 7, 500) + b"abc")
    await session.raw("name is not UTF-8", header(METADATA, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe")
    await session.raw("compact array beyond", header(METADATA, 9, flexible=True) + b"\xff\xff\xff\xff\x0f")
    await session.raw("varint without end", header(METADATA, 9, flexible=True) + b"\xff" * 12)


@case
async def describe_cluster(session: Session) -> None:
    for version in (0, 1, 2):
        await session.ask(f"v{version}", DescribeClusterRequest(), version)
    await session.ask("controllers", DescribeClusterRequest(endpoint_type=2), 1)
    await session.ask("unknown endpoints", DescribeClusterRequest(endpoint_type=7), 1)


@case
async def find_coordinator(session: Session) -> None:
    """Kafka first has to make its coordinators' topic: only what is refused can be compared."""
    await session.ask("unknown kind", FindCoordinatorRequest(key="group", key_type=9), 2)
    await session.ask("unknown kind, many", FindCoordinatorRequest(coordinator_keys=["a"], key_type=9), 4)
    await session.ask("no keys", FindCoordinatorRequest(coordinator_keys=[], key_type=0), 4)
