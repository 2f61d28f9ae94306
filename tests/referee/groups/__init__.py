"""Cases of groups, from several clients at once."""

from __future__ import annotations

from tests.referee.cases import GROUP_CASES as CASES
from tests.referee.groups import (
    assignor_cases,
    classic_cases,
    config_cases,
    consumer_cases,
    cost_cases,
    offset_cases,
    reconciliation_cases,
    static_cases,
)

__all__ = ["CASES"]

_REGISTERED = (
    assignor_cases,
    classic_cases,
    config_cases,
    consumer_cases,
    cost_cases,
    offset_cases,
    reconciliation_cases,
    static_cases,
)
