"""The name of this build: its version, and the commit that it was made of."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

COMMIT_FILE: Final = "commit"
"""In a wheel, beside this module: `setup.py` writes it."""

_SHOWN: Final = 8
_HEXADECIMAL: Final = frozenset("0123456789abcdef")
_HERE: Final = Path(__file__).parent


@cache
def build_name() -> str:
    """As `0.1.0+g1a2b3c4d`, or the version alone where nothing says of which commit it is."""
    commit = _line(_HERE / COMMIT_FILE) or commit_of(_HERE.parents[2])
    if commit is None or len(commit) < _SHOWN or not set(commit) <= _HEXADECIMAL:
        return version("dray")
    return f"{version('dray')}+g{commit[:_SHOWN]}"


def commit_of(checkout: Path) -> str | None:
    """The commit of a checkout, from a few small files: a start has no time for git. None: it is none."""
    folder = checkout / ".git"
    if (link := _line(folder)) is not None:  # of a worktree
        folder = checkout / link.removeprefix("gitdir:").strip()
    head = _line(folder / "HEAD")
    if head is None or not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    shared = folder / (_line(folder / "commondir") or ".")
    return _line(folder / name) or _line(shared / name) or _packed(shared / "packed-refs", name)


def _packed(path: Path, name: str) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    return next((line.partition(" ")[0] for line in lines if line.endswith(f" {name}")), None)


def _line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):
        return None
