"""A Dray broker whose object store takes its time, to see that memory stays within its bounds.

python -m bench.slow_broker DATA_DIRECTORY HOST:PORT HOST:PORT SECONDS BUFFER_BYTES TAIL_CACHE_BYTES
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import uvloop
from tests.services.process import ServerProcess, answers_api_versions, free_port

from dray.base.config.kinds import Address
from dray.base.runtime import SystemRuntime
from dray.base.telemetry import configure_logging
from dray.broker.settings import LimitSettings
from dray.daemons.assembly.process import tune_memory
from dray.daemons.assembly.stores import open_stores
from dray.daemons.broker.node import Node
from dray.daemons.config import Settings
from dray.daemons.config.model import BrokerSection
from dray.log import LogSettings
from dray.objects import ObjectStore
from dray.objects.contract import Buffer, ObjectInfo, OwnBuffer

T = TypeVar("T")


class SlowStore:
    """Every put is answered after a fixed time, as many at once as one likes: a far store, not a busy one.
    It is slow from the moment on that `seconds` is set."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.seconds = 0.0

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await asyncio.sleep(self.seconds)
        await self._store.put(path, parts)

    async def put_if_absent(self, path: str, parts: Sequence[Buffer]) -> None:
        await asyncio.sleep(self.seconds)
        await self._store.put_if_absent(path, parts)

    async def get(self, path: str) -> Buffer:
        return await self._store.get(path)

    async def put_stream(self, path: str, pieces: AsyncIterator[Sequence[Buffer]]) -> None:
        await asyncio.sleep(self.seconds)
        await self._store.put_stream(path, pieces)

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        return await self._store.get_ranges(path, ranges)

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        return await self._store.with_ranges(path, ranges, work)

    async def head(self, path: str) -> ObjectInfo:
        return await self._store.head(path)

    async def delete(self, path: str) -> None:
        await self._store.delete(path)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._store.list(prefix)

    async def close(self) -> None:
        await self._store.close()


class SlowBrokerProcess(ServerProcess):
    def __init__(self, directory: Path, seconds: float, buffer_bytes: int, tail_cache_bytes: int) -> None:
        super().__init__("slow-broker", directory)
        self.port = free_port()
        self.http_port = free_port()
        self._arguments = [str(seconds), str(buffer_bytes), str(tail_cache_bytes)]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        program = [sys.executable, str(Path(__file__).resolve())]
        addresses = [self.bootstrap, f"127.0.0.1:{self.http_port}"]
        return [*program, str(self.directory / "data"), *addresses, *self._arguments]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": str(Path(__file__).resolve().parents[1])}

    def is_ready(self) -> bool:
        return answers_api_versions("127.0.0.1", self.port)


def address(text: str) -> Address:
    host, port = text.rsplit(":", 1)
    return Address(host, int(port))


async def serve(
    directory: str, listen: str, http: str, seconds: str, buffer_bytes: str, tail_cache_bytes: str
) -> None:
    settings = Settings(
        data_dir=directory,
        broker=BrokerSection(listen=address(listen), http=address(http)),
        limits=LimitSettings(buffer_bytes=int(buffer_bytes)),
        log=LogSettings(tail_cache_bytes=int(tail_cache_bytes)),
    )
    runtime = SystemRuntime()
    configure_logging("json", "info", runtime)
    stores = await open_stores(settings, runtime)
    slow = SlowStore(stores.objects)
    node = Node(settings, runtime, stores.metadata, slow)
    await node.start()
    slow.seconds = float(seconds)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await node.stop()
    runtime.close()


if __name__ == "__main__":
    tune_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(*sys.argv[1:]))
