"""A client whose name or password is refused."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

SECONDS = 60.0


def check_refused(options: Mapping[str, Any]) -> None:
    """Returns when librdkafka was told so: it goes on trying, and says in the end that it timed out."""
    told: list[str] = []
    heard: dict[str, Any] = {"error_cb": lambda error: told.append(error.name()), "log_level": 0}
    admin = AdminClient({**options, **heard})
    deadline = time.monotonic() + SECONDS
    while "_AUTHENTICATION" not in told:
        assert time.monotonic() < deadline, told
        admin.poll(0.1)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.1)
