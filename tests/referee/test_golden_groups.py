"""Groups answer as Apache Kafka's do, request by request; where they do not, a table says why.

All cases of both brokers run side by side, once, since most of their time they wait for timeouts; then each
is judged by itself.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.referee.cases import run_group_cases
from tests.referee.comparison import differences, flat
from tests.referee.groups import CASES
from tests.referee.groups.differences import DIFFERENCES
from tests.referee.groups.servers import golden_dray, golden_kafka
from tests.referee.recording import record
from tests.services.dray import DrayProcess
from tests.services.kafka import KafkaProcess
from tests.services.maven import require_kafka_jars
from tests.services.target import ON_KAFKA

RECORDINGS = Path(__file__).parents[1] / "fixtures" / "golden"
RECORD = os.environ.get("DRAY_RECORD") == "1"
"""Set to write Kafka's answers anew: after a case was changed, or with a newer Kafka."""

Answers = Mapping[str, dict[str, Any] | Exception]


def _run(directory: Path, make: Callable[[Path], KafkaProcess | DrayProcess]) -> Answers:
    with make(directory) as server:
        return asyncio.run(run_group_cases(server.bootstrap, CASES))


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Answers]]]:
    with ThreadPoolExecutor(2) as pool:
        runs = {"dray": pool.submit(_run, tmp_path_factory.mktemp("golden-dray"), golden_dray)}
        with suppress(pytest.skip.Exception):  # the tests of it say so
            require_kafka_jars()
            runs["kafka"] = pool.submit(_run, tmp_path_factory.mktemp("golden-kafka"), golden_kafka)
        yield runs


@pytest.fixture(scope="module")
def answers_of_kafka(begun: dict[str, Future[Answers]]) -> Answers:
    require_kafka_jars()
    return begun["kafka"].result()


@pytest.fixture(scope="module")
def answers_of_dray(begun: dict[str, Future[Answers]]) -> Answers:
    return begun["dray"].result()


def answers(run: Answers, name: str) -> dict[str, Any]:
    notes = run[name]
    if isinstance(notes, Exception):
        raise notes
    return notes


def recording(name: str) -> Path:
    return RECORDINGS / f"groups-{name}.json"


def recorded(name: str) -> dict[str, Any]:
    notes: dict[str, Any] = json.loads(recording(name).read_text())
    return notes


def test_every_recording_belongs_to_a_case() -> None:
    assert {path.name for path in RECORDINGS.glob("groups-*")} == {recording(name).name for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_recordings_are_what_kafka_says(name: str, answers_of_kafka: Answers) -> None:
    notes = answers(answers_of_kafka, name)
    if RECORD:
        record(recording(name), notes)
    assert differences(recorded(name), notes) == {}


@pytest.mark.skipif(ON_KAFKA, reason="the target is Kafka itself")
@pytest.mark.parametrize("name", CASES)
def test_dray_answers_as_kafka_does(name: str, answers_of_dray: Answers) -> None:
    theirs, ours = recorded(name), answers(answers_of_dray, name)
    meant = DIFFERENCES.get(name, {})
    found = {label: differences(theirs.get(label), ours.get(label)) for label in {**theirs, **ours}}
    unexplained = {label: pairs for label, pairs in found.items() if pairs and label not in meant}
    assert unexplained == {}, "(Kafka's answer, Dray's answer)"
    for label, difference in meant.items():
        assert found[label], f"{label}: no longer different, take it out of the table"
        assert flat(ours[label])[difference.where] == difference.dray, f"{label}: not as the table says"
