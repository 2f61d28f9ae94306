"""Where the brokers of a test keep their metadata: embedded, or with DRAY_TEST_METADATA=oxia in Oxia.

Brokers that share a data directory would share its SQLite file; with Oxia they share a server of its own.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from tests.services.oxia import OxiaStandalone

ENGINE = os.environ.get("DRAY_TEST_METADATA", "sqlite")


def metadata_settings(data_directory: Path) -> dict[str, str]:
    """What a broker's environment says about it."""
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
