"""Numbers, times and addresses as pages show them, and charts. Nothing is rounded without saying so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any, Final
from urllib.parse import quote

THIN: Final = "\u202f"
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def number(value: int | None) -> str:
    """Every digit, in groups of three."""
    return "–" if value is None else f"{value:,}".replace(",", THIN)


def size(value: int | None) -> str:
    """About so many bytes, in powers of a thousand."""
    if value is None:
        return "–"
    shown, unit = float(value), 0
    while abs(shown) >= 999.5 and unit < len(_UNITS) - 1:
        shown, unit = shown / 1000, unit + 1
    if unit == 0:
        return f"{value}{THIN}B"
    return f"{shown:.3g}{THIN}{_UNITS[unit]}"


def price(dollars: float | None) -> str:
    """About so many dollars. A price below a cent is said to be so."""
    if dollars is None:
        return "–"
    if dollars < 0.01:
        return "$0" if dollars <= 0 else "under $0.01"
    return f"${dollars:,.2f}".replace(",", THIN)


def duration(milliseconds: int | None) -> str:
    """About so long, in its two largest units."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1000:
        return f"{milliseconds}{THIN}ms" if milliseconds else "0"
    seconds = milliseconds // 1000
    parts: list[str] = []
    for name, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= length or parts:
            parts.append(f"{seconds // length}{THIN}{name}")
            seconds %= length
        if len(parts) == 2:
            break
    return " ".join(parts)


def moment(milliseconds: int | None) -> str:
    """UTC, to the millisecond. A number that is no time of this calendar is shown as it is."""
    if milliseconds is None or milliseconds < 0:
        return "–" if milliseconds in (None, -1) else str(milliseconds)
    try:
        found = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return str(milliseconds)
    return f"{found:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d}"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def path(name: str) -> str:
    """A name as one part of an address."""
    return quote(name, safe="")


def share(part: int, of: int) -> str:
    """A percentage for a drawing."""
    return f"{100 * part / of:.3f}" if of else "0"


# --- charts of rows: bars of a few, a curve of many


MOST_COLUMNS: Final = 3
MOST_BARS: Final = 40
MOST_POINTS: Final = 400
_NUMBERS: Final = ("INT", "DECIMAL", "DOUBLE", "FLOAT", "HUGEINT", "BIGINT", "SMALLINT")
_LONGEST_LABEL: Final = 60


@dataclass(frozen=True)
class Bar:
    label: str
    text: str
    """The value, with every digit."""
    start: float
    width: float
    """Of the drawing's width, in thousandths."""


@dataclass(frozen=True)
class Chart:
    labels: str
    """The names of the two columns."""
    values: str
    bars: Sequence[Bar]
    """Empty where it is a curve."""
    curve: str
    """The points of a line, in a drawing of 1000 by 100."""
    lowest: str
    highest: str
    count: int


def is_number(kind: str) -> bool:
    return kind.startswith(_NUMBERS) or kind.endswith("INT")


def chart_of(names: Sequence[str], kinds: Sequence[str], rows: Sequence[Sequence[Any]]) -> Chart | None:
    """The last column of numbers over the first column; None where there is nothing to draw. Rows of many
    columns are records, not figures: they are not drawn."""
    numeric = [number for number, kind in enumerate(kinds) if is_number(kind)]
    if len(rows) < 2 or not 2 <= len(names) <= MOST_COLUMNS or not numeric or numeric[-1] == 0:
        return None
    column = numeric[-1]
    points = [(str(row[0]), row[column]) for row in rows]
    values = [_value(value) for _, value in points]
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = min(0.0, *known), max(0.0, *known)
    span = (high - low) or 1.0
    bars: list[Bar] = []
    curve = ""
    if len(points) <= MOST_BARS:
        zero = 1000 * (0 - low) / span
        for (label, text), value in zip(points, values, strict=True):
            end = zero if value is None else 1000 * (value - low) / span
            start, width = min(zero, end), max(abs(end - zero), 1.0 if value else 0.0)
            bars.append(Bar(label[:_LONGEST_LABEL], "null" if value is None else str(text), start, width))
    else:
        few = _fewer(known)
        step = 1000 / max(len(few) - 1, 1)
        curve = " ".join(
            f"{number * step:.1f},{98 - 94 * (value - low) / span:.1f}" for number, value in enumerate(few)
        )
    return Chart(
        names[0], names[column], bars, curve, str(_least(points)), str(_greatest(points)), len(points)
    )


def curve_points(values: Sequence[float | None], highest: float) -> str:
    """The points of a line through a history, in a drawing as wide as it has values; unknown values are left
    out."""
    return " ".join(
        f"{number},{98 - (94 * value / highest if highest else 0):.1f}"
        for number, value in enumerate(values)
        if value is not None
    )


def _fewer(values: Sequence[float]) -> list[float]:
    """The greatest of each bucket: a peak is never smoothed away."""
    if len(values) <= MOST_POINTS:
        return list(values)
    bounds = [round(number * len(values) / MOST_POINTS) for number in range(MOST_POINTS + 1)]
    return [max(values[start:end]) for start, end in pairwise(bounds) if end > start]


def _value(value: Any) -> float | None:
    if value is None or isinstance(value, list | dict):
        return None
    try:
        found = float(Decimal(str(value)))
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return found if abs(found) < 1e300 else None


def _least(points: Sequence[tuple[str, Any]]) -> Any:
    return min(
        (value for _, value in points if _value(value) is not None), key=lambda one: _value(one) or 0.0
    )


def _greatest(points: Sequence[tuple[str, Any]]) -> Any:
    return max(
        (value for _, value in points if _value(value) is not None), key=lambda one: _value(one) or 0.0
    )
