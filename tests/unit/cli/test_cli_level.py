"""`drayd admin level`, on SQLite: what it shows, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.unit.cli.shell import Shell

from dray.base.runtime import SystemRuntime
from dray.broker.cluster import open_cluster
from dray.broker.cluster.clock_guard import ProcessDescription, StoredBeat, encode_beat
from dray.broker.cluster.levels import BASE, NEWEST
from dray.broker.cluster.membership import AdvertisedListener, Broker, encode_broker
from dray.daemons.recovery import levels
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.sqlite import SqliteStore


def prepare(directory: Path, level: int, compactor_reads: int | None = NEWEST) -> None:
    """A cluster as its processes left it: a broker, and a compactor."""

    async def work() -> None:
        runtime = SystemRuntime(threads=2)
        store = SqliteStore(directory / "metadata.sqlite", runtime)
        await store.open()
        await open_cluster(store, runtime, 2, True, level)
        broker = Broker(0, (AdvertisedListener("A", "h", 1),), build="0.1.0", reads=NEWEST)
        compactor = StoredBeat("m", 1, False, ProcessDescription("compactor", "0.0.9"), compactor_reads)
        values = {
            keys.broker(0): encode_broker(broker),
            keys.clock("aaaaaaaabbbb"): encode_beat(StoredBeat("m", 1, False, None, NEWEST, BASE)),
            keys.clock("c0ffee00aaaa"): encode_beat(compactor),
        }
        await store.write(keys.CLUSTER_DOMAIN, [Put(key, value) for key, value in values.items()])
        await store.close()
        runtime.close()

    asyncio.run(work())


def test_the_level_is_shown_with_who_reads_the_next_one(drayd: Shell, tmp_path: Path) -> None:
    prepare(tmp_path, BASE, None)
    shown = drayd("admin", "level", "--data-dir", str(tmp_path))
    assert (shown.code, shown.error) == (0, "")
    assert "is at level 1\n" in shown.out
    assert "no: not read by compactor c0ffee00 (0.0.9)" in shown.out
    rows = {line.split("  ")[0]: line.rstrip() for line in shown.out.splitlines()}
    assert rows["compactor c0ffee00 (0.0.9)"].endswith("it has not said")
    assert rows["beat aaaaaaaa of a broker"].endswith("level 1")
    assert "to be undone" not in shown.out


def test_a_raise_is_refused_until_all_read_the_next_level(drayd: Shell, tmp_path: Path) -> None:
    prepare(tmp_path, BASE, None)
    refused = drayd("admin", "level", "raise", "--data-dir", str(tmp_path))
    assert (refused.code, refused.out) == (1, "")
    assert refused.error == (
        "drayd: the cluster stays at level 1: more is not read by compactor c0ffee00 (0.0.9)\n"
    )


def test_a_level_is_raised_looked_at_and_lowered(
    drayd: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(levels, "LOOK_SECONDS", 0.0)
    prepare(tmp_path, BASE)
    where = "--data-dir", str(tmp_path)
    raised = drayd("admin", "level", "raise", *where)
    assert raised.out == "the cluster is at level 2: builds that do not read it no longer start\n"
    again = drayd("admin", "level", "raise", *where)
    assert again.error == f"drayd: the cluster stays at level {NEWEST}: no process reads more\n"
    looked = drayd("admin", "level", "lower", "--to", "1", *where)
    assert looked.code == 0
    assert "to be undone for level 1" in looked.out
    assert "nothing was done: add --execute" in looked.error
    assert json.loads(drayd("admin", "level", *where, "--json").out)["ceiling"] is None
    done = drayd("admin", "level", "lower", "--to", "1", *where, "--execute")
    assert done.code == 0
    assert "the cluster is at level 1, and stays there until drayd admin level raise" in done.out
    assert "whichever: nothing else is stored" in done.out
    view = json.loads(drayd("admin", "level", *where, "--json").out)
    assert (view["level"], view["ceiling"], view["newest"], view["kept"]) == (1, 1, NEWEST, {})
    assert "is at level 1, and stays there\n" in drayd("admin", "level", *where).out


@pytest.mark.parametrize("to", ["0", str(NEWEST + 1)])
def test_a_level_that_is_none_below_is_refused(drayd: Shell, tmp_path: Path, to: str) -> None:
    prepare(tmp_path, NEWEST)
    refused = drayd("admin", "level", "lower", "--to", to, "--data-dir", str(tmp_path), "--execute")
    assert refused.code == 2
    assert refused.error == f"drayd: --to {to}: the cluster is at level {NEWEST}, and the lowest is 1\n"


def test_an_option_that_would_be_lost_is_refused(drayd: Shell, tmp_path: Path) -> None:
    refused = drayd("admin", "level", "--data-dir", str(tmp_path), "raise")
    assert refused.code == 2
    assert "give the options behind the command" in refused.error


def test_where_there_is_no_cluster_none_is_made(drayd: Shell, tmp_path: Path) -> None:
    found = drayd("admin", "level", "--data-dir", str(tmp_path / "none"))
    assert found.code == 1
    assert "there is no cluster on these stores yet" in found.error
    assert not (tmp_path / "none").exists()
