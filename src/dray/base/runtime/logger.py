"""A logger that loads its library with its first line: most commands write none."""

from __future__ import annotations

import sys
from functools import cached_property
from importlib import import_module
from typing import Any, Final

_DRAWING: Final = "rich"


class Logger:
    """As `structlog.get_logger`, which follows what is configured later."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _found(self) -> Any:
        return load_structlog().get_logger(self._name)

    def __getattr__(self, method: str) -> Any:
        return getattr(self._found, method)


def get_logger(name: str) -> Any:
    return Logger(name)


def load_structlog() -> Any:
    """structlog, without the hundred modules that draw tracebacks for people: ours are plain."""
    if "structlog" in sys.modules or _DRAWING in sys.modules:
        return import_module("structlog")
    sys.modules[_DRAWING] = None  # type: ignore[assignment]  # as Python has it: it is not to be found
    try:
        return import_module("structlog")
    finally:
        del sys.modules[_DRAWING]
