"""The same requests to Apache Kafka and to Dray, the same answers expected.

A case is a function that talks to a broker through a `Session`, which writes down every answer without what
must differ (times, ids, texts). Kafka's notes are kept under `tests/fixtures/referee`, so the comparison also
runs where there is no Java.
"""

from __future__ import annotations

from tests.services.referee import (
    admin_cases,
    config_cases,
    fetch_cases,
    idempotence_cases,
    offset_cases,
    produce_cases,
    protocol_cases,
    security_cases,
    topic_cases,
)
from tests.services.referee.session import CASES, Session, run_case

__all__ = ["CASES", "Session", "run_case"]

_REGISTERED = (
    admin_cases,
    config_cases,
    fetch_cases,
    idempotence_cases,
    offset_cases,
    produce_cases,
    protocol_cases,
    security_cases,
    topic_cases,
)
