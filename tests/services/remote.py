"""The stores of clusters on many machines: three Oxia servers with their coordinator, and an S3 server.

Several Dray clusters share them, as in production: each has an Oxia namespace and a prefix in the bucket.
"""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Self

import yaml

from tests.services.oxia import OxiaCluster, leaders
from tests.services.process import POLL_SECONDS, NotReady
from tests.services.s3 import BUCKET, S3Process

SHARDS = 2
DOMAINS = 16
"""What a cluster of this kind is advised to have, and the example in `deploy/compose` has."""


def oxia_cluster_settings(addresses: Sequence[str], namespace: str) -> dict[str, str]:
    return {
        "DRAY_METADATA__ENGINE": "oxia",
        "DRAY_METADATA__OXIA__ADDRESSES": ",".join(addresses),
        "DRAY_METADATA__OXIA__NAMESPACE": namespace,
    }


def s3_settings(server: S3Process, prefix: str, changed: Mapping[str, str] | None = None) -> dict[str, str]:
    """`changed` are options that differ from the server's own, such as the address of a proxy before it."""
    options = server.options() | dict(changed or {})
    return (
        {"DRAY_OBJECTS__URL": f"s3://{BUCKET}/{prefix}"}
        | {f"DRAY_OBJECTS__OPTIONS__{name.upper()}": value for name, value in options.items()}
        | {f"DRAY_OBJECTS__SECRETS__{name.upper()}": value for name, value in server.secrets().items()}
    )


class RemoteStores:
    """Oxia's servers do not wait for the disk: the machine stays up, whatever the tests kill."""

    def __init__(self, directory: Path) -> None:
        self.oxia = OxiaCluster(directory / "oxia", shards=SHARDS, sync=False)
        self.s3 = S3Process(directory / "s3")
        self._numbers = itertools.count()
        self._stack = ExitStack()

    def new_cluster(self) -> dict[str, str]:
        """What the environment of brokers says that are to be a Dray cluster of their own."""
        name = f"cluster-{next(self._numbers)}"
        self._create_namespace(name)
        return (
            oxia_cluster_settings(self.oxia.addresses, name)
            | s3_settings(self.s3, name)
            | {"DRAY_CLUSTER__DOMAINS": str(DOMAINS), "DRAY_LOG__FLUSH_LINGER": "10ms"}
        )

    def _create_namespace(self, name: str) -> None:
        """The coordinator follows its file, which changes in one step: it never sees half of one."""
        coordinator = self.oxia.coordinator
        content = yaml.safe_load(coordinator.configuration.read_text())
        content["namespaces"].append(content["namespaces"][0] | {"name": name})
        written = coordinator.configuration.with_suffix(".written")
        written.write_text(yaml.safe_dump(content))
        written.replace(coordinator.configuration)
        deadline = time.monotonic() + 60
        while len(leaders(self.oxia.nodes[0].address, name)) < SHARDS:
            if time.monotonic() > deadline:
                raise NotReady(f"there is no leader of the namespace {name}:\n{coordinator.log_tail()}")
            time.sleep(POLL_SECONDS)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.oxia.stop)
            self.oxia.start()
            stack.enter_context(self.s3)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@cache
def shared_stores() -> RemoteStores:
    """One set of servers for the whole run. They outlive every broker, and end with the run."""
    directory = Path(tempfile.mkdtemp(prefix="dray-remote-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    stores = RemoteStores(directory)
    atexit.register(stores.__exit__)
    return stores.__enter__()


@cache
def remote_settings(data_directory: Path) -> dict[str, str]:
    """Brokers that would share a data directory share a Dray cluster on the shared servers."""
    return shared_stores().new_cluster()
