"""Processes that are older than the level of their cluster: exit code 2, one line, and nothing is changed."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.services.dray import drayd_path
from tests.services.process import free_port

from dray.base.runtime import SystemRuntime
from dray.broker.cluster import open_cluster
from dray.broker.cluster.identity import encode_cluster
from dray.broker.cluster.levels import NEWEST, ClusterLevel
from dray.daemons.assembly.stores import open_stores
from dray.daemons.config import load
from dray.metadata import keys
from dray.metadata.contract import Put, StoredValue

OLDER = f"the cluster is at level {NEWEST + 1}, and this build reads levels up to {NEWEST}: start"
COMMANDS = {
    "broker": ("broker", "--http", "off"),
    "up": ("up", "--http", "off"),
    "compactor": ("compactor",),
    "migrator": ("migrator",),
    "gc": ("admin", "gc", "--now"),
    "raise": ("admin", "level", "raise"),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a cluster that a newer build has raised."""
    directory = tmp_path_factory.mktemp("level") / "data"
    asyncio.run(_raise(directory))
    return directory


async def _raise(directory: Path) -> None:
    runtime = SystemRuntime()
    stores = await open_stores(load(environment={"DRAY_DATA_DIR": str(directory)}).settings, runtime)
    cluster = await open_cluster(stores.metadata, runtime, 2)
    newer = replace(cluster, level=ClusterLevel(NEWEST + 1))
    await stores.metadata.write(keys.CLUSTER_DOMAIN, [Put(keys.CLUSTER, encode_cluster(newer))])
    await stores.close()
    runtime.close()


async def _stored(directory: Path) -> list[StoredValue]:
    runtime = SystemRuntime()
    stores = await open_stores(load(environment={"DRAY_DATA_DIR": str(directory)}).settings, runtime)
    found = await stores.metadata.scan(keys.CLUSTER_DOMAIN, keys.ROOT, keys.prefix_end(keys.ROOT))
    await stores.close()
    runtime.close()
    return found


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_process_that_is_older_than_the_level_does_not_start(
    directory: Path, arguments: Sequence[str]
) -> None:
    before = asyncio.run(_stored(directory))
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("DRAY_")}
    done = subprocess.run(
        [str(drayd_path()), *arguments, "--data-dir", str(directory)],
        env=inherited
        | {
            "DRAY_BROKER__LISTEN": f"127.0.0.1:{free_port()}",
            "DRAY_UPSTREAM__CLUSTERS": '{"old": {"bootstrap": "127.0.0.1:1"}}',
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stderr.splitlines()[-1]
    assert (done.returncode, said.startswith(f"drayd: {OLDER}")) == (2, True), done.stderr
    assert asyncio.run(_stored(directory)) == before
