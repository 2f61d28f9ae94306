"""TLS to Oxia, with certificates on both sides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.services.certificates import Certificates, make_certificates
from tests.services.metadata import over_tls
from tests.unit.metadata.oxia_fake import FakeServer, FakeShard

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import Put
from dray.metadata.oxia import OxiaSettings
from dray.metadata.oxia.errors import UnusableOxia
from dray.metadata.oxia.store import OxiaStore


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime()
    yield runtime
    runtime.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def server(certificates: Certificates) -> AsyncIterator[FakeServer]:
    """It wants to see the client's certificate."""
    server = FakeServer(FakeShard())
    pair = (certificates.key.read_bytes(), certificates.certificate.read_bytes())
    authority = certificates.authority.read_bytes()
    await server.start(grpc.ssl_server_credentials([pair], authority, require_client_auth=True))
    yield server
    await server.stop()


def settings(server: FakeServer, tls: dict[str, Any]) -> OxiaSettings:
    return OxiaSettings(addresses=[server.address], **tls, patience=1.0, first_answer=0.5)


async def test_both_sides_show_their_certificates(
    server: FakeServer, certificates: Certificates, runtime: SystemRuntime
) -> None:
    tls = over_tls(certificates.authority, certificates.certificate, certificates.key)
    store = OxiaStore(settings(server, tls), runtime)
    await store.open()
    [outcome] = await store.write(0, [Put("/a", b"")])
    assert outcome.applied
    await store.close()


async def test_a_name_that_is_not_the_address(
    server: FakeServer, certificates: Certificates, runtime: SystemRuntime
) -> None:
    tls = over_tls(certificates.authority, certificates.certificate, certificates.key, "localhost")
    store = OxiaStore(settings(server, tls), runtime)
    await store.open()
    await store.close()


@pytest.mark.parametrize("kind", ["plain", "without a certificate", "another authority", "another name"])
async def test_without_the_right_ones_nobody_answers(
    server: FakeServer, certificates: Certificates, runtime: SystemRuntime, tmp_path: Path, kind: str
) -> None:
    ours = (certificates.certificate, certificates.key)
    tls = {
        "plain": dict[str, Any],
        "without a certificate": lambda: over_tls(certificates.authority),
        "another authority": lambda: over_tls(make_certificates(tmp_path).authority, *ours),
        "another name": lambda: over_tls(certificates.authority, *ours, "elsewhere.example"),
    }[kind]()
    with pytest.raises(UnusableOxia, match="no Oxia server answers"):
        await OxiaStore(settings(server, tls), runtime).open()


async def test_a_file_that_is_not_there_is_named(server: FakeServer, runtime: SystemRuntime) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.pem"):
        await OxiaStore(settings(server, over_tls(Path("nowhere.pem"))), runtime).open()
