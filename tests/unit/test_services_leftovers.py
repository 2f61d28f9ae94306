"""A module of tests is held responsible for its own exceptions, and for what it replaced."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
from tests.services.leftovers import leaving_nothing

from dray.base.runtime import shown
from dray.base.runtime.system import RuntimeInPlace


def leave_an_exception() -> None:
    """In a cycle, so that only the garbage collector finds it."""

    async def left() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(ValueError("left"))
        cycle: list[object] = [future]
        cycle.append(cycle)

    asyncio.run(left())


@pytest.fixture(autouse=True, scope="module")
def nothing_left_behind() -> None:
    """Here exceptions are left on purpose."""


@pytest.fixture(autouse=True)
def collected_when_told() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def test_the_end_of_a_module_does_not_look_at_all_that_was_imported() -> None:
    assert gc.get_freeze_count() > 50_000


def test_an_exception_that_nobody_took_fails_its_module() -> None:
    with pytest.raises(AssertionError, match="never retrieved"), leaving_nothing():
        leave_an_exception()


def test_one_of_an_earlier_module_does_not(caplog: pytest.LogCaptureFixture) -> None:
    leave_an_exception()
    with leaving_nothing():
        caplog.clear()
        gc.collect()
        assert not caplog.records


def test_an_inherited_method_that_stays_on_its_class_fails_its_module() -> None:
    class_left = "RuntimeInPlace.monotonic was replaced, and not put back"
    with pytest.raises(AssertionError, match=class_left), leaving_nothing():
        RuntimeInPlace.monotonic = RuntimeInPlace.monotonic  # type: ignore[method-assign]
    del RuntimeInPlace.monotonic
    with leaving_nothing(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(RuntimeInPlace, "monotonic", RuntimeInPlace.monotonic)


def test_a_function_of_a_module_too() -> None:
    name = "cut"
    kept = getattr(shown, name)
    with pytest.raises(AssertionError, match=f"{name} was replaced"), leaving_nothing():
        setattr(shown, name, lambda: None)
    setattr(shown, name, kept)
