"""How much memory this process may use: the machine's, or less where a container or a service is limited."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_UNKNOWN: Final = 1 << 30


def usable_memory(root: Path = Path("/")) -> int:
    """In bytes. `root` is where the kernel's files are."""
    return min([_physical(), *_limits(root)])


def _physical() -> int:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return _UNKNOWN
    return pages * size if pages > 0 and size > 0 else _UNKNOWN


def _limits(root: Path) -> Iterator[int]:
    """Those of the control groups that the process is in, and of all above them."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _limits_above(root / "sys/fs/cgroup", path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_above(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")


def _limits_above(mount: Path, path: str, name: str) -> Iterator[int]:
    """Seen from inside a container the path may be the host's, and only the mount itself is there."""
    group = mount / path.lstrip("/")
    for directory in (group, *group.parents):
        try:
            text = (directory / name).read_text().strip()
        except OSError:
            text = ""
        if text.isdecimal() and int(text) > 0:
            yield int(text)
        if directory == mount:
            return
