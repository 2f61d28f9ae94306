"""Which paths an object may have: one rule for every engine.

The rule is what S3, GCS, Azure and a POSIX file system all keep apart and give back unchanged. It is
checked before an engine is asked, so a path can never climb out of a local root or be normalised into
another object's path by a remote one.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.objects.contract import RangeOutside

# One name on a POSIX file system, and one key on S3.
_LONGEST_NAME = 255
_LONGEST_PATH = 1000

RESERVED = ".dray-incoming"
"""The local engine keeps unfinished objects under this name, in its root: no object may live there."""


def check_path(path: str) -> str:
    """The path itself, or `ValueError` saying what is wrong with it."""
    names = path.split("/")
    for name in names:
        if name in ("", ".", ".."):
            raise ValueError(f"object path {path!r}: a part may not be {name!r}")
        if not name.isprintable():
            raise ValueError(f"object path {path!r}: only printable characters are allowed")
        if len(name.encode()) > _LONGEST_NAME:
            raise ValueError(f"object path {path!r}: a part is longer than {_LONGEST_NAME} bytes")
    if len(path.encode()) > _LONGEST_PATH:
        raise ValueError(f"object path {path[:80]!r}...: longer than {_LONGEST_PATH} bytes")
    if names[0] == RESERVED:
        raise ValueError(f"object path {path!r}: {RESERVED!r} is reserved")
    return path


def check_prefix(prefix: str) -> str:
    """The folder `prefix` without its trailing slash; the empty one is the whole store."""
    return check_path(prefix.removesuffix("/")) if prefix else ""


def check_ranges(path: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    for start, length in ranges:
        if start < 0 or length < 0:
            raise ValueError(f"object {path!r}: the range ({start}, {length}) has a negative number")
    return list(ranges)


def check_inside(path: str, size: int, ranges: Sequence[tuple[int, int]]) -> None:
    """Done before anything is allocated, since the lengths may come from a corrupt object. An empty
    range is never outside."""
    for start, length in ranges:
        if length and start + length > size:
            raise outside(path, size, start, length)


def outside(path: str, size: int, start: int, length: int) -> RangeOutside:
    return RangeOutside(f"{path}: it has {size} bytes, {start} to {start + length} were asked for")
