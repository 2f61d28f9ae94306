"""Where a console may listen, and what its login is made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dray.base.config.kinds import Address
from dray.base.runtime import SystemRuntime
from dray.daemons.assembly.failures import Failure
from dray.daemons.config import Settings
from dray.daemons.config.console import ConsoleSection
from dray.daemons.console.address import scheme_of, why_not_there
from dray.daemons.console.parts import make_entrance
from dray.kafka.client.properties import ClientSecurity, TlsSettings

OIDC = {"auth": "oidc", "oidc_issuer": "https://login.example", "oidc_client_id": "c"}
FILES = {"certificate_file": "c.pem", "key_file": "k.pem"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, None),
        ({"listen": Address("localhost", 0)}, None),
        ({"listen": Address("0.0.0.0", 1)}, "must be a loopback address"),
        ({"listen": Address("0.0.0.0", 1), **FILES}, "must be a loopback address"),
        ({"listen": Address("0.0.0.0", 1), "behind_proxy": True}, "must be a loopback address"),
        ({"listen": Address("0.0.0.0", 1), "auth": "sasl"}, "in clear"),
        ({"listen": Address("0.0.0.0", 1), "auth": "sasl", **FILES}, None),
        ({"listen": Address("0.0.0.0", 1), "auth": "sasl", "behind_proxy": True}, None),
        ({"auth": "sasl"}, None),
        ({"certificate_file": "c.pem"}, "give both"),
        ({"listen": Address("0.0.0.0", 1), **OIDC}, "in clear"),
        ({"listen": Address("0.0.0.0", 1), **OIDC, **FILES}, None),
        (OIDC, None),
        (OIDC | {"oidc_issuer": "http://127.0.0.1:8080/realm"}, None),
        (OIDC | {"oidc_issuer": "http://login.example"}, "https"),
        (OIDC | {"oidc_issuer": "https://user:hush@login.example"}, "no user"),
        (OIDC | {"oidc_issuer": "https://login.example?a=b"}, "no query"),
        (OIDC | {"oidc_scopes": "profile"}, "openid must be one"),
        ({"auth": "oidc", "oidc_client_id": "c"}, "needs console.oidc_issuer"),
        ({"auth": "oidc", "oidc_issuer": "https://login.example"}, "needs console.oidc_issuer"),
        (OIDC | {"auth": "sasl"}, "console.oidc_issuer: has no effect"),
        ({"oidc_client_secret_file": "s"}, "console.oidc_client_secret_file: has no effect"),
    ],
)
def test_others_reach_it_only_with_a_login_and_over_tls(given: dict[str, Any], reason: str | None) -> None:
    found = why_not_there(ConsoleSection(**given))
    assert (found is None) == (reason is None)
    assert reason is None or reason in (found or "")
    assert "\n" not in (found or "")
    assert "hush" not in (found or "")


def test_what_browsers_speak() -> None:
    assert scheme_of(ConsoleSection()) == "http"
    assert scheme_of(ConsoleSection(behind_proxy=True)) == "https"
    assert scheme_of(ConsoleSection(**FILES)) == "https"  # type: ignore[arg-type]


def entrance(
    given: dict[str, Any],
    bootstrap: Sequence[tuple[str, int]] = (("127.0.0.1", 9092),),
    security: ClientSecurity | None = None,
) -> None:
    settings = Settings(console=ConsoleSection(**given))
    make_entrance(settings, bootstrap, security or ClientSecurity(), SystemRuntime())


@pytest.mark.parametrize(
    ("given", "reason"),
    [(OIDC, "tokens would go"), ({"auth": "sasl", "mechanism": "PLAIN"}, "passwords would go")],
)
def test_nothing_secret_goes_to_brokers_elsewhere_in_clear(given: dict[str, Any], reason: str) -> None:
    elsewhere = [("127.0.0.1", 9092), ("broker.example", 9092)]
    with pytest.raises(Failure, match=reason):
        entrance(given, elsewhere)
    entrance(given, elsewhere, ClientSecurity(tls=TlsSettings()))
    entrance(given)


def test_a_login_at_a_provider_is_made_of_its_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    with pytest.raises(Failure, match=r"console\.oidc_client_secret_file = .*: No such file"):
        entrance(OIDC | {"oidc_client_secret_file": str(secret)})
    for held in (b"", b" \n", b"x" * 5000, b"\xff\xfe"):
        secret.write_bytes(held)
        with pytest.raises(Failure, match=r"console\.oidc_client_secret_file = .*: holds no"):
            entrance(OIDC | {"oidc_client_secret_file": str(secret)})
    secret.write_text("hush\n")
    entrance(OIDC | {"oidc_client_secret_file": str(secret)})
    for authorities in (tmp_path / "none", secret):
        with pytest.raises(Failure, match=r"console\.oidc_ca_file = "):
            entrance(OIDC | {"oidc_ca_file": str(authorities)})
