"""Numbers, times and addresses as pages show them. Nothing is rounded without saying so."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
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
    """About so many dollars. What is less than a cent is said to be."""
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
