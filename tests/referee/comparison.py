"""Two answers, leaf by leaf."""

from __future__ import annotations

from typing import Any


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Every leaf of an answer under its path, so that a difference is one line."""
    if isinstance(value, dict) and value:
        return {p: leaf for key, held in value.items() for p, leaf in flat(held, f"{path}/{key}").items()}
    if isinstance(value, list) and value:
        return {p: leaf for at, held in enumerate(value) for p, leaf in flat(held, f"{path}/{at}").items()}
    return {path: value}


def differences(kafka: Any, dray: Any) -> dict[str, tuple[Any, Any]]:
    ours, theirs = flat(dray), flat(kafka)
    paths = [*theirs, *(path for path in ours if path not in theirs)]
    absent = "(absent)"
    return {
        path: (theirs.get(path, absent), ours.get(path, absent))
        for path in paths
        if theirs.get(path, absent) != ours.get(path, absent)
    }
