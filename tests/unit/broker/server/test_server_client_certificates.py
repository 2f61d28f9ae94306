"""What a listener asks of its clients' certificates, and which of its own it shows them."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.services.authorities import DAY, Authority, Identity, common_name
from tests.unit.broker.server.harness import Client, encrypting, frame, serving, until

from dray.broker.server import Connection, Listener
from dray.broker.server.tls.handshakes import PeerRefused
from dray.broker.server.tls.listener import CertificatePair, CertificateUnusable, ServerCertificate

LOOPBACK = ("127.0.0.1", "localhost")


class Place:
    """Authorities and certificates: one for the server, a trusted one for clients, and a foreign one."""

    def __init__(self, directory: Path) -> None:
        self.servers = Authority(directory / "servers", "CN=servers")
        self.clients = Authority(directory / "clients", "CN=clients")
        self.foreign = Authority(directory / "foreign", "CN=clients")
        self.server = self.servers.issue("CN=server", LOOPBACK)
        self.good = self.clients.issue("CN=app,O=Dray")

    def certificate(self, client_auth: str, authorities: Path | None = None) -> ServerCertificate:
        return ServerCertificate(
            self.server.certificate,
            self.server.key,
            client_auth=client_auth,
            client_authorities=authorities or self.clients.file,
        )

    def trust(
        self, identity: Identity | None = None, version: ssl.TLSVersion | None = None
    ) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.servers.file))
        if identity is not None:
            context.load_cert_chain(identity.both)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


def name_of(certificate: bytes | None, peer: str) -> str | None:
    assert peer.startswith("127.0.0.1:")
    if certificate is None:
        return None
    name = common_name(certificate)
    if name == "stranger":
        raise PeerRefused("stranger", "no rule for stranger")
    return name


async def who(_request: memoryview, connection: Connection) -> tuple[bytes]:
    return (repr(connection.principal).encode(),)


def listening(certificate: ServerCertificate, **more: Any) -> tuple[Listener, ...]:
    return (encrypting(certificate, identify=name_of, **more),)


async def answer_of(address: tuple[str, int], context: ssl.SSLContext, **options: Any) -> bytes | None:
    """None: no answer, however it was refused."""
    client = None
    try:
        client = await Client.to(address, ssl=context, **options)
        return await client.ask(b"who")
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return None
    finally:
        if client is not None:
            client.writer.transport.abort()


VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_certificate_says_who_a_client_is(
    run: Callable[..., Any], place: Place, version: ssl.TLSVersion
) -> None:
    async def scenario() -> None:
        async with serving(who, listeners=listening(place.certificate("required"))) as server:
            assert await answer_of(server.address, place.trust(place.good, version)) == b"'app'"

    run(scenario())


def bad_certificates(place: Place) -> dict[str, tuple[Identity | None, str]]:
    return {
        "none": (None, "the client has no certificate, and this listener asks for one"),
        "expired": (
            place.clients.issue("CN=app", begins=-3 * DAY, ends=-DAY),
            "the client's certificate is not good: certificate has expired",
        ),
        "to come": (
            place.clients.issue("CN=app", begins=DAY, ends=2 * DAY),
            "the client's certificate is not good: certificate is not yet valid",
        ),
        "foreign": (place.foreign.issue("CN=app"), "the client's certificate is not good: "),
        "of no user": (place.clients.issue("CN=stranger"), "no rule for stranger"),
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["none", "expired", "to come", "foreign", "of no user"])
async def test_a_certificate_that_is_not_good_is_one_line(
    place: Place, kind: str, version: ssl.TLSVersion
) -> None:
    identity, reason = bad_certificates(place)[kind]
    with structlog.testing.capture_logs() as lines:
        async with serving(who, listeners=listening(place.certificate("required"))) as server:
            assert await answer_of(server.address, place.trust(identity, version)) is None
            assert server.metrics.connections_closed.labels("TLS handshake").value == 1
    [line] = [line for line in lines if line["log_level"] != "info"]
    assert line["event"] == "closing a connection"
    assert line["reason"].startswith(f"TLS: {reason}")
    assert line["peer"].startswith("127.0.0.1:")


@pytest.mark.parametrize("version", VERSIONS)
async def test_where_a_certificate_is_only_requested_a_client_may_have_none(
    place: Place, version: ssl.TLSVersion
) -> None:
    async with serving(who, listeners=listening(place.certificate("requested"))) as server:
        assert await answer_of(server.address, place.trust(None, version)) == b"None"
        assert await answer_of(server.address, place.trust(place.good, version)) == b"'app'"
        assert await answer_of(server.address, place.trust(place.foreign.issue("CN=x"), version)) is None


async def test_what_was_revoked_is_refused_once_the_list_is_there(place: Place, tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    shutil.copy(place.clients.file, trusted)
    certificate = place.certificate("required", trusted)
    revoked = place.clients.issue("CN=revoked")
    async with serving(who, listeners=listening(certificate)) as server:
        assert await answer_of(server.address, place.trust(revoked)) == b"'revoked'"
        trusted.write_bytes(place.clients.file.read_bytes() + place.clients.revocations(revoked.serial))
        assert certificate.refresh()
        assert await answer_of(server.address, place.trust(revoked)) is None
        assert await answer_of(server.address, place.trust(place.good)) == b"'app'"
        trusted.write_bytes(place.clients.file.read_bytes())
        assert certificate.refresh()
        assert await answer_of(server.address, place.trust(revoked)) == b"'revoked'"


async def test_what_an_authority_that_was_revoked_has_issued_is_refused(place: Place, tmp_path: Path) -> None:
    """The root has revoked an authority below it; that one's own list is empty."""
    root = Authority(tmp_path / "root", "CN=root")
    good, revoked = (Authority(tmp_path / name, f"CN={name}", above=root) for name in ("good", "revoked"))
    trusted = tmp_path / "trusted.pem"
    authorities = b"".join(each.file.read_bytes() for each in (root, good, revoked))
    lists = good.revocations() + revoked.revocations()
    trusted.write_bytes(authorities + root.revocations(revoked.serial) + lists)
    async with serving(who, listeners=listening(place.certificate("required", trusted))) as server:
        assert await answer_of(server.address, place.trust(good.issue("CN=app"))) == b"'app'"
        with structlog.testing.capture_logs() as lines:
            assert await answer_of(server.address, place.trust(revoked.issue("CN=app"))) is None
    assert lines[0]["reason"] == "TLS: the client's certificate is not good: certificate revoked"


