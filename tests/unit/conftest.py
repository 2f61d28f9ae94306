"""No module of unit tests leaves an exception or a task behind: none fails another, in whatever order."""

from __future__ import annotations

from tests.services.leftovers import nothing_left_behind

__all__ = ["nothing_left_behind"]
