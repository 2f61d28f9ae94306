"""Where the brokers of a test keep what they share: embedded, or with DRAY_TEST_METADATA=oxia their metadata
in Oxia, or with DRAY_TEST_TARGET=cluster everything on remote servers.

Brokers that share a data directory would share its SQLite file; elsewhere they share what stands for it.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from tests.services.oxia import OxiaStandalone
from tests.services.remote import remote_settings
from tests.services.target import ON_CLUSTER

ENGINE = os.environ.get("DRAY_TEST_METADATA", "sqlite")


def store_settings(data_directory: Path) -> dict[str, str]:
    """What a broker's environment says about it."""
    if ON_CLUSTER:
        return remote_settings(data_directory)
    return oxia_settings(oxia_of(data_directory)) if ENGINE == "oxia" else {}


def oxia_settings(server: OxiaStandalone) -> dict[str, str]:
    return {
        "DRAY_METADATA__ENGINE": "oxia",
        "DRAY_METADATA__OXIA__ADDRESSES": server.address,
        "DRAY_METADATA__OXIA__NAMESPACE": server.namespace,
    }


@cache
def oxia_of(data_directory: Path) -> OxiaStandalone:
    """It outlives the brokers, as a service does, and ends with the test run."""
    server = OxiaStandalone(data_directory / "oxia", shards=2)
    server.start()
    return server


def over_tls(
    authority: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    server_name: str | None = None,
) -> dict[str, Any]:
    """Settings of the servers of an engine."""
    files = {"ca_file": authority, "certificate_file": certificate, "key_file": key}
    given = {name: None if path is None else str(path) for name, path in files.items()}
    return {"tls": True, "server_name": server_name, **given}
