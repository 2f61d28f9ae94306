"""Wait until the brokers are of this build: in an upgrade, what runs beside them follows them, and its
predecessor works on meanwhile. For FOLLOW_SECONDS at most. If the store does not answer, nobody waits."""

import asyncio
import time
from os import environ
from pathlib import Path

from dray.base.build import build_name
from dray.base.runtime import SystemRuntime
from dray.daemons.assembly.stores import open_metadata
from dray.daemons.config import load
from dray.inspection.storage.stored import StoredCluster


async def brokers_of_other_builds():
    runtime = SystemRuntime(threads=1)
    try:
        config = Path(environ.get("CONFIG", "/etc/dray/dray.yaml"))
        store = await open_metadata(load(config, environ).settings, runtime)
        try:
            builds = (await StoredCluster(store, 1, {}, 0).builds()).of_brokers
        finally:
            await store.close()
    finally:
        runtime.close()
    return sorted(broker for broker, build in builds.items() if build != build_name())


ends = time.monotonic() + float(environ.get("FOLLOW_SECONDS", "1800"))
while True:
    try:
        others = asyncio.run(brokers_of_other_builds())
    except Exception as error:
        print(f"the brokers' builds cannot be read: {error}")
        break
    if not others:
        print(f"no broker is of another build than {build_name()}")
        break
    if time.monotonic() > ends:
        print(f"not waited for any longer: brokers {others}")
        break
    print(f"waiting for brokers {others} to be {build_name()}", flush=True)
    time.sleep(5)
