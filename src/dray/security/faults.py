"""What can go wrong with what is stored."""

from __future__ import annotations


class SecurityUnavailable(Exception):
    """The metadata store did not do it, or holds something that this build cannot read. It may have
    happened."""
