"""Dray answers as Apache Kafka does, request by request; where it does not, the table below says why."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.referee.cases import run_case
from tests.referee.comparison import differences, flat
from tests.referee.log import CASES
from tests.referee.log.differences import DIFFERENCES
from tests.referee.recording import record
from tests.services.kafka import KafkaProcess
from tests.services.late_kafka import late_kafka
from tests.services.maven import require_kafka_jars
from tests.services.target import ON_KAFKA

RECORDINGS = Path(__file__).parents[1] / "fixtures" / "referee"
RECORD = os.environ.get("DRAY_RECORD") == "1"
"""Set to write Kafka's answers anew: after a case was changed, or with a newer Kafka."""


# The cases' records are years old: retention must not look at them while we do.
SETTINGS = {"log.initial.task.delay.ms": "3600000"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    require_kafka_jars()
    with KafkaProcess(tmp_path_factory.mktemp("referee"), SETTINGS) as server:
        yield server


def recorded(name: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((RECORDINGS / f"{name}.json").read_text())
    return answers


@pytest.mark.parametrize("name", CASES)
async def test_recordings_are_what_kafka_says(name, kafka):
    answers = await run_case(name, kafka.bootstrap)
    path = RECORDINGS / f"{name}.json"
    if RECORD:
        record(path, answers)
    assert differences(recorded(name), answers) == {}


@pytest.mark.soak
async def test_no_case_depends_on_how_soon_kafkas_broker_knows(tmp_path):
    """On a busy machine it may be late, and a case that did not wait for it would fail now and then."""
    require_kafka_jars()
    with late_kafka(tmp_path, SETTINGS) as server:
        for name in CASES:
            assert differences(recorded(name), await run_case(name, server.bootstrap)) == {}, name


@pytest.mark.skipif(ON_KAFKA, reason="the target is Kafka itself")
@pytest.mark.parametrize("name", CASES)
async def test_dray_answers_as_kafka_does(name, first_broker):
    theirs, ours = recorded(name), await run_case(name, first_broker)
    meant = DIFFERENCES.get(name, {})
    found = {label: differences(theirs.get(label), answer) for label, answer in ours.items()}
    unexplained = {label: pairs for label, pairs in found.items() if pairs and label not in meant}
    assert unexplained == {}, "(Kafka's answer, Dray's answer)"
    for label, difference in meant.items():
        assert found[label], f"{label}: no longer different, take it out of the table"
        assert flat(ours[label])[difference.where] == difference.dray, f"{label}: not as the table says"
    assert set(theirs) == set(ours)
