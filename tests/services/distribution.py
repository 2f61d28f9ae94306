"""In which order several processes take the test files, and what stays on one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xdist.scheduler import LoadFileScheduling

ONE_PLACE: Final = "tests/conformance/metadata"
"""Its files share servers that take long to start, two clusters among them. Together they come first."""

WAITING: Final = ("tests/integration", "tests/referee", "tests/conformance")
"""Most of their time these wait for servers and clients; all others compute."""

LONG: Final = "tests/simulation"
"""Of those that compute, they take longest."""

LAST_LONG: Final = 0.85
"""Where the last of those that wait or take long begins, between the first file and the last: at the end the
other processes would wait for it."""


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """A file stays on one process, with the servers that its tests share."""

    def _split_scope(self, nodeid: str) -> str:
        return place_of(nodeid.partition("::")[0])


def place_of(path: str) -> str:
    return ONE_PLACE if path.startswith(f"{ONE_PLACE}/") else path


def in_order(paths: Iterable[str]) -> list[str]:
    """Files that wait and files that compute take turns, so that neither processors nor processes idle."""
    given = list(dict.fromkeys(paths))
    first = [path for path in given if place_of(path) == ONE_PLACE]
    waiting = [path for path in given if path.startswith(WAITING) and path not in first]
    long = [path for path in given if path.startswith(LONG)]
    others = [path for path in given if not path.startswith((*WAITING, LONG))]
    places = dict.fromkeys(first, -1.0)
    for some, last in ((waiting, LAST_LONG), (long, LAST_LONG), (others, 1.0)):
        places |= {path: last * number / len(some) for number, path in enumerate(some)}
    return sorted(given, key=lambda path: places[path])
