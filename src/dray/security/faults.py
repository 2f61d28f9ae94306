"""What can go wrong with what is stored."""

from __future__ import annotations


class SecurityUnavailable(Exception):
    """The metadata store failed, or holds a value that this build cannot read. The change may have been
    made."""
