"""An Oxia cluster with a link of its own for one process, so that the network can fail that one alone.

Oxia's servers tell clients where the leaders are, so a proxy is known to all clients or to none. These sort
connections by the process at their other end: those of the lonely one go on through a proxy that can be cut
and frozen, the others straight to the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import psutil
import yaml

from tests.services.oxia import OxiaCluster, OxiaNode, leaders
from tests.services.process import POLL_SECONDS, NotReady
from tests.services.proxy import TcpProxy

READY_SECONDS = 60.0


class SortingProxy(TcpProxy):
    """`lonely` tells the process whose connections take the other way, None while there is no such one."""

    def __init__(self, port: int, other_way: TcpProxy, lonely: Callable[[], int | None]) -> None:
        super().__init__(port)
        self._other_way = other_way
        self._lonely = lonely

    def target_of(self, client: asyncio.StreamWriter) -> tuple[str, int]:
        process = self._lonely()
        if process is None or client.get_extra_info("peername")[1] not in ports_of(process):
            return self.target
        return ("127.0.0.1", self._other_way.port)


def ports_of(process: int) -> set[int]:
    try:
        return {found.laddr.port for found in psutil.Process(process).net_connections("tcp") if found.laddr}
    except psutil.NoSuchProcess:
        return set()


class SortedOxia:
    def __init__(self, directory: Path, lonely: Callable[[], int | None]) -> None:
        self.cluster = OxiaCluster(directory, sync=False)
        self.links = [TcpProxy(node.port) for node in self.cluster.nodes]
        self._doors = [
            SortingProxy(node.port, link, lonely)
            for node, link in zip(self.cluster.nodes, self.links, strict=True)
        ]
        self._stack = ExitStack()

    @property
    def addresses(self) -> list[str]:
        return [door.address for door in self._doors]

    def leader(self, shard: int) -> OxiaNode:
        address = self._leaders()[shard]
        return self.cluster.nodes[self.addresses.index(address)]

    def _leaders(self) -> dict[int, str]:
        """As the servers that answer tell it. They answer who calls them by the name they have been given."""
        return max((leaders(address, self.cluster.namespace) for address in self.addresses), key=len)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for proxy in (*self.links, *self._doors):
                stack.enter_context(proxy)
            configuration = self.cluster.coordinator.configuration
            content = yaml.safe_load(configuration.read_text())
            for server, address in zip(content["servers"], self.addresses, strict=True):
                server["public"] = address
            configuration.write_text(yaml.safe_dump(content))
            stack.callback(self.cluster.stop)
            self.cluster.spawn()
            self._wait_for_leaders()
            self._stack = stack.pop_all()
        return self

    def _wait_for_leaders(self) -> None:
        for node in self.cluster.nodes:
            node.wait_until_ready(READY_SECONDS)
        deadline = time.monotonic() + READY_SECONDS
        while len(self._leaders()) < self.cluster.shards:
            if time.monotonic() > deadline:
                raise NotReady(f"no leaders:\n{self.cluster.coordinator.log_tail()}")
            time.sleep(POLL_SECONDS)

    def __exit__(self, *_: object) -> None:
        self._stack.close()
