"""Frozen dataclasses for what is made many times for every request.

A frozen dataclass sets each of its fields by a call, which takes three times as long as to set it. That
nothing is set later is what mypy holds, for tests too. So where mypy does not look, at runtime, these are
not frozen; they compare and hash as if they were.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen=False, **options):
        return dataclasses.dataclass(unsafe_hash=frozen, **options)


__all__ = ["dataclass"]
