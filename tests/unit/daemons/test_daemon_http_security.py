"""The token and the certificate of health and metrics, from the config to the servers and the console."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import structlog
from tests.services.certificates import make_certificates

from dray.base.config.kinds import Address
from dray.base.runtime import SystemRuntime
from dray.broker.server.http.requests import HttpRequest
from dray.broker.server.tls.listener import CertificateUnusable
from dray.daemons.assembly.http_security import HttpSecurity, HttpTokenFile, TokensUnusable
from dray.daemons.assembly.watched_files import REFRESH_SECONDS, refresh_files
from dray.daemons.config import ConfigError, Settings, load
from dray.daemons.console.process import scrape_access

SECRET, OTHER = "s3cret-of-the-scraper", "another-t0ken"
ADDRESS = Address("127.0.0.1", 0)


def settings(**http: Path | str) -> Settings:
    return load(
        environment={f"DRAY_HTTP__{name.upper()}": str(value) for name, value in http.items()}
    ).settings


def asked(token: str) -> HttpRequest:
    return HttpRequest("GET", "/metrics", "", False, f"Bearer {token}".encode())


def test_by_default_all_may_read_over_plain_http() -> None:
    given = HttpSecurity(settings(), SystemRuntime()).settings_at(ADDRESS)
    assert (given.encryption, given.tokens) == (None, None)
    access, files = scrape_access(settings())
    assert (access.tls, access.token, files) == (None, None, {})


def test_the_files_of_the_config_arrive(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    token = tmp_path / "token"
    token.write_text(f"{SECRET}\n{OTHER}\n")
    config = settings(
        token_file=token, certificate_file=made.certificate, key_file=made.key, ca_file=made.authority
    )
    given = HttpSecurity(config, SystemRuntime()).settings_at(ADDRESS)
    assert given.encryption is not None
    assert given.tokens is not None
    assert given.tokens.knows(asked(SECRET))
    assert given.tokens.knows(asked(OTHER))
    assert not given.tokens.knows(asked(SECRET[:-1]))
    access, files = scrape_access(config)
    assert access.tls is not None
    assert access.token is not None
    assert access.token() == SECRET
    assert list(files) == ["http.token_file"]


async def test_a_new_token_is_taken_and_a_broken_file_leaves_the_old_one(tmp_path: Path) -> None:
    class Impatient(SystemRuntime):
        rounds = 0

        async def sleep(self, seconds: float) -> None:
            assert seconds == REFRESH_SECONDS
            self.rounds += 1
            if self.rounds > 1:
                raise asyncio.CancelledError

    path = tmp_path / "token"
    path.write_text(SECRET)
    file = HttpTokenFile(path)
    assert not file.refresh()

    async def look() -> None:
        with pytest.raises(asyncio.CancelledError):
            await refresh_files({"http.token_file": file}, Impatient())

    path.write_text(f"{OTHER}\n{SECRET}\n")
    await look()
    assert file.current == (OTHER.encode(), SECRET.encode())
    path.write_text(f"{SECRET} is broken now")
    with structlog.testing.capture_logs() as lines:
        await look()
    assert file.current == (OTHER.encode(), SECRET.encode())
    assert [line["log_level"] for line in lines] == ["error"]
    assert SECRET not in str(lines)
    path.unlink()
    await look()
    assert file.current == (OTHER.encode(), SECRET.encode())


def test_files_that_cannot_be_used_are_one_line_with_their_setting(tmp_path: Path) -> None:
    absent, empty = tmp_path / "absent", tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(TokensUnusable, match=r"http.token_file: cannot read .*absent"):
        HttpSecurity(settings(token_file=absent), SystemRuntime())
    with pytest.raises(TokensUnusable, match=r"http.token_file: .*it holds no token"):
        scrape_access(settings(token_file=empty))
    with pytest.raises(CertificateUnusable, match=r"http.certificate_file: cannot read .*absent"):
        HttpSecurity(settings(certificate_file=absent, key_file=absent), SystemRuntime())
    with pytest.raises(CertificateUnusable, match=r"http.ca_file: .*empty cannot be used"):
        scrape_access(settings(ca_file=empty))
    for given, missing in (("certificate_file", "key_file"), ("key_file", "certificate_file")):
        with pytest.raises(ConfigError, match=f"http.{missing}"):
            settings(**{given: absent})


def test_certificates_of_clients(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    pair = {"certificate_file": made.certificate, "key_file": made.key}
    assert not HttpSecurity(settings(**pair), SystemRuntime()).settings_at(ADDRESS).client_certificates
    config = settings(**pair, client_ca_file=made.authority, ca_file=made.authority)
    security = HttpSecurity(config, SystemRuntime())
    given = security.settings_at(ADDRESS)
    assert given.client_certificates
    assert given.encryption is not None
    assert security.certificate is not None
    assert security.certificate.context.verify_mode is ssl.CERT_OPTIONAL, "probes have none"
    access, _ = scrape_access(config)
    assert access.tls is not None
    with pytest.raises(ConfigError, match=r"http.client_ca_file"):
        settings(client_ca_file=made.authority)
    with pytest.raises(CertificateUnusable, match=r"http.certificate_file: .*absent"):
        HttpSecurity(settings(**pair, client_ca_file=tmp_path / "absent"), SystemRuntime())
    unusable = settings(
        certificate_file=tmp_path / "absent",
        key_file=made.key,
        client_ca_file=made.authority,
        ca_file=made.authority,
    )
    with pytest.raises(CertificateUnusable, match=r"http.certificate_file: .*absent cannot be used"):
        scrape_access(unusable)


def test_open_metrics_beyond_this_machine_are_one_line_where_acls_hide_names(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    token = tmp_path / "token"
    token.write_text(SECRET)
    beyond = Address("0.0.0.0", 0)
    acls = {"DRAY_SECURITY__AUTHORIZATION": "acls", "DRAY_SECURITY__SUPER_USERS": "User:admin"}
    pair = {"DRAY_HTTP__CERTIFICATE_FILE": str(made.certificate), "DRAY_HTTP__KEY_FILE": str(made.key)}

    def warned(address: Address, **environment: str) -> int:
        config = load(environment=environment).settings
        with structlog.testing.capture_logs() as lines:
            HttpSecurity(config, SystemRuntime()).settings_at(address)
        assert all("http.token_file" in line["event"] for line in lines)
        return len(lines)

    assert warned(beyond, **acls) == 1
    assert warned(beyond, **acls, **pair) == 1, "encryption hides nothing from those who ask"
    assert warned(ADDRESS, **acls) == 0
    assert warned(beyond) == 0
    assert warned(beyond, **acls, DRAY_HTTP__TOKEN_FILE=str(token)) == 0
    assert warned(beyond, **acls, **pair, DRAY_HTTP__CLIENT_CA_FILE=str(made.authority)) == 0
