"""A connection to a metadata server may take its time: far away, with TLS, or on a machine that is busy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from grpc import aio, method_handlers_generic_handler, unary_unary_rpc_method_handler
from tests.services.proxy import TcpProxy

from dray.metadata.etcd import server as etcd
from dray.metadata.oxia import server as oxia


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def answer(request: bytes, _: object) -> bytes:
        return request

    server = aio.server()
    handler = unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([method_handlers_generic_handler("echo", {"Say": handler})])
    bound: int = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield bound
    await server.stop(0)


async def echoed(address: str, options: list[tuple[str, Any]]) -> bytes:
    async with aio.insecure_channel(address, options) as channel:
        said: bytes = await channel.unary_unary("/echo/Say")(b"hello", timeout=60, wait_for_ready=True)
        return said


async def test_a_slow_connection_comes_up(port: int) -> None:
    with TcpProxy(port) as link:
        link.delay(1.5)
        found = await asyncio.gather(*(echoed(link.address, each) for each in (etcd.OPTIONS, oxia.OPTIONS)))
        assert found == [b"hello", b"hello"]
