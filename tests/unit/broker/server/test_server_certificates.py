"""Certificates that change while clients are at work."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from pathlib import Path

import pytest
from tests.services.certificates import Certificates, make_certificates
from tests.services.marks import longer
from tests.unit.broker.server.harness import Client, encrypting, serving, until

from dray.broker.server.tls.listener import CertificateUnusable, ServerCertificate

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Certificates]:
    return [make_certificates(tmp_path_factory.mktemp(f"pair{number}")) for number in range(2)]


class Files:
    """The two files of a listener, which are rewritten as an operator or a tool would."""

    def __init__(self, directory: Path, pair: Certificates) -> None:
        self.certificate, self.key = directory / "tls.crt", directory / "tls.key"
        self.put(pair)

    def put(self, pair: Certificates) -> None:
        for source, target in ((pair.certificate, self.certificate), (pair.key, self.key)):
            new = target.with_suffix(".new")
            shutil.copy(source, new)
            os.replace(new, target)


def trust(pair: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pair.authority))


async def connects(address: tuple[str, int], pair: Certificates, **options: object) -> bool:
    try:
        client = await Client.to(address, ssl=trust(pair), **options)
    except ssl.SSLError:
        return False
    assert await client.ask(b"x") == b"x"
    await client.close()
    return True


async def test_a_new_pair_is_for_new_connections_and_old_ones_live_on(
    tmp_path: Path, pairs: list[Certificates]
) -> None:
    files = Files(tmp_path, pairs[0])
    certificate = ServerCertificate(files.certificate, files.key)
    listeners = (encrypting(certificate),)
    async with serving(listeners=listeners) as server:
        old = await Client.to(server.address, ssl=trust(pairs[0]))
        assert not certificate.refresh(), "nothing changed"
        for number in range(1, 101):
            files.put(pairs[number % 2])
            assert certificate.refresh()
            assert await old.ask(b"%d" % number) == b"%d" % number
            if number % 20 == 0:
                assert await connects(server.address, pairs[0])
                assert not await connects(server.address, pairs[1])
        files.put(pairs[1])
        certificate.refresh()
        assert await connects(server.address, pairs[1])
        assert await connects(server.address, pairs[1], server_hostname="localhost")
        assert not await connects(server.address, pairs[0])
        await old.close()


async def test_a_broken_pair_leaves_the_old_one(tmp_path: Path, pairs: list[Certificates]) -> None:
    files = Files(tmp_path, pairs[0])
    certificate = ServerCertificate(files.certificate, files.key)
    listeners = (encrypting(certificate),)
    async with serving(listeners=listeners) as server:

        async def is_told_and_stays() -> None:
            for _ in range(2):  # each time, until it is mended
                with pytest.raises(CertificateUnusable, match=r"^[^\n]+$"):
                    certificate.refresh()
            assert await connects(server.address, pairs[0])

        shutil.copy(pairs[1].certificate, files.certificate)  # the key has yet to come
        await is_told_and_stays()
        files.certificate.write_text(files.certificate.read_text()[:100])
        await is_told_and_stays()
        files.key.unlink()
        await is_told_and_stays()
        files.put(pairs[1])
        assert certificate.refresh()
        assert await connects(server.address, pairs[1])


async def test_a_certificate_that_is_over_is_refused_and_the_old_one_stays(
    tmp_path: Path, pairs: list[Certificates]
) -> None:
    files = Files(tmp_path, pairs[0])
    now_ms = 0
    certificate = ServerCertificate(files.certificate, files.key, wall_ms=lambda: now_ms)
    ends_ms = certificate.ends_ms
    assert certificate.fault() is None
    now_ms = ends_ms - 14 * DAY_MS - 1
    assert certificate.fault() is None
    now_ms += 1
    assert "is over in 14 days, on " in (certificate.fault() or "")
    async with serving(listeners=(encrypting(certificate),)) as server:
        files.put(pairs[1])
        now_ms = max(ends_ms, certificate_end(files)) + 1
        with pytest.raises(CertificateUnusable, match=r"^the certificate [^\n]* is over since 20\d\d-"):
            certificate.refresh()
        assert await connects(server.address, pairs[0])
        assert "clients refuse it" in (certificate.fault() or "")
        now_ms = 0
        assert certificate.refresh()
        assert await connects(server.address, pairs[1])


def test_one_that_is_over_at_a_start_is_taken(tmp_path: Path, pairs: list[Certificates]) -> None:
    files = Files(tmp_path, pairs[0])
    certificate = ServerCertificate(files.certificate, files.key, wall_ms=lambda: 2**45)
    assert "clients refuse it" in (certificate.fault() or "")


def certificate_end(files: Files) -> int:
    return ServerCertificate(files.certificate, files.key).ends_ms


def test_what_cannot_be_used_is_refused_at_once(tmp_path: Path, pairs: list[Certificates]) -> None:
    with pytest.raises(CertificateUnusable, match="No such file"):
        ServerCertificate(tmp_path / "none", pairs[0].key)
    with pytest.raises(CertificateUnusable, match=r"^[^\n]+$"):
        ServerCertificate(pairs[0].certificate, pairs[1].key)
    with pytest.raises(CertificateUnusable, match=r"^[^\n]+$"):
        ServerCertificate(pairs[0].key, pairs[0].certificate)


async def test_older_versions_of_tls_are_refused(tmp_path: Path, pairs: list[Certificates]) -> None:
    certificate = ServerCertificate(pairs[0].certificate, pairs[0].key)
    listeners = (encrypting(certificate),)
    async with serving(listeners=listeners) as server:
        for version, welcome in (
            (ssl.TLSVersion.TLSv1_1, False),
            (ssl.TLSVersion.TLSv1_2, True),
            (ssl.TLSVersion.TLSv1_3, True),
        ):
            context = trust(pairs[0])
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = version
            try:
                client = await asyncio.wait_for(Client.to(server.address, ssl=context), 60)
            except (ssl.SSLError, ConnectionError):
                assert not welcome
                continue
            assert welcome
            assert await client.ask(b"x") == b"x"
            await client.close()


@pytest.mark.parametrize("swaps", [5, longer(100)])
async def test_swaps_under_load_lose_no_connection(
    tmp_path: Path, pairs: list[Certificates], swaps: int
) -> None:
    """Four connections that ask all the time, and two clients that connect anew all the time."""
    both = tmp_path / "both.pem"
    both.write_text("".join(pair.authority.read_text() for pair in pairs))
    trusting = ssl.create_default_context(cafile=str(both))
    files = Files(tmp_path, pairs[0])
    certificate = ServerCertificate(files.certificate, files.key)
    listeners = (encrypting(certificate),)
    stopped, asked, connected = asyncio.Event(), [0], [0]

    async def keeps_asking(address: tuple[str, int]) -> None:
        client = await Client.to(address, ssl=trusting)
        while not stopped.is_set():
            assert await client.ask(b"x" * 50_000) == b"x" * 50_000
            asked[0] += 1
        await client.close()

    async def keeps_connecting(address: tuple[str, int]) -> None:
        while not stopped.is_set():
            client = await Client.to(address, ssl=trusting)
            assert await client.ask(b"x") == b"x"
            await client.close()
            connected[0] += 1

    async with serving(listeners=listeners) as server, asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(keeps_asking(server.address))
        for _ in range(2):
            group.create_task(keeps_connecting(server.address))
        for number in range(1, swaps + 1):
            files.put(pairs[number % 2])
            assert await asyncio.to_thread(certificate.refresh)
            asked[0] = connected[0] = 0
            await until(lambda: asked[0] > 8 and connected[0] > 2)
        stopped.set()
