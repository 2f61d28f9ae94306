"""The stores that the benchmarks of clusters run on: embedded, or Oxia and S3 on the same machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services.metadata import oxia_settings
from tests.services.oxia import OxiaStandalone
from tests.services.remote import s3_settings
from tests.services.s3 import S3Process


@contextmanager
def broker_settings(directory: Path, remote: bool) -> Iterator[dict[str, str]]:
    """What the environment of the brokers says; the servers run as long as this is open."""
    if not remote:
        yield {}
        return
    with OxiaStandalone(directory / "oxia") as oxia, S3Process(directory / "s3") as s3:
        yield oxia_settings(oxia) | s3_settings(s3, "bench")
