"""The same group requests to Apache Kafka and to Dray, the same answers expected.

Kafka's answers are kept under `tests/fixtures/golden`, so the comparison also runs where there is no Java.
"""

from __future__ import annotations

from tests.services.golden import (
    assignor_cases,
    classic_cases,
    config_cases,
    consumer_cases,
    offset_cases,
    reconciliation_cases,
    static_cases,
)
from tests.services.golden.session import CASES, run_cases

__all__ = ["CASES", "run_cases"]

_REGISTERED = (
    assignor_cases,
    classic_cases,
    config_cases,
    consumer_cases,
    offset_cases,
    reconciliation_cases,
    static_cases,
)
