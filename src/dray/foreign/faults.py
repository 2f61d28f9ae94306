"""Why foreign bytes are refused."""

from __future__ import annotations


class ForeignFault(Exception):
    """`position` is the byte, counted from the start of what was read. What read it knows the object's name,
    and puts it in front."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(f"byte {position}: {reason}")
        self.reason = reason
        self.position = position


class ForeignDamage(ForeignFault):
    """The bytes are not what their writer wrote, or are not of this format."""


class ForeignUnsupported(ForeignFault):
    """The bytes may be whole, in a version or with a feature that is not known here."""
