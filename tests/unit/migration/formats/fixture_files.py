"""The files of foreign formats, as their real writers wrote them."""

from __future__ import annotations

from pathlib import Path

FIXTURES = Path(__file__).parents[3] / "fixtures" / "foreign"
LOCAL = FIXTURES / "local-tiered"
AIVEN = FIXTURES / "aiven-v1"
KAFSCALE = FIXTURES / "kafscale"


def segments_of(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*.{suffix}"))


def local_partition(number: int) -> Path:
    (found,) = LOCAL.glob(f"orders-{number}-*")
    return found


def aiven_partition(number: int) -> Path:
    (found,) = (AIVEN / "pre").glob("orders-*")
    return found / str(number)
