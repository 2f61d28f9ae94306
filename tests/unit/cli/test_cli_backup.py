"""`drayd backup` and `drayd restore`, on SQLite and local files: what they say, refuse and do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from dray.base.runtime import SystemRuntime
from dray.broker.cluster import TallyKeeper, open_cluster
from dray.broker.cluster.bucket_owner import put_owner
from dray.cli.main import main
from dray.daemons.assembly.stores import open_stores
from dray.daemons.config import load
from dray.metadata import keys
from dray.metadata.contract import Put


class Ran(NamedTuple):
    code: int
    out: str
    error: str


Shell = Callable[..., Ran]


@pytest.fixture
def drayd(capsys: pytest.CaptureFixture[str]) -> Shell:
    def run(*arguments: str) -> Ran:
        code = 0
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        told = capsys.readouterr()
        return Ran(code, told.out, told.err)

    return run


@pytest.fixture(autouse=True)
def known_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAY_CLUSTER__TALLY_INTERVAL", "100ms")


def prepare(directory: Path) -> str:
    """A cluster with a tally, as a broker leaves it; its id."""

    async def work() -> str:
        runtime = SystemRuntime()
        stores = await open_stores(load(environment={"DRAY_DATA_DIR": str(directory)}).settings, runtime)
        cluster = await open_cluster(stores.metadata, runtime, 2)
        await put_owner(stores.objects, cluster)
        keeper = TallyKeeper(stores.metadata, stores.objects, runtime, cluster.cluster_id, 0.1, is_new=True)
        assert await keeper() is None
        await stores.metadata.write(1, [Put(keys.high_watermark(1), b"value")])
        await stores.close()
        runtime.close()
        return cluster.cluster_id

    return asyncio.run(work())


def forget_metadata(directory: Path) -> None:
    for path in directory.glob("metadata.sqlite*"):
        if path.is_file():
            path.unlink()


def test_a_backup_is_made_and_restored(drayd: Shell, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "copy.drayback"
    cluster = prepare(data)
    where = "--data-dir", str(data)
    made = drayd("backup", *where, "--to", str(file))
    assert (made.code, made.error) == (0, "")
    assert f"{file}: " in made.out
    assert file.stat().st_mode & 0o077 == 0, "keys of users are in it"
    assert "backups/v1/" in drayd("backup", *where).out
    refused = drayd("restore", *where, "--from", str(file))
    assert refused.code == 1
    assert "has a cluster" in refused.error

    forget_metadata(data)
    empty = drayd("restore", *where)
    assert empty.code == 1
    assert "the newest of 1 in the bucket is backups/v1/" in empty.error
    for source in (["--from", str(file)], ["--from-bucket"]):
        look = drayd("restore", *where, *source)
        assert look.code == 0
        assert f"cluster {cluster}" in look.out
        assert "nothing was changed" in look.out
    done = drayd("restore", *where, "--from-bucket", "--execute", "--json")
    assert (done.code, json.loads(done.out)["cluster"], json.loads(done.out)["executed"]) == (
        0,
        cluster,
        True,
    )
    assert drayd("backup", *where).code == 0, "it is the cluster"


def test_a_backup_that_is_not_whole_is_refused(drayd: Shell, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "copy.drayback"
    prepare(data)
    where = "--data-dir", str(data)
    assert drayd("backup", *where, "--to", str(file)).code == 0
    file.write_bytes(file.read_bytes()[:-1])
    forget_metadata(data)
    ran = drayd("restore", *where, "--from", str(file), "--execute")
    assert ran.code == 1
    assert "it is not whole" in ran.error
    assert ran.error.splitlines()[-1].startswith("drayd: ")
    assert "the metadata store is empty" in drayd("restore", *where).error


def test_metadata_that_was_put_back_is_held_until_somebody_decides(drayd: Shell, tmp_path: Path) -> None:
    """By hand, and older than the bucket: commands that write refuse, and the decision is one command."""
    data = tmp_path / "data"
    prepare(data)
    where = "--data-dir", str(data)
    kept = (data / "metadata.sqlite").read_bytes()

    async def live_on() -> None:
        runtime = SystemRuntime()
        stores = await open_stores(load(environment={"DRAY_DATA_DIR": str(data)}).settings, runtime)
        cluster = await open_cluster(stores.metadata, runtime, 2)
        keeper = TallyKeeper(stores.metadata, stores.objects, runtime, cluster.cluster_id, 0.1)
        assert await keeper() is None
        await stores.close()
        runtime.close()

    asyncio.run(live_on())
    forget_metadata(data)
    (data / "metadata.sqlite").write_bytes(kept)
    for command in (["admin", "gc"], ["backup"]):
        ran = drayd(*command, *where)
        assert ran.code == 1
        assert "older than the bucket" in ran.error
        assert ran.error.count("\n") == 1
    assert "nothing was changed" in drayd("restore", *where).out
    done = drayd("restore", *where, "--execute")
    assert (done.code, "done: the tally is" in done.out) == (0, True)
    assert drayd("backup", *where).code == 0
