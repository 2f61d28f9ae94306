"""Runs of the simulator, from files of `drayd simulate --seed N --json`: their list, and one as lanes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dray.base.runtime.shown import printable

LARGEST_FILE: Final = 16 * 1024 * 1024
MOST_FILES: Final = 100
MOST_STEPS: Final = 2000
MOST_LANES: Final = 24
_LONGEST: Final = 300
_BAD: Final = ("crash", "dies", "cut", "lost", "timed out", "stood still", "stall", "broken", "is cut off")


class NoSuchRun(Exception):
    """There is no such file, or it is no run."""


@dataclass(frozen=True)
class SimulatedRun:
    file: str
    seed: int | None
    seconds: float
    """Of simulated time."""
    broken: str | None
    """The promise that was not kept."""
    operations: int
    faults: int
    steps: int
    written_ms: int
    trouble: str | None = None
    """Why the file cannot be read."""


@dataclass(frozen=True)
class RunStep:
    at: float
    lane: int
    who: str
    what: str
    fault: bool
    x: float
    """In thousandths of the drawing's width."""


@dataclass(frozen=True)
class RunView:
    run: SimulatedRun
    fingerprint: str
    counts: Mapping[str, int]
    faults: Mapping[str, int]
    lanes: Sequence[str]
    steps: Sequence[RunStep]
    """The last of them, in order."""
    since: float
    """The time of the first that is shown."""


def runs_in(directory: Path) -> list[SimulatedRun]:
    """The newest first. Blocks."""
    found = []
    try:
        files = [path for path in directory.iterdir() if path.suffix == ".json" and path.is_file()]
        files.sort(key=lambda path: -path.stat().st_mtime)
    except OSError as error:
        raise NoSuchRun(f"cannot read the directory of runs: {error.strerror}") from error
    for path in files[:MOST_FILES]:
        try:
            found.append(_summary(path, _read(path)))
        except NoSuchRun as error:
            found.append(SimulatedRun(path.name, None, 0, None, 0, 0, 0, 0, str(error)))
    return found


def run_in(directory: Path, name: str) -> RunView:
    """Only a file of that very directory is read. Blocks."""
    if name not in {path.name for path in directory.iterdir() if path.suffix == ".json" and path.is_file()}:
        raise NoSuchRun(f"there is no run {printable(name)[:100]}")
    path = directory / name
    read = _read(path)
    run = _summary(path, read)
    raw = [step for step in read["steps"] if isinstance(step, dict)][-MOST_STEPS:]
    named = Counter(_text(step.get("who")) for step in raw)
    lanes = sorted(name for name, _ in named.most_common(MOST_LANES))
    if len(named) > MOST_LANES:
        lanes[-1:] = ["others"]
    places = {name: number for number, name in enumerate(lanes)}
    since = min((_seconds(step.get("at")) for step in raw), default=0.0)
    span = max(run.seconds - since, 0.001)
    steps = []
    for step in raw:
        who, what, at = _text(step.get("who")), _text(step.get("what")), _seconds(step.get("at"))
        lane = places.get(who, len(lanes) - 1)
        fault = any(word in what for word in _BAD)
        x = min(max(1000 * (at - since) / span, 0.0), 1000.0)
        steps.append(RunStep(at, lane, who, what, fault, x))
    return RunView(
        run,
        _text(read.get("fingerprint")),
        _counts(read, "counts"),
        _counts(read, "faults"),
        lanes,
        steps,
        since,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise NoSuchRun(f"{path.name} is larger than {LARGEST_FILE} bytes")
        read = json.loads(path.read_bytes())
    except OSError as error:
        raise NoSuchRun(f"{path.name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise NoSuchRun(f"{path.name} is no JSON") from error
    if not isinstance(read, dict) or not isinstance(read.get("steps"), list) or "seed" not in read:
        raise NoSuchRun(f"{path.name} is no run of drayd simulate --json")
    return read


def _summary(path: Path, read: Mapping[str, Any]) -> SimulatedRun:
    seed = read["seed"]
    broken = read.get("broken")
    counts, faults = _counts(read, "counts"), _counts(read, "faults")
    return SimulatedRun(
        path.name,
        seed if isinstance(seed, int) else None,
        _seconds(read.get("seconds")),
        None if broken is None else _text(broken),
        counts.get("operations", 0),
        sum(faults.values()),
        len(read["steps"]),
        round(path.stat().st_mtime * 1000),
    )


def _counts(read: Mapping[str, Any], name: str) -> dict[str, int]:
    given = read.get(name)
    if not isinstance(given, dict):
        return {}
    return {_text(key): value for key, value in list(given.items())[:200] if isinstance(value, int)}


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e12 else 0.0


def _text(value: Any) -> str:
    return printable(str(value))[:_LONGEST]
