"""What `docs/migration.md` tells a newcomer to type, typed: only port and place of the tier are others."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.services.migration_newcomer import CHAPTER, Newcomer
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tiered_history import checksums
from tests.services.tools import require_tool
from tests.unit.migration.formats.fixture_files import LOCAL

from dray.migration.formats import walk_batches

TOUR = CHAPTER.partition("## From a dead cluster")[2].partition("\n## ")[0]

pytestmark = pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts a broker of its own")


def commands() -> list[str]:
    return "".join(re.findall(r"```sh\n(.*?)```", TOUR, re.DOTALL)).splitlines()


def test_from_a_dead_cluster_to_reading_clients(tmp_path: Path) -> None:
    require_tool("kcat")
    config = re.search(r"```yaml\n(.*?)```", TOUR, re.DOTALL)
    assert config is not None
    shutil.copytree(LOCAL, tmp_path / "tier")
    (tmp_path / "dray.yaml").write_text(config[1].replace("/srv/tier", str(tmp_path / "tier")))
    newcomer = Newcomer(tmp_path)
    before = checksums(tmp_path / "tier")
    said: dict[str, str] = {}
    try:
        for command in commands():
            if command.endswith("&"):
                newcomer.starts(command)
                continue
            done = newcomer.types(command)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            said[command.split(" orders")[0].split(" --")[0]] = done.stdout
    finally:
        newcomer.leaves()
    assert re.search(r"^ +0 +0 +\d+ +2 ", said["drayd migrate plan"], re.MULTILINE)
    assert "topic orders is attached: 2 partitions" in said["drayd migrate attach"]
    written = [
        batch.header.record_count
        for path in LOCAL.rglob("*.log")
        for batch in walk_batches(path.read_bytes())
        if not batch.is_control
    ]
    (read,) = [text for command, text in said.items() if command.startswith("kcat")]
    assert len(read.splitlines()) == sum(written) - 50  # one of three transactions was aborted
    assert "do not delete that topic at its source" in said["drayd migrate status"]
    assert checksums(tmp_path / "tier") == before
    assert "Traceback" not in (tmp_path / "broker.log").read_text()
