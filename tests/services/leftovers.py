"""What tests leave behind: logging as they set it up, exceptions, dropped tasks, functions they replaced.

Whoever runs a command in the tests' process configures its logging, and all later tests would have it.

asyncio complains when they are collected, which may be in any later test. There the complaint fails what it
has nothing to do with, or is lost. So garbage is collected at the end of each module, and what asyncio
complained about until then fails that module.

A function that a test replaced in a class or a module, and did not put back as it was, fails tests of
other modules too: an inherited method that stays on its class hides what the next test replaces in its base.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Final

import pytest
import structlog

_OURS: Final = ("dray.", "dray_simulation.", "tests.services.", "pyiceberg.catalog.")
_FUNCTIONS: Final = frozenset({FunctionType, classmethod, staticmethod, property})
_LEFT_BEHIND: Final = ("was never retrieved", "was destroyed but it is pending")


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if any(text in record.msg for text in _LEFT_BEHIND):
            self.found.append(self.format(record))


@pytest.fixture(autouse=True, scope="session")
def collected_once() -> Iterator[None]:
    """What was made before the first test, 600,000 objects for all unit tests, is not looked at again when
    garbage is collected at both ends of a module: that took more time than most modules."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()  # or extension modules complain at the end of the process


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, before = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**before)


def _functions() -> dict[str, dict[str, Any]]:
    """Every function of Dray and of the tests' services, by its module or class."""
    owners: dict[str, Any] = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(_OURS):
            owners[module_name] = module
            for name, owner in vars(module).items():
                if isinstance(owner, type) and owner.__module__ == module_name:
                    owners[f"{module_name}.{name}"] = owner
    return {
        name: {key: value for key, value in vars(owner).items() if type(value) in _FUNCTIONS}
        for name, owner in owners.items()
    }


def _replaced(before: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"{owner}.{name} was replaced, and not put back"
        for owner, functions in _functions().items()
        if functions != before.get(owner, functions)
        for name in {**before[owner], **functions}
        if functions.get(name) is not before[owner].get(name)
    ]


@contextmanager
def leaving_nothing() -> Iterator[None]:
    gc.collect()  # what was left before is none of its own
    functions = _functions()
    complaints, logger = _Complaints(), logging.getLogger("asyncio")
    logger.addHandler(complaints)
    try:
        yield
        gc.collect()
    finally:
        logger.removeHandler(complaints)
    found = complaints.found + _replaced(functions)
    assert not found, "left behind by a test of this module:\n" + "\n".join(found)


@pytest.fixture(autouse=True, scope="module")
def nothing_left_behind() -> Iterator[None]:
    with leaving_nothing():
        yield
