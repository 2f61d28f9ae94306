"""From URLs to stores, and one clear line for what makes none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from dray.base.runtime import SystemRuntime
from dray.objects import LocalStore, MemoryObjects, ObjectError, open_store
from dray.objects.remote.store import RemoteStore


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime()
    yield runtime
    runtime.close()


@pytest.mark.parametrize("form", ["file:{}", "file://{}"])
async def test_local_files(form: str, tmp_path: Path, runtime: SystemRuntime) -> None:
    store = await open_store(form.format(tmp_path / "objects"), {}, runtime)
    assert isinstance(store, LocalStore)
    await store.put("a/b", [b"x"])
    await store.close()
    assert (tmp_path / "objects" / "a" / "b").read_bytes() == b"x"


async def test_local_files_by_a_relative_path(
    tmp_path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = await open_store("file:below/objects", {}, runtime)
    await store.put("a", [b"x"])
    await store.close()
    assert (tmp_path / "below" / "objects" / "a").read_bytes() == b"x"


@pytest.mark.parametrize("url", ["memory:", "memory://"])
async def test_memory(url: str, runtime: SystemRuntime) -> None:
    assert isinstance(await open_store(url, {}, runtime), MemoryObjects)


HIDDEN = "aGlkZGVuCg=="
KEYS = {"access_key_id": "id", "secret_access_key": HIDDEN}
NOWHERE = "http://127.0.0.1:9"
REMOTE = [
    ("s3://bucket/some/prefix", {"region": "eu-west-1", "path_style": "true"}, KEYS),
    ("s3://bucket", {"endpoint": NOWHERE, "retries": "0", "retry_timeout": "500ms"}, KEYS),
    ("gs://bucket/prefix/", {"endpoint": NOWHERE, "timeout": "2m"}, {}),
    ("az://container/prefix", {"account_name": "me", "connect_timeout": "1.5s"}, {"access_key": HIDDEN}),
]


@pytest.mark.parametrize(("url", "options", "secrets"), REMOTE)
async def test_remote_stores(
    url: str, options: dict[str, str], secrets: dict[str, str], runtime: SystemRuntime
) -> None:
    store = await open_store(url, options, runtime, secrets)
    assert isinstance(store, RemoteStore)
    assert HIDDEN not in repr(store) + repr(store._store)


async def test_options_reach_the_client(runtime: SystemRuntime) -> None:
    options = {
        "endpoint": NOWHERE,
        "region": "eu-west-1",
        "path_style": "false",
        "part_size": "6000000",
        "multipart_threshold": "7000000",
        "retries": "3",
    }
    store = await open_store("s3://bucket/prefix", options, runtime, KEYS)
    assert isinstance(store, RemoteStore)
    assert (store._settings.part_size, store._settings.multipart_threshold) == (6_000_000, 7_000_000)
    client = cast(Any, store._store)._client
    assert client.prefix == "prefix"
    config = dict(client.config)
    assert config["endpoint"] == NOWHERE
    assert config["region"] == "eu-west-1"
    assert str(config["virtual_hosted_style_request"]).lower() == "true"
    assert client.retry_config["max_retries"] == 3


@pytest.mark.parametrize(
    ("url", "options", "line"),
    [
        ("http://host/x", {}, "it must be file:, memory:, s3:, gs: or az:"),
        ("nothing", {}, "it must be file:, memory:, s3:, gs: or az:"),
        ("file:", {}, "names no directory"),
        ("file:/tmp/x", {"region": "x"}, "no option 'region'"),
        ("memory:", {"region": "x"}, "no option 'region'"),
        ("s3:///prefix", {}, "names no bucket"),
        ("s3://bucket/../up", {}, "object path"),
        ("s3://key:secret@bucket/x", {}, "do not go into the URL"),
        ("s3://bucket?secret=x", {}, "do not go into the URL"),
        ("s3://bucket", {"timeout": "soon"}, "timeout: 'soon' is not a time"),
        ("s3://bucket", {"retries": "-1"}, "retries: '-1' is not a whole number"),
        ("s3://bucket", {"path_style": "yes"}, "path_style: 'yes' is neither true nor false"),
        ("s3://bucket", {"colour": "blue"}, "colour"),
        ("gs://bucket", {"path_style": "true"}, "path_style"),
    ],
)
async def test_what_makes_no_store(
    url: str, options: dict[str, str], line: str, runtime: SystemRuntime
) -> None:
    with pytest.raises(ValueError, match=line.replace("?", r"\?")) as caught:
        await open_store(url, options, runtime)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_secret_is_in_no_error(runtime: SystemRuntime) -> None:
    with pytest.raises(ValueError) as caught:
        await open_store("gs://bucket", {}, runtime, {"service_account_key": "hidden-thing"})
    assert "hidden-thing" not in str(caught.value)
    with pytest.raises(ValueError, match="no option 'secret_access_key'") as refused:
        await open_store("memory:", {}, runtime, {"secret_access_key": "hidden-thing"})
    assert "hidden-thing" not in str(refused.value)


async def test_a_store_nobody_serves_is_an_object_error(runtime: SystemRuntime) -> None:
    store = await open_store(
        "s3://bucket/prefix",
        {"endpoint": NOWHERE, "region": "r", "retries": "0"},
        runtime,
        {"access_key_id": "id", "secret_access_key": "hidden-thing"},
    )
    with pytest.raises(ObjectError, match="cannot put some/path: ") as caught:
        await store.put("some/path", [b"x"])
    assert "hidden-thing" not in str(caught.value)
    assert "\n" not in str(caught.value)
    await store.close()


def test_local_files_need_no_cloud_client() -> None:
    code = "import sys, dray.objects; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
