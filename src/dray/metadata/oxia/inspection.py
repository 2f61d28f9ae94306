"""Whether a namespace will do, found out at start: better one line then than wrong answers later."""

from __future__ import annotations

import asyncio

from grpc import aio

from dray.metadata.oxia.calls import Calls
from dray.metadata.oxia.errors import NOTIFICATIONS_NOT_ENABLED, UnusableOxia, understand
from dray.metadata.oxia.keys import SORTING_KEYS, SORTING_PROBE, partition_key
from dray.metadata.oxia.plan import NO_VERSION
from dray.metadata.oxia.settings import OxiaSettings
from dray.metadata.oxia.shards import Leader, Shard
from dray.metadata.oxia.wire import client_pb2 as wire


async def inspect(shard: Shard, calls: Calls, settings: OxiaSettings) -> None:
    await _check_sorting(shard, calls, settings)
    await _check_notifications(shard, calls, settings)


async def _check_sorting(shard: Shard, calls: Calls, settings: OxiaSettings) -> None:
    """Two keys stay in every namespace for this. Nothing tells the sorting but the order of keys."""
    request = wire.WriteRequest(
        shard=shard.identity,
        puts=[
            wire.PutRequest(key=key, expected_version_id=NO_VERSION, partition_key=partition_key(0))
            for key in SORTING_KEYS
        ],
    )
    await calls.write(shard, request)

    async def ask(leader: Leader, identity: int, timeout: float) -> str:
        get = wire.GetRequest(key=SORTING_PROBE, comparison_type=wire.CEILING)
        async for page in leader.server.read(wire.ReadRequest(shard=identity, gets=[get]), timeout):
            for found in page.gets:
                return str(found.key)
        return ""

    if await calls.read(0, ask) != SORTING_KEYS[0]:
        raise UnusableOxia(
            f"the Oxia namespace {settings.namespace!r} does not sort keys by their bytes: create one with "
            "key sorting `natural` (it cannot be changed later)"
        )


async def _check_notifications(shard: Shard, calls: Calls, settings: OxiaSettings) -> None:
    leader = await calls.prove(shard)
    stream = leader.server.notifications(shard.identity)
    try:
        async with asyncio.timeout(settings.request_timeout):
            await anext(aiter(stream))
    except aio.AioRpcError as error:
        if understand(error).reason == NOTIFICATIONS_NOT_ENABLED:
            raise UnusableOxia(
                f"the Oxia namespace {settings.namespace!r} has notifications disabled: enable them"
            ) from error
    except (TimeoutError, StopAsyncIteration):
        return  # an election, say: watches try again by themselves
    finally:
        stream.cancel()
