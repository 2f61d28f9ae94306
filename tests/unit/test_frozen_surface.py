"""The surface is what `tests/frozen/surface.txt` says: a move changes nothing of it."""

from __future__ import annotations

import ast
from difflib import unified_diff

import pytest
from tools import surface


def test_the_surface_is_the_frozen_one() -> None:
    frozen = surface.FILE.read_text(encoding="utf-8").splitlines()
    changes = unified_diff(frozen, surface.lines(), "frozen", "now", n=0, lineterm="")
    assert not (found := "\n".join(changes)), (
        f"{found}\n\nA change that is meant is written down with: python -m tools.surface"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"no topic"', ["no topic"]),
        ('f"no {what}: {why!r}"', ["no {}: {}"]),
        ('"no topic" if alone else f"no {count} topics"', ["no topic", "no {} topics"]),
        ('f"{name}: " + "no topic"', ["{}: no topic"]),
        ("str(error)", []),
    ],
)
def test_texts_of_a_refusal_do_not_depend_on_names(source: str, expected: list[str]) -> None:
    assert list(surface._texts(ast.parse(source, mode="eval").body)) == expected


def test_every_kind_of_entry_is_there() -> None:
    """A collector that finds nothing any more freezes nothing."""
    kinds = (
        "api",
        "command",
        "error",
        "http",
        "key",
        "metric",
        "object path",
        "setting",
        "stored",
        "topic config",
    )
    frozen = surface.FILE.read_text(encoding="utf-8").splitlines()
    assert {kind for kind in kinds if not any(line.startswith(f"{kind} ") for line in frozen)} == set()
