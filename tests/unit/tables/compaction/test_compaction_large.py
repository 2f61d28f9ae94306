"""A stream that no merge by key could take as a whole, cleaned in memory that does not grow with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MOST_MEBIBYTES = 900


@pytest.mark.soak
def test_a_stream_of_several_gibibytes_is_compacted_by_key_in_bounded_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.tables.compaction.large_stream", str(tmp_path / "objects"), "3"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["troubles"] == []
    assert (found["rounds"], found["clean"]) == (1, found["records"])
    assert found["left"] == found["keys"], "one record per key"
    assert found["mebibytes"] < MOST_MEBIBYTES, found
