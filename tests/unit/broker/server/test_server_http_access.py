"""Health and metrics behind a token, and over HTTPS."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.services.authorities import Authority, Identity
from tests.services.certificates import make_certificates
from tests.unit.broker.server.harness import Client, until

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics
from dray.broker.server import Health, HttpAnswer, HttpServer, HttpSettings
from dray.broker.server.http.health import OPEN_PATHS
from dray.broker.server.http.requests import LARGEST_FILE, BearerTokens, HttpRequest, InvalidTokens, tokens_in
from dray.broker.server.tls.listener import ServerCertificate
from dray.inspection.storage.scrape import ScrapeAccess, metrics_of

SECRET, OTHER = "s3cret-of-the-scraper", "another-t0ken"


@asynccontextmanager
async def guarded(
    *tokens: str,
    certificate: ServerCertificate | None = None,
    failing: bool = False,
    certificates: bool = False,
    **bounds: Any,
) -> AsyncIterator[HttpServer]:
    async def check() -> None:
        if failing:
            raise RuntimeError("no answer of 10.1.2.3")

    runtime = SystemRuntime()
    health = Health({"store": check}, Metrics(process=False), runtime)
    known = BearerTokens(lambda: [token.encode() for token in tokens]) if tokens else None
    settings = HttpSettings(
        port=0,
        encryption=None if certificate is None else certificate.encryption,
        tokens=known,
        client_certificates=certificates,
        **bounds,
    )
    server = HttpServer(health.routes(), runtime, settings, OPEN_PATHS)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def get(
    server: HttpServer, path: str, *headers: str, tls: ssl.SSLContext | None = None, host: str = "localhost"
) -> tuple[int, str, str]:
    """Status, head and body."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", ""]
    reader, writer = await asyncio.open_connection(*server.address, ssl=tls)
    writer.write("\r\n".join(lines).encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), head, body


def bearer(token: str) -> str:
    return f"Authorization: Bearer {token}"


async def test_numbers_are_for_those_with_a_token() -> None:
    async with guarded(SECRET, OTHER) as server:
        for path in ("/metrics", "/", "/nowhere"):
            status, head, body = await get(server, path)
            assert (status, "WWW-Authenticate: Bearer" in head) == (401, True)
            assert "dray_" not in body
        for right in (bearer(SECRET), bearer(OTHER), f"authorization: bearer  {SECRET}"):
            status, _, body = await get(server, "/metrics", right)
            assert (status, "dray_requests" in body) == (200, True)
        for wrong in (
            bearer(SECRET[:-1]),
            bearer(f"{SECRET}x"),
            bearer(f"{SECRET} {SECRET}"),
            bearer(""),
            f"Authorization: Basic {SECRET}",
            f"Authorization: {SECRET}",
            f"{bearer(SECRET)}\r\n{bearer(SECRET)}",
        ):
            assert (await get(server, "/metrics", wrong))[0] == 401, wrong
        assert (await get(server, "/nowhere", bearer(SECRET)))[0] == 404


async def test_all_may_see_that_a_process_is_well_and_no_more() -> None:
    async with guarded(SECRET, failing=True) as server:
        status, _, body = await get(server, "/readyz")
        assert (status, json.loads(body)) == (503, {"status": "unavailable"})
        status, _, body = await get(server, "/readyz", bearer(SECRET))
        assert "10.1.2.3" in json.loads(body)["checks"]["store"]["error"]
        status, _, body = await get(server, "/healthz")
        assert (status, json.loads(body)) == (200, {"status": "alive"})


async def test_without_a_token_file_everything_is_as_it_was() -> None:
    async with guarded() as server:
        assert (await get(server, "/metrics"))[0] == 200
        assert "checks" in json.loads((await get(server, "/readyz"))[2])


OWN_NAMES = [
    "localhost",
    "LOCALHOST:9644",
    "127.0.0.1:9644",
    "127.0.0.9",
    "[::1]:9644",
    "[::1]",
    "10.1.2.3:9644",
]
FOREIGN_NAMES = [
    "attacker.example:9644",
    "localhost.attacker.example",
    "127.0.0.1.nip.io",
    "",
    "[attacker",
    "::1",
]


async def test_a_foreign_page_in_a_browser_here_sees_no_numbers() -> None:
    """Its name was made to point to this machine. Elsewhere servers have any name, as in a cluster."""
    async with guarded(failing=True) as server:
        for host in OWN_NAMES:
            assert (await get(server, "/metrics", host=host))[0] == 200, host
        for host in FOREIGN_NAMES:
            status, _, body = await get(server, "/metrics", host=host)
            assert (status, "dray_" in body) == (400, False), host
            status, _, body = await get(server, "/readyz", host=host)
            assert (status, json.loads(body)) == (503, {"status": "unavailable"}), "as to all without a token"
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"dray_" in await reader.read()
        writer.close()
    async with guarded(SECRET) as server:
        assert (await get(server, "/metrics", bearer(SECRET), host="a.proxy"))[0] == 200, (
            "a page has no token"
        )
    async with guarded(host="0.0.0.0") as server:
        address = ("127.0.0.1", server.address[1])
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: dray-0.dray.svc:9644\r\nConnection: close\r\n\r\n")
        assert b"dray_" in await reader.read()
        writer.close()


