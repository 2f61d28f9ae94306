"""Random ids: each once, in every thread and every child."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from dray.base.runtime.system import random_uuid


def test_ids_are_of_version_4_and_each_comes_once() -> None:
    made = [random_uuid() for _ in range(2000)]
    assert {each.version for each in made} == {4}
    assert len(set(made)) == len(made)


def test_threads_share_no_id() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = [each for part in threads.map(_many, range(16)) for each in part]
    assert len(set(made)) == len(made)


def test_a_child_gives_out_none_of_its_parents_ids() -> None:
    random_uuid()  # there is something in the pool
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"".join(random_uuid().bytes for _ in range(200)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        raw = said.read()
    os.waitpid(child, 0)
    theirs = {UUID(bytes=raw[start : start + 16]) for start in range(0, len(raw), 16)}
    assert len(theirs) == 200
    assert theirs.isdisjoint(random_uuid() for _ in range(600))


def test_the_system_is_asked_once_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    fetch = os.urandom

    def counted(size: int) -> bytes:
        calls.append(size)
        return fetch(size)

    monkeypatch.setattr(os, "urandom", counted)
    for _ in range(1024):
        random_uuid()
    assert len(calls) <= 5


def _many(_: int) -> list[UUID]:
    return [random_uuid() for _ in range(500)]
