"""Group commit: many writes in one transaction come to what they would come to one after another."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.metadata.contract import ABSENT, ANY, Delete, DeleteRange, Operation, Outcome, Put, SessionEnded
from dray.metadata.memory import MemoryState
from dray.metadata.sqlite import writer as writer_module
from dray.metadata.sqlite.writer import (
    AnyWrite,
    Changed,
    GroupWriter,
    WriteJob,
    open_session,
    reap_sessions,
    remove_session,
    renew_session,
)

NOW = 1000.0
KEYS = st.text("/a~", min_size=1, max_size=3)
EXPECTATIONS = st.one_of(st.just(ANY), st.just(ABSENT), st.integers(0, 30))
OPERATIONS = st.lists(
    st.one_of(
        st.builds(Put, KEYS, st.binary(max_size=4), EXPECTATIONS),
        st.builds(Delete, KEYS, st.one_of(st.just(ANY), st.integers(0, 30))),
        st.builds(DeleteRange, KEYS, KEYS),
    ),
    max_size=5,
)
GROUPS = st.lists(st.lists(st.tuples(st.integers(0, 1), OPERATIONS), min_size=1, max_size=5), max_size=4)


class Bench:
    """A `GroupWriter` driven by hand, in this thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = NOW
        self.published: list[Changed] = []
        self.writer = GroupWriter(
            path,
            identity=7,
            clock=lambda: self.now,
            busy_timeout=0.1,
            checkpoint_pages=1000,
            published=self.published.append,
        )

    def run(self, *jobs: AnyWrite) -> None:
        afterwards = self.writer.run(jobs)
        if afterwards is not None:
            afterwards()

    def write(self, *operations: Operation, session: int | None = None) -> list[Outcome]:
        job = WriteJob(0, operations, session)
        self.run(job)
        if job.error is not None:
            raise job.error
        assert job.result is not None
        return job.result

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()


@contextmanager
def bench() -> Iterator[Bench]:
    with TemporaryDirectory() as directory:
        made = Bench(Path(directory) / "metadata.sqlite")
        yield made
        made.writer.close()


@settings(max_examples=50, deadline=None)
@given(GROUPS)
def test_a_group_is_the_same_as_its_writes_in_a_row(groups: list[list[tuple[int, list[Operation]]]]) -> None:
    state = MemoryState()
    with bench() as driven:
        for group in groups:
            jobs = [WriteJob(domain, operations, None) for domain, operations in group]
            driven.run(*jobs)
            for job in jobs:
                assert job.error is None
                assert job.result == state.apply(job.domain, job.operations, None, NOW)
            for domain in (0, 1):
                content = state.domain(domain, NOW)
                kept = driven.rows(
                    f"SELECT key, value, version FROM records WHERE domain = {domain} ORDER BY key"
                )
                records = [content.entries[key].record for key in content.keys]
                assert kept == [(record.key, record.value, record.version) for record in records]


def test_a_group_takes_one_transaction() -> None:
    with bench() as driven:
        driven.write(Put("/a", b""))
        connection = driven.writer._connection
        assert connection is not None
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
        driven.run(*(WriteJob(0, [Put(f"/{number}", b"", ABSENT)], None) for number in range(100)))
        assert [text for text in statements if text in ("BEGIN IMMEDIATE", "COMMIT")] == [
            "BEGIN IMMEDIATE",
            "COMMIT",
        ]
        assert len(statements) <= 8  # each call must win the interpreter lock back from the event loop


def test_statements_find_their_rows_by_index() -> None:
    """A plan that walks through a domain is as slow as the domain is large."""
    with bench() as driven:
        driven.write(Put("/a", b""))
        for statement, arguments in (
            (writer_module._READ, (0, "[]", "[]")),
            (writer_module._DELETE, (0, "[]")),
            (writer_module._DELETE_RANGE, (0, "", "")),
        ):
            connection = driven.writer._connection
            assert connection is not None
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", arguments)]
            found = [step for step in plan if "records" in step]
            assert found
            assert all("(domain=? AND key" in step for step in found)


def test_puts_larger_than_one_statement_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "PUT_BYTES", 100)
    with bench() as driven:
        driven.write(*(Put(f"/{number}", b"%d" % number * 40) for number in range(10)))
        kept = driven.rows("SELECT key, value FROM records WHERE domain = 0 ORDER BY key")
        assert kept == [(f"/{number}", b"%d" % number * 40) for number in range(10)]


