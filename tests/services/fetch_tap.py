"""What clients ask for, seen on their way to a broker: the offset and the sizes of every fetch."""

from __future__ import annotations

from typing import NamedTuple

from dray.kafka.protocol.frames import parse_request_header
from dray.kafka.protocol.messages.fetch import FetchRequest
from dray.kafka.protocol.messages.schemas import ApiKey


class SeenFetch(NamedTuple):
    offset: int
    most_bytes: int  # of the partition
    most_of_all: int


class SeenFetches:
    """Made once for a proxy. What a fetch session knows already is not asked for again: there is one of these
    whenever a position has changed."""

    def __init__(self) -> None:
        self.fetches: list[SeenFetch] = []

    def tap(self) -> FetchTap:
        return FetchTap(self.fetches)

    def forget(self) -> None:
        self.fetches.clear()

    @property
    def last_offset(self) -> int | None:
        return self.fetches[-1].offset if self.fetches else None


class FetchTap:
    """One connection."""

    def __init__(self, fetches: list[SeenFetch]) -> None:
        self._fetches = fetches
        self._unread = bytearray()

    def towards_target(self, piece: bytes) -> None:
        self._unread += piece
        while len(self._unread) >= 4:
            size = int.from_bytes(self._unread[:4], "big")
            if len(self._unread) < 4 + size:
                return
            self._request(bytes(self._unread[4 : 4 + size]))
            del self._unread[: 4 + size]

    def back(self, piece: bytes) -> None: ...

    def _request(self, frame: bytes) -> None:
        view = memoryview(frame)
        header, position = parse_request_header(view)
        if header.api_key != ApiKey.FETCH:
            return
        request, _ = FetchRequest.decode(view, position, header.api_version)
        for topic in request.topics:
            for one in topic.partitions:
                self._fetches.append(SeenFetch(one.fetch_offset, one.partition_max_bytes, request.max_bytes))
