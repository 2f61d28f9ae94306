"""A power cut at any step loses nothing that was acknowledged and tears nothing.

The same search that finds no fault in the store finds one in each store with a sync taken out.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.objects.power_cuts import Expected, Operation, check_after_cut, live
from tests.unit.objects.simulated_disk import SimulatedDisk

import dray.objects.local.open_files
import dray.objects.local.store

A_PUT = [[Operation("put", "a/b/c", b"the whole content")]]
TWO_PUTS_AT_ONCE = [[Operation("put", "a/b/c", b"one"), Operation("put", "a/b/d", b"another")]]
A_PUT_THEN_MORE = [
    [Operation("put", "a/b/c", b"first"), Operation("put_if_absent", "a/b/d", b"other")],
    [Operation("put", "a/b/c", b"second one"), Operation("put_if_absent", "a/b/d", b"never")],
    [Operation("delete", "a/b/c"), Operation("delete", "a/b/d")],
]
# The loser's answer may come before the winner's own sync did.
A_RACE = [[Operation("put_if_absent", "a", b"same"), Operation("put_if_absent", "a", b"same")]]


async def search(rounds: list[list[Operation]], seeds: int, second_names: str = "") -> None:
    for seed in range(seeds):
        for steps in range(1, 400):
            disk = SimulatedDisk()
            disk.writes_at_most = 5
            expected = await live(disk, rounds, steps, seed, second_names=second_names)
            for survivors in range(3):
                await check_after_cut(disk, expected, seed * 10 + survivors, second_names)
            if len(disk.calls) < steps:
                break
        else:
            raise AssertionError("the scenario never ended")


@pytest.mark.parametrize("rounds", [A_PUT, TWO_PUTS_AT_ONCE, A_PUT_THEN_MORE, A_RACE])
async def test_a_cut_at_any_step_loses_nothing_acknowledged(rounds: list[list[Operation]]) -> None:
    await search(rounds, seeds=3)


@pytest.mark.parametrize("rounds", [A_PUT, A_PUT_THEN_MORE])
async def test_a_cut_at_any_step_loses_nothing_that_has_a_second_name(rounds: list[list[Operation]]) -> None:
    await search(rounds, seeds=1, second_names="a/")


def mutant(module: types.ModuleType, *changes: tuple[str, str]) -> types.ModuleType:
    """The module with pieces of its source replaced."""
    source = inspect.getsource(module)
    for old, new in changes:
        assert source.count(old) == 1, f"{old!r} is not once in {module.__name__}"
        source = source.replace(old, new)
    changed = types.ModuleType(module.__name__)
    exec(compile(source, "<mutant>", "exec"), changed.__dict__)
    return changed


STORE_MUTANTS = {
    "file not synced": (A_PUT, [("self._disk.sync(file)", "pass")]),
    "directory not synced": (
        A_PUT,
        [("            self._disk.sync(directory)\n\n    def _discard", "\n    def _discard")],
    ),
    "named before it is synced": (
        A_PUT,
        [
            ("                self._place(path, temporary, replace)\n", ""),
            (
                "                    self._disk.sync(file)\n",
                "                    self._place(path, temporary, replace)\n"
                "                    self._disk.sync(file)\n",
            ),
        ],
    ),
    "deletion not synced": (
        A_PUT_THEN_MORE,
        [("                self._disk.sync(directory)\n            finally", "            finally")],
    ),
    "loser of a race not synced": (
        A_RACE,
        [("                self._disk.sync(directory)\n                raise", "                raise")],
    ),
}
DIRECTORY_MUTANTS = {
    "parents not synced": (A_PUT, [("        disk.sync(parent)", "        pass")]),
    "only the maker syncs the parent": (
        TWO_PUTS_AT_ONCE,
        [
            (
                "    with suppress(FileExistsError):\n        disk.make_directory(path)\n",
                "    try:\n        disk.make_directory(path)\n    except FileExistsError:\n        return\n",
            )
        ],
    ),
    "known before it is synced": (
        TWO_PUTS_AT_ONCE,
        [
            (
                "        make_lasting(self._disk, path)\n",
                "        self._lasting.add(folder)\n        make_lasting(self._disk, path)\n",
            )
        ],
    ),
}


@pytest.mark.parametrize("name", STORE_MUTANTS)
async def test_a_store_without_one_of_its_syncs_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, changes = STORE_MUTANTS[name]
    changed = mutant(dray.objects.local.store, *changes)
    monkeypatch.setattr("tests.unit.objects.power_cuts.LocalStore", changed.LocalStore)
    with pytest.raises(AssertionError, match="after the cut"):
        await search(rounds, seeds=20)


@pytest.mark.parametrize("name", DIRECTORY_MUTANTS)
async def test_directories_without_one_of_their_syncs_are_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, changes = DIRECTORY_MUTANTS[name]
    changed = mutant(dray.objects.local.open_files, *changes)
    monkeypatch.setattr(dray.objects.local.store, "Directories", changed.Directories)
    monkeypatch.setattr(dray.objects.local.store, "make_root_lasting", changed.make_root_lasting)
    with pytest.raises(AssertionError, match="after the cut"):
        await search(rounds, seeds=20)


PATHS = ("a", "b/c", "b/d/e", "b/d/f", "g=1/h/i/j")


@st.composite
def rounds_of_operations(draw: st.DrawFn) -> list[list[Operation]]:
    def operations() -> Iterator[Operation]:
        for path in draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=3, unique=True)):
            kind = draw(st.sampled_from(("put", "put", "put_if_absent", "delete")))
            yield Operation(kind, path, draw(st.binary(max_size=20)))

    return [list(operations()) for _ in range(draw(st.integers(1, 4)))]


LIVES = st.lists(st.tuples(rounds_of_operations(), st.integers(1, 150)), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(LIVES, st.integers(1, 30), st.integers(0, 2**32))
def test_any_operations_survive_any_cuts(
    lives: list[tuple[list[list[Operation]], int]], writes_at_most: int, seed: int
) -> None:
    async def run() -> None:
        disk, expected = SimulatedDisk(), Expected()
        for rounds, steps in lives:
            disk.writes_at_most = writes_at_most
            expected = await live(disk, rounds, steps, seed, expected)
            for survivors in range(3):
                await check_after_cut(disk, expected, survivors)
            expected = await check_after_cut(disk, expected, seed)
            disk = disk.after_power_cut(Random(seed))

    asyncio.run(run())
