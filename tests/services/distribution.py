"""In which order several processes take the test files, and what stays on one of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from xdist.scheduler import LoadFileScheduling

ONE_PLACE: Final = "tests/conformance/metadata"
"""Its files share servers that take long to start, two clusters among them."""

FIRST: Final = (ONE_PLACE,)
WAITING: Final = ("tests/integration", "tests/referee", "tests/conformance")
"""Most of their time these wait for servers and clients; all others compute."""

LAST_WAIT: Final = 0.85
"""Where the last of those that wait begins, between the first file and the last: files that take long do not
come at the end, where the other processes would wait for them."""


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """A file stays on one process, with the servers that its tests share."""

    def _split_scope(self, nodeid: str) -> str:
        return place_of(nodeid.partition("::")[0])


def place_of(path: str) -> str:
    return ONE_PLACE if path.startswith(f"{ONE_PLACE}/") else path


def in_order(paths: Iterable[str]) -> list[str]:
    """Files that wait and files that compute take turns, so that neither processors nor processes idle."""
    given = list(dict.fromkeys(paths))
    first = [path for path in given if path.startswith(FIRST)]
    waiting = [path for path in given if path.startswith(WAITING) and path not in first]
    # Those of the simulation take longest.
    computing = sorted(
        (path for path in given if not path.startswith(WAITING)),
        key=lambda path: PurePosixPath(path).parts[1] != "simulation",
    )
    places = dict.fromkeys(first, -1.0)
    places |= {path: LAST_WAIT * number / len(waiting) for number, path in enumerate(waiting)}
    places |= {path: number / len(computing) for number, path in enumerate(computing)}
    return sorted(given, key=lambda path: places[path])
