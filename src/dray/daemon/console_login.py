"""How people log in to a console: the gate that its settings ask for, and connections to brokers as who they
are."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dray.client import AuthenticationFailed
from dray.client.properties import ClientSecurity
from dray.client.tokens import HeldToken, TokenCredential
from dray.config import Settings
from dray.config.kinds import Address
from dray.console.login import GateParts, LoginGate, PasswordGate
from dray.console.oidc_login import OidcGate
from dray.daemon.failures import USAGE, Failure
from dray.inspection.brokers import CLIENT_ID, LARGEST_FRAME, Brokers, BrokerUnreachable
from dray.runtime import Runtime
from dray.security.oidc import OidcClient, OpenIdProvider, ask_provider
from dray.security.sasl.client import PLAIN, ClientCredential

_LONGEST_SECRET: Final = 4096


def make_entrance(
    settings: Settings,
    bootstrap: Sequence[tuple[str, int]],
    security: ClientSecurity,
    runtime: Runtime,
    at_work: Callable[[], None],
    is_crowded: Callable[[], bool] = lambda: False,
) -> Callable[[GateParts], LoginGate]:
    """Connections are as `security` says, but for who connects. Raises `Failure`."""
    console = settings.console

    async def connected(credential: ClientCredential | TokenCredential) -> Brokers:
        theirs = replace(security, credential=credential)
        dial = theirs.dialer(CLIENT_ID, runtime, LARGEST_FRAME)
        brokers = Brokers(bootstrap, runtime, dial=dial, at_work=at_work, is_crowded=is_crowded)
        try:
            await brokers.first()
        except BrokerUnreachable as error:
            await brokers.close()
            if isinstance(error.__cause__, AuthenticationFailed):
                raise error.__cause__ from None
            raise
        return brokers

    async def by_password(user: str, password: str) -> Brokers:
        return await connected(ClientCredential(console.mechanism, user, password))

    async def by_token(held: HeldToken) -> Brokers:
        return await connected(TokenCredential(held))

    in_clear = security.tls is None and not all(Address(*each).is_loopback for each in bootstrap)
    if console.auth == "oidc":
        if in_clear:
            raise Failure(
                "console.auth = oidc: tokens would go to the brokers in clear; use a --command-config with "
                "SASL_SSL or SSL",
                USAGE,
            )
        provider = _provider(settings, runtime)
        return lambda parts: OidcGate(provider, by_token, parts)
    if console.mechanism == PLAIN and in_clear:
        raise Failure(
            "console.mechanism = PLAIN: passwords would go to the brokers in clear; use a SCRAM mechanism, "
            "or a --command-config with SASL_SSL",
            USAGE,
        )
    return lambda parts: PasswordGate(by_password, parts)


def _provider(settings: Settings, runtime: Runtime) -> OpenIdProvider:
    console = settings.console
    assert console.oidc_issuer is not None
    assert console.oidc_client_id is not None
    client = OidcClient(
        console.oidc_issuer,
        console.oidc_client_id,
        _secret(console.oidc_client_secret_file),
        console.oidc_scopes,
        settings.oauth.subject_claim,
    )
    try:
        context = ssl.create_default_context(cafile=console.oidc_ca_file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it holds no certificates in PEM"
        raise Failure(f"console.oidc_ca_file = {console.oidc_ca_file}: {reason}", USAGE) from error
    return OpenIdProvider(client, ask_provider(context), runtime)


def _secret(file: str | None) -> str | None:
    if file is None:
        return None
    where = f"console.oidc_client_secret_file = {file}"
    try:
        with Path(file).open("rb") as opened:
            text = opened.read(_LONGEST_SECRET + 1).decode().strip()
    except OSError as error:
        raise Failure(f"{where}: {error.strerror or error}", USAGE) from error
    except UnicodeDecodeError:
        raise Failure(f"{where}: holds no text", USAGE) from None
    if not 0 < len(text) <= _LONGEST_SECRET:
        raise Failure(f"{where}: holds no secret, or more than {_LONGEST_SECRET} letters", USAGE)
    return text
