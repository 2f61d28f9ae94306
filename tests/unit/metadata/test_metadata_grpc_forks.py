"""A process with its metadata in Oxia or etcd starts others, as a compactor starts Spark's JVM."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import asyncio, collections, signal, subprocess
import dray.metadata.etcd, dray.metadata.oxia
from grpc import aio, unary_unary_rpc_method_handler, method_handlers_generic_handler

async def answer(request, context):
    return request

async def main():
    server = aio.server()
    handler = unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([method_handlers_generic_handler("echo", {"Say": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)])
    say = channel.unary_unary("/echo/Say")

    async def talk():
        while True:
            await say(b"x" * 100)

    talking = [asyncio.ensure_future(talk()) for _ in range(4)]
    await say(b"x")

    def start():
        # With a function to call in the child, as pyspark does it, Python forks.
        ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
        return collections.Counter(subprocess.Popen(["true"], preexec_fn=ignore).wait(20) for _ in range(40))

    print(dict(await asyncio.to_thread(start)))
    for each in talking:
        each.cancel()
    await channel.close()
    await server.stop(0)

asyncio.run(main())
"""


def test_processes_start_while_grpc_is_busy() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
        check=False,
    )
    assert done.stdout == "{0: 40}\n", done.stderr
