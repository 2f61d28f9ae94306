"""Fetch and build every server that the tests start, before the tests: a test's own time is not for that.

    python -m tests.services.prepare

What cannot be had is said in one line; the tests that need it say so again, in their own way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.services.azurite import require_azurite
from tests.services.browser import require_browser
from tests.services.clients.go_client import require_franz, require_sarama
from tests.services.earlier_build import require_earlier_build
from tests.services.etcd import require_etcd
from tests.services.helm import require_helm
from tests.services.iceberg_rest import require_rest_jars, require_spark_jars
from tests.services.kubernetes import require_kubeconform, require_schemas
from tests.services.maven import require_kafka_jars, require_kafka_tools
from tests.services.oxia_build import require_oxia
from tests.services.prometheus import require_prometheus
from tests.services.s3 import require_s3
from tests.services.tools import require_tool

SERVERS: dict[str, Callable[[], Path | list[Path]]] = {
    "Apache Kafka's jars": require_kafka_jars,
    "Apache Kafka's tools": require_kafka_tools,
    "Iceberg's REST catalog": require_rest_jars,
    "Iceberg for Spark SQL": require_spark_jars,
    "etcd": require_etcd,
    "Oxia": require_oxia,
    "an S3 server": require_s3,
    "Azurite": require_azurite,
    "Helm": require_helm,
    "kubeconform": require_kubeconform,
    "Kubernetes' schemas": require_schemas,
    "the earlier build": require_earlier_build,
    "Chromium": require_browser,
    "Prometheus": require_prometheus,
    "franz-go": require_franz,
    "sarama": require_sarama,
    "kcat": partial(require_tool, "kcat"),
}


def main() -> None:
    for name, have in SERVERS.items():
        began = time.monotonic()
        try:
            have()
        except (pytest.fail.Exception, pytest.skip.Exception) as reason:
            print(f"{name}: {reason}", flush=True)
        else:
            print(f"{name}: there after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