async def test_an_authority_without_a_list_is_named(place: Place, tmp_path: Path) -> None:
    """Every client below it would be refused: in the file at the start, else in the line of its client."""
    root = Authority(tmp_path / "root", "CN=root")
    below = Authority(tmp_path / "below", "CN=below", above=root)
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(root.file.read_bytes() + below.file.read_bytes() + below.revocations())
    with pytest.raises(
        CertificateUnusable, match=r"^[^\n]+trusted.pem [^\n]+ none of 'CN=root': add one[^\n]+$"
    ):
        place.certificate("required", trusted)
    trusted.write_bytes(root.file.read_bytes() + root.revocations())
    client = below.issue("CN=app")
    client.both.write_bytes(client.both.read_bytes() + below.file.read_bytes())
    async with serving(who, listeners=listening(place.certificate("required", trusted))) as server:
        with structlog.testing.capture_logs() as lines:
            assert await answer_of(server.address, place.trust(client)) is None
    assert lines[0]["reason"].endswith(
        "an authority of its chain has no list of revoked certificates in client_ca_file"
    )


async def test_whom_a_listener_trusts_is_re_read(place: Place, tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    shutil.copy(place.clients.file, trusted)
    certificate = place.certificate("required", trusted)
    foreign = place.foreign.issue("CN=other")
    async with serving(who, listeners=listening(certificate)) as server:
        old = await Client.to(server.address, ssl=place.trust(place.good))
        assert await old.ask(b"who") == b"'app'"
        shutil.copy(place.foreign.file, trusted)
        assert certificate.refresh()
        assert await answer_of(server.address, place.trust(foreign)) == b"'other'"
        assert await answer_of(server.address, place.trust(place.good)) is None
        trusted.write_text("no certificate")
        with pytest.raises(CertificateUnusable, match=r"^[^\n]+trusted.pem cannot be used: [^\n]+$"):
            certificate.refresh()
        assert await answer_of(server.address, place.trust(foreign)) == b"'other'"
        assert await old.ask(b"who") == b"'app'", "connections keep what they were made with"
        await old.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_session_is_resumed_where_certificates_are_asked_for(
    place: Place, version: ssl.TLSVersion
) -> None:
    """One that is resumed is not verified again, and would outlive the trust."""
    context = place.trust(place.good, version)

    def connect(address: tuple[str, int], session: ssl.SSLSession | None) -> tuple[ssl.SSLSession, bool]:
        with (
            socket.create_connection(address, 60) as raw,
            context.wrap_socket(raw, server_hostname="localhost", session=session) as client,
        ):
            client.sendall(frame(b"who"))
            client.recv(100)  # behind tickets, if there are any
            found, resumed = client.session, bool(client.session_reused)
            assert found is not None
            client.unwrap()  # one that ends otherwise is not resumed anyway
            return found, resumed

    async with serving(who, listeners=listening(place.certificate("required"))) as server:
        session, _ = await asyncio.to_thread(connect, server.address, None)
        _, resumed = await asyncio.to_thread(connect, server.address, session)
    assert not resumed


async def shown(address: tuple[str, int], context: ssl.SSLContext, name: str | None) -> str:
    client = await Client.to(address, ssl=context, server_hostname=name)
    found = common_name(client.writer.get_extra_info("ssl_object").getpeercert(True))
    await client.close()
    return found


async def test_the_certificate_is_chosen_by_the_name_that_a_client_asks_for(place: Place) -> None:
    pairs = [
        place.servers.issue("CN=one", ("one.example", "a.shared.example")),
        place.servers.issue("CN=all", ("*.shared.example",)),
    ]
    certificate = ServerCertificate(
        place.server.certificate,
        place.server.key,
        further=tuple(CertificatePair(pair.certificate, pair.key) for pair in pairs),
        client_auth="requested",
        client_authorities=place.clients.file,
    )
    expected = {
        "localhost": "server",
        "one.example": "one",
        "ONE.example": "one",
        "a.shared.example": "one",
        "b.shared.example": "all",
        "b.c.shared.example": "server",
        "else.example": "server",
    }
    async with serving(who, listeners=listening(certificate)) as server:
        context = place.trust(place.good)
        context.check_hostname = False
        for name, common in expected.items():
            assert await shown(server.address, context, name) == common, name
        assert await answer_of(server.address, context, server_hostname="one.example") == b"'app'"
        stranger = place.trust(place.foreign.issue("CN=x"))
        stranger.check_hostname = False
        assert await answer_of(server.address, stranger, server_hostname="one.example") is None


async def test_a_further_certificate_needs_names(place: Place) -> None:
    nameless = place.servers.issue("CN=nameless")
    with pytest.raises(CertificateUnusable, match="has no names to choose it by"):
        ServerCertificate(
            place.server.certificate,
            place.server.key,
            further=(CertificatePair(nameless.certificate, nameless.key),),
        )


async def test_a_listener_has_a_limit_of_its_own(place: Place) -> None:
    certificate = place.certificate("required")
    listeners = (
        *listening(certificate, max_connections=2),
        Listener("PLAINTEXT", "127.0.0.1", 0, max_connections=1),
    )
    with structlog.testing.capture_logs() as lines:
        async with serving(who, listeners=listeners) as server:
            held = [await Client.to(server.addresses["SSL"], ssl=place.trust(place.good)) for _ in range(2)]
            for client in held:
                assert await client.ask(b"who") == b"'app'"
            assert await answer_of(server.addresses["SSL"], place.trust(place.good)) is None
            plain = await Client.to(server.addresses["PLAINTEXT"])
            assert await plain.ask(b"who") == b"None"
            other = await Client.to(server.addresses["PLAINTEXT"])
            assert await other.rest() == b""
            assert server.metrics.connections_refused.value == 2
            await held.pop().close()
            await plain.close()
            await until(lambda: server.connections == 1)
            assert await answer_of(server.addresses["SSL"], place.trust(place.good)) == b"'app'"
            again = await Client.to(server.addresses["PLAINTEXT"])
            assert await again.ask(b"who") == b"None"
            for client in (*held, other, again):
                await client.close()
    refused = [line for line in lines if line["event"].startswith("too many")]
    assert {(line["listener"], line["limit"]) for line in refused} == {("SSL", 2), ("PLAINTEXT", 1)}
