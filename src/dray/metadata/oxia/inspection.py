"""Whether a namespace will do, found out at start: better one line then than wrong answers later."""

from __future__ import annotations

import asyncio

from grpc import aio

from dray.metadata.oxia.calls import Calls
from dray.metadata.oxia.errors import NOTIFICATIONS_NOT_ENABLED, UnusableOxia, understand
from dray.metadata.oxia.settings import OxiaSettings
from dray.metadata.oxia.shards import Shard


async def inspect(shard: Shard, calls: Calls, settings: OxiaSettings) -> None:
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