async def test_the_token_is_in_no_log_line() -> None:
    with capture_logs() as lines:
        async with guarded(SECRET) as server:
            await get(server, "/metrics", bearer(SECRET))
            await get(server, "/metrics", bearer(f"{SECRET}x"))

            async def fails(_request: HttpRequest) -> None:
                raise RuntimeError("on purpose")

            server.routes["/fails"] = fails  # type: ignore[assignment]
            assert (await get(server, "/fails", bearer(SECRET)))[0] == 500
    assert any("http request failed" in line["event"] for line in lines)
    assert SECRET not in str(lines)
    assert SECRET not in repr(HttpRequest("GET", "/", "", True, SECRET.encode()))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n \n",
        b"short\n",
        f"{SECRET} with spaces".encode(),
        f"{SECRET}\x00".encode(),
        b"x" * LARGEST_FILE * 2,
    ],
)
def test_files_that_hold_no_tokens(content: bytes) -> None:
    with pytest.raises(InvalidTokens) as refused:
        tokens_in(content)
    assert SECRET not in str(refused.value)


def test_a_file_holds_tokens_line_by_line() -> None:
    assert tokens_in(f"{SECRET}\n\n{OTHER}\r\n".encode()) == (SECRET.encode(), OTHER.encode())


async def test_the_console_presents_the_token_and_speaks_tls(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    held = ServerCertificate(made.certificate, made.key)
    trusting = ssl.create_default_context(cafile=made.authority)
    async with guarded(SECRET, certificate=held) as server:
        address = f"127.0.0.1:{server.address[1]}"
        found = await metrics_of(address, ScrapeAccess(trusting, lambda: SECRET))
        assert found is not None
        assert "dray_requests" in found
        assert await metrics_of(address, ScrapeAccess(trusting, lambda: OTHER)) is None
        assert await metrics_of(address, ScrapeAccess(trusting)) is None
        assert await metrics_of(address, ScrapeAccess(None, lambda: SECRET)) is None
        assert await metrics_of(address, ScrapeAccess(ssl.create_default_context(), lambda: SECRET)) is None
    async with guarded(SECRET) as server:
        address = f"127.0.0.1:{server.address[1]}"
        assert await metrics_of(address, ScrapeAccess(None, lambda: SECRET)) is not None


@pytest.mark.parametrize("tokens", [(), (SECRET,)])
async def test_a_client_certificate_is_as_good_as_a_token(tmp_path: Path, tokens: tuple[str, ...]) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "CN=Somebody else")
    server_side = ours.issue("CN=broker", ("127.0.0.1",))
    held = ServerCertificate(
        server_side.certificate, server_side.key, client_auth="requested", client_authorities=ours.file
    )

    def client(identity: Identity | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=ours.file)
        if identity is not None:
            context.load_cert_chain(identity.certificate, identity.key)
        return context

    async with guarded(*tokens, certificate=held, certificates=True) as server:
        address = f"127.0.0.1:{server.address[1]}"
        known, nobody = client(ours.issue("CN=scraper")), client(None)
        found = await metrics_of(address, ScrapeAccess(known))
        assert found is not None
        assert "dray_requests" in found
        assert "checks" in (await get(server, "/readyz", tls=known))[2]
        status, head, body = await get(server, "/metrics", tls=nobody)
        assert status == (401 if tokens else 403)
        assert ("WWW-Authenticate" in head) is bool(tokens)
        assert "dray_requests" not in body
        status, _, body = await get(server, "/readyz", tls=nobody)
        assert (status, json.loads(body)) == (200, {"status": "ready"})
        assert (await get(server, "/metrics", bearer(SECRET), tls=nobody))[0] == (200 if tokens else 403)
        for stranger in (theirs.issue("CN=scraper"), ours.issue("CN=old", ends=-timedelta(hours=1))):
            assert await metrics_of(address, ScrapeAccess(client(stranger))) is None


async def test_handshakes_of_https_that_do_not_end_are_bounded_in_time(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    held = ServerCertificate(made.certificate, made.key)
    with capture_logs() as lines:
        async with guarded(certificate=held, handshake_seconds=0.2) as server:
            clients = [await Client.to(server.address) for _ in range(10)]
            for client in clients:
                client.writer.write(b"\x16\x03")
            for client in clients:
                assert await client.rest() == b""
                await client.close()
            assert server.handshakes is not None
            assert len(server.handshakes) == 0
    warnings = [line for line in lines if line["log_level"] != "info"]
    assert [(line["reason"], line["listener"]) for line in warnings] == [
        ("TLS: the handshake takes too long", "HTTPS")
    ]


async def test_handshakes_of_https_are_counted_before_they_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets that say nothing must not take those of the Kafka listeners, nor keep scrapes away."""
    made = make_certificates(tmp_path)
    held = ServerCertificate(made.certificate, made.key)
    trusting = ssl.create_default_context(cafile=made.authority)
    async with guarded(certificate=held, max_connections=3) as server:
        handshakes = server.handshakes
        assert handshakes is not None
        now = 100.0
        monkeypatch.setattr(server.runtime, "monotonic", lambda: now)
        half = [await Client.to(server.address) for _ in range(3)]
        await until(lambda: len(handshakes) == 3)
        assert not server.connections
        refused = await Client.to(server.address)
        assert await refused.rest() == b""
        assert len(handshakes) == 3, "all of them are new"
        now = 102.0
        assert (await get(server, "/metrics", tls=trusting))[0] == 200
        assert await half[0].rest() == b"", "the oldest made room"
        for client in (*half, refused):
            await client.close()


async def test_large_answers_and_clients_that_go_on_asking_over_https(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    trusting = ssl.create_default_context(cafile=made.authority)
    numbers = os.urandom(2_000_000)

    async def large(_request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(200, numbers)

    async with guarded(certificate=ServerCertificate(made.certificate, made.key)) as server:
        server.routes["/large"] = large
        reader, writer = await asyncio.open_connection(*server.address, ssl=trusting)
        for _ in range(3):
            writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
            for _ in range(2):
                await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(len(numbers)) == numbers
        writer.write(b"GET /large HTTP/1.0\r\n\r\n")
        assert (await reader.read()).endswith(numbers)
        writer.close()
        await until(lambda: not server.connections)
