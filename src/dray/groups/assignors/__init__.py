"""Server-side assignors: members and partition counts in, a target for each member out."""

from collections.abc import Mapping
from typing import Final

from dray.groups.assignors import range as range_assignor
from dray.groups.assignors import uniform
from dray.groups.assignors.contract import NOTHING, Assignment, Assignor, MemberSubscription

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform.assign, "range": range_assignor.assign}
"""By the names that clients use. Where as many members name one as another, the earlier here is taken."""

__all__ = ["ASSIGNORS", "NOTHING", "Assignment", "Assignor", "MemberSubscription"]
