"""What a cluster's run leaves out is there to be left out, and everything has a reason."""

from __future__ import annotations

from pathlib import Path

from tests.integration.left_out import MODULES, ON_SERVERS, why_left_out
from tests.integration.left_out import TESTS as LEFT_OUT

TESTS = Path(__file__).parents[1]


def source(module: str) -> str:
    [path] = [
        TESTS / room / f"{module}.py" for room in ON_SERVERS if (TESTS / room / f"{module}.py").exists()
    ]
    return path.read_text()


def test_every_name_on_the_list_exists() -> None:
    for module in MODULES:
        assert source(module), module
    for module, test in LEFT_OUT:
        name = test.partition("[")[0]
        assert f"def {name}(" in source(module), f"{module}::{test}"
    assert all([*MODULES.values(), *LEFT_OUT.values()])


def test_a_case_a_test_and_a_module_can_be_left_out() -> None:
    one = "test_dray_answers_as_kafka_does"
    assert why_left_out("test_referee", f"{one}[describe-cluster]")
    assert why_left_out("test_referee", f"{one}[find-coordinator]") is None
    assert why_left_out("test_referee", "test_recordings_are_what_kafka_says[find-coordinator]")
    assert why_left_out("test_cli_serve", "test_gc_tells_what_it_saw")
    assert why_left_out("test_kill", "test_gc_tells_what_it_saw") is None
