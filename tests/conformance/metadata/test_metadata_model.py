"""Every engine against a plain dictionary, on random operations."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from tests.conformance.metadata.engines import ENGINES

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import (
    ABSENT,
    ANY,
    Delete,
    DeleteRange,
    Expectation,
    Operation,
    Outcome,
    Put,
    StoredValue,
)

T = TypeVar("T")

DOMAINS = st.integers(0, 1)
KEYS = st.text("/-.0aZ~", min_size=1, max_size=4)
VALUES = st.binary(max_size=6)
# Versions are small here, so that guesses hit: current ones, old ones, and those to come.
EXPECTATIONS = st.one_of(st.just(ANY), st.just(ABSENT), st.integers(0, 60))


def operations() -> st.SearchStrategy[list[Operation]]:
    return st.lists(
        st.one_of(
            st.builds(Put, KEYS, VALUES, EXPECTATIONS),
            st.builds(Put, KEYS, VALUES),
            st.builds(Delete, KEYS, st.one_of(st.just(ANY), st.integers(0, 60))),
            st.builds(DeleteRange, KEYS, KEYS),
        ),
        max_size=6,
    )


class Comparison(RuleBasedStateMachine):
    engine_name: str

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.runtime = SystemRuntime(threads=1)
        self.directory = tempfile.TemporaryDirectory()
        engine = ENGINES[self.engine_name](Path(self.directory.name), self.runtime)
        self.clients = [self.run(engine.open()), self.run(engine.open())]
        self.model: dict[int, dict[str, StoredValue]] = {0: {}, 1: {}}
        self.last_version: dict[tuple[int, str], int] = {}

    def run(self, action: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(action)

    def teardown(self) -> None:
        for client in self.clients:
            self.run(client.close())
        self.runtime.close()
        self.loop.close()
        self.directory.cleanup()

    @rule(domain=DOMAINS, client=st.integers(0, 1), operations=operations())
    def write(self, domain: int, client: int, operations: list[Operation]) -> None:
        outcomes = self.run(self.clients[client].write(domain, operations))
        assert len(outcomes) == len(operations)
        for operation, outcome in zip(operations, outcomes, strict=True):
            self.check_outcome(domain, operation, outcome)

    @rule(domain=DOMAINS, client=st.integers(0, 1), key=KEYS, data=st.data())
    def compare_and_set(self, domain: int, client: int, key: str, data: st.DataObject) -> None:
        known = sorted(self.model[domain])
        chosen = data.draw(st.sampled_from(known)) if known else key
        record = self.model[domain].get(chosen)
        expect: Expectation = ABSENT if record is None else record.version
        [outcome] = self.run(self.clients[client].write(domain, [Put(chosen, b"set", expect)]))
        assert outcome.applied
        self.check_outcome(domain, Put(chosen, b"set", expect), outcome)

    def check_outcome(self, domain: int, operation: Operation, outcome: Outcome) -> None:
        content = self.model[domain]
        if isinstance(operation, DeleteRange):
            assert outcome == Outcome(True)
            for key in [key for key in content if operation.start <= key < operation.end]:
                del content[key]
            return
        record = content.get(operation.key)
        meets = (
            operation.expect == ANY
            or (operation.expect == ABSENT and record is None)
            or (record is not None and record.version == operation.expect)
        )
        assert outcome.applied == meets
        if not meets or isinstance(operation, Delete):
            assert outcome.version == 0
        if not meets:
            return
        if isinstance(operation, Delete):
            content.pop(operation.key, None)
        else:
            place = (domain, operation.key)
            assert outcome.version > self.last_version.get(place, 0)
            self.last_version[place] = outcome.version
            content[operation.key] = StoredValue(operation.key, operation.value, outcome.version)

    @rule(domain=DOMAINS, client=st.integers(0, 1), key=KEYS)
    def get(self, domain: int, client: int, key: str) -> None:
        assert self.run(self.clients[client].get(domain, key)) == self.model[domain].get(key)

    @rule(domain=DOMAINS, client=st.integers(0, 1), key=KEYS, prefix=st.text("/-.0aZ~", max_size=2))
    def nearest(self, domain: int, client: int, key: str, prefix: str) -> None:
        under = sorted(known for known in self.model[domain] if known.startswith(prefix))
        store = self.clients[client]
        floor = max((known for known in under if known <= key), default=None)
        ceiling = min((known for known in under if known >= key), default=None)
        for expected, found in (
            (floor, self.run(store.floor(domain, key, prefix))),
            (ceiling, self.run(store.ceiling(domain, key, prefix))),
        ):
            assert found == (None if expected is None else self.model[domain][expected])

    @rule(domain=DOMAINS, client=st.integers(0, 1), start=KEYS, end=KEYS, limit=st.none() | st.integers(0, 3))
    def scan(self, domain: int, client: int, start: str, end: str, limit: int | None) -> None:
        content = self.model[domain]
        expected = [content[key] for key in sorted(content) if start <= key < end][:limit]
        assert self.run(self.clients[client].scan(domain, start, end, limit)) == expected


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_behaves_like_a_dictionary(name: str) -> None:
    machine = type(f"Comparison_{name}", (Comparison,), {"engine_name": name})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
