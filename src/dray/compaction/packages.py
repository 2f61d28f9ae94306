"""The Python packages of the data pipeline: which are missing, and the one line that says what to do."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

PACKAGES = ("pyspark", "pyiceberg")


def missing_packages() -> str | None:
    """What to do about it, if what compaction needs is not installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    return not_installed(missing) if missing else None


def not_installed(names: Iterable[str]) -> str:
    return f"{' and '.join(names)} not installed: run `make setup-pipeline`, or pip install 'dray[pipeline]'"


def needs(what: str, error: ImportError) -> str:
    """The line for a part that found a package missing when it imported it."""
    return f"{what} cannot run: {not_installed([error.name or 'a package'])}"
