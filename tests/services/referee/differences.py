"""Where Dray answers otherwise than Apache Kafka, on purpose: case, path, Dray's value, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    dray: Any
    why: str


DIFFERENCES: dict[str, dict[str, Difference]] = {}
