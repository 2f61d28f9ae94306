"""Cases that `make test` has no time for."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet


def longer(*values: object) -> ParameterSet:
    """A case for `make soak`, where another one of the same rule stays in `make test`."""
    return pytest.param(*values, marks=pytest.mark.soak)
