"""What the integration tests run against: DRAY_TEST_TARGET.

- `dray`: brokers on embedded stores, as `drayd up` has them. The default.
- `kafka`: Apache Kafka, where the tests prove themselves.
- `cluster`: three brokers in three zones, three Oxia servers with their coordinator, and S3.
"""

from __future__ import annotations

import os

TARGET = os.environ.get("DRAY_TEST_TARGET", "dray")
ON_KAFKA = TARGET == "kafka"
ON_CLUSTER = TARGET == "cluster"