def test_what_changed_is_published_and_logged() -> None:
    with bench() as driven:
        driven.run(
            WriteJob(0, [Put("/a", b""), Put("/b", b"", 99), Delete("/c")], None),
            WriteJob(1, [Put("/d", b"")], None),
            WriteJob(2, [Put("/skipped", b"", 99)], None),
            WriteJob(3, [Put("/e", b""), DeleteRange("/", "0")], None),
        )
        assert driven.published == [{0: {"/a": None, "/c": None}, 1: {"/d": None}, 3: None}]
        assert driven.rows("SELECT writer, domain, keys FROM changes ORDER BY domain") == [
            (7, 0, "/a\n/c"),
            (7, 1, "/d"),
            (7, 3, None),
        ]


def test_a_group_that_changes_nothing_tells_nobody() -> None:
    with bench() as driven:
        driven.write(Put("/a", b"", 5), Delete("/b", 5))
        assert driven.published == []
        assert driven.rows("SELECT * FROM changes") == []


def test_the_list_of_changes_is_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "CHANGES_KEPT", 16)
    monkeypatch.setattr(writer_module, "CHANGES_TRIMMED_EVERY", 4)
    with bench() as driven:
        for _ in range(60):
            driven.run(*(WriteJob(domain, [Put("/a", b"")], None) for domain in range(3)))
        kept = [sequence for (sequence,) in driven.rows("SELECT sequence FROM changes ORDER BY sequence")]
        assert kept[-1] == 180
        assert 16 <= len(kept) <= 16 + 4 + 3
        assert kept == list(range(cast(int, kept[0]), 181))


def alive(driven: Bench, key: str = "/e") -> bool:
    """Whether the key counts as present, tried by an operation that does nothing in either case."""
    [outcome, _] = driven.write(Put(key, b"", ABSENT), Put("/other", b""))
    return not outcome.applied


def test_sessions_run_out_by_the_clock() -> None:
    with bench() as driven:
        driven.run(open_session(1, 0, 10.0))
        driven.write(Put("/e", b""), session=1)
        driven.now += 9.9
        assert alive(driven)
        renewal = renew_session(1)
        driven.run(renewal)
        assert renewal.result is True
        driven.now += 9.9
        assert alive(driven)
        driven.now += 0.2
        assert not alive(driven)


def test_an_expired_session_is_never_brought_back() -> None:
    with bench() as driven:
        driven.run(open_session(1, 0, 10.0))
        driven.now += 10.0
        renewal = renew_session(1)
        driven.run(renewal)
        assert renewal.result is False
        with pytest.raises(SessionEnded):
            driven.write(Put("/e", b""), session=1)


def test_a_session_of_an_earlier_boot_is_dead() -> None:
    """The clock starts again with the machine: what then lies far ahead belongs to the last boot."""
    with bench() as driven:
        driven.now = 5_000_000.0
        driven.run(open_session(1, 0, 10.0))
        driven.write(Put("/e", b""), session=1)
        driven.now = 20.0
        renewal = renew_session(1)
        driven.run(renewal)
        assert renewal.result is False
        assert not alive(driven)


def test_reaping_takes_the_expired_and_tells_of_it() -> None:
    with bench() as driven:
        driven.run(open_session(1, 0, 10.0), open_session(2, 0, 30.0))
        driven.write(Put("/a", b""), session=1)
        driven.write(Put("/b", b""), session=2)
        driven.now += 20.0
        driven.published.clear()
        driven.run(reap_sessions())
        assert driven.rows("SELECT id FROM sessions") == [(2,)]
        assert driven.rows("SELECT key FROM records WHERE domain = 0") == [("/b",)]
        assert driven.published == [{0: {"/a": None}}]


def test_a_key_taken_over_stays_when_its_old_session_goes() -> None:
    with bench() as driven:
        driven.run(open_session(1, 0, 10.0))
        driven.write(Put("/a", b""), session=1)
        driven.write(Put("/a", b"kept"))
        driven.run(remove_session(1))
        assert driven.rows("SELECT key FROM records WHERE domain = 0") == [("/a",)]


def test_a_dead_session_fails_its_own_write_and_no_other() -> None:
    with bench() as driven:
        dead, fine = WriteJob(0, [Put("/a", b"")], 1), WriteJob(0, [Put("/b", b"")], None)
        driven.run(dead, fine)
        assert isinstance(dead.error, SessionEnded)
        assert fine.error is None
        assert driven.rows("SELECT key FROM records WHERE domain = 0") == [("/b",)]
