"""Curves in a terminal: a column per moment, eighths of a character high."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def chart(values: Sequence[float], *, width: int, height: int, unit: str) -> list[str]:
    """The lines of a chart from zero up to the greatest value, which stands beside its top."""
    columns = _fit(values, width)
    top = max(columns, default=0.0)
    scale = height * 8 / top if top > 0 else 0.0
    lines = []
    for row in range(height - 1, -1, -1):
        cells = [_EIGHTHS[max(0, min(8, round(value * scale) - row * 8))] for value in columns]
        label = f"{top:,.0f} {unit}" if row == height - 1 else "0" if row == 0 else ""
        lines.append(f"{label:>14} │{''.join(cells)}")
    return lines


def _fit(values: Sequence[float], width: int) -> list[float]:
    """The greatest of the values that fall into each column: a peak is never smoothed away."""
    if len(values) <= width:
        return list(values)
    bounds = [round(index * len(values) / width) for index in range(width + 1)]
    return [max(values[start:end]) for start, end in pairwise(bounds)]
