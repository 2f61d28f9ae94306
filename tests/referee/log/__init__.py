"""Cases of the log and its topics, one request after the other."""

from __future__ import annotations

from tests.referee.cases import LOG_CASES as CASES
from tests.referee.log import (
    admin_cases,
    config_cases,
    cost_cases,
    fetch_cases,
    idempotence_cases,
    offset_cases,
    produce_cases,
    protocol_cases,
    quota_cases,
    security_cases,
    topic_cases,
)

__all__ = ["CASES"]

_REGISTERED = (
    admin_cases,
    config_cases,
    cost_cases,
    fetch_cases,
    idempotence_cases,
    offset_cases,
    produce_cases,
    protocol_cases,
    quota_cases,
    security_cases,
    topic_cases,
)
