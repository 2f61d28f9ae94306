"""The address of a console: others reach it only with a login, and over TLS. And what that login needs."""

from __future__ import annotations

from dray.base.https import parse_address
from dray.daemons.config.console import ConsoleSection


def why_not_there(console: ConsoleSection) -> str | None:
    """The reason against the console's address, in one line that says what to do."""
    if (console.certificate_file is None) != (console.key_file is None):
        return "console.certificate_file, console.key_file: give both of them, or none"
    lacking = _why_no_login(console)
    if lacking is not None or console.listen.is_loopback:
        return lacking
    where = f"console.listen = {console.listen}"
    if console.auth == "none":
        return (
            f"{where}: without a login (console.auth: sasl or oidc) it must be a loopback address; "
            "forward the port to reach it from elsewhere (ssh -L)"
        )
    if console.certificate_file is None and not console.behind_proxy:
        return (
            f"{where}: passwords and cookies would go in clear; give console.certificate_file and "
            "console.key_file, or console.behind_proxy where a proxy has the certificate"
        )
    return None


def _why_no_login(console: ConsoleSection) -> str | None:
    given = {
        "oidc_issuer": console.oidc_issuer,
        "oidc_client_id": console.oidc_client_id,
        "oidc_client_secret_file": console.oidc_client_secret_file,
        "oidc_ca_file": console.oidc_ca_file,
    }
    if console.auth != "oidc":
        unused = [name for name, value in given.items() if value is not None]
        return f"console.{unused[0]}: has no effect unless console.auth is oidc" if unused else None
    if console.oidc_issuer is None or console.oidc_client_id is None:
        return "console.auth = oidc: needs console.oidc_issuer and console.oidc_client_id"
    try:
        parse_address(console.oidc_issuer, plain_here=True)
    except ValueError as error:
        return f"console.oidc_issuer: {error}; http only on a loopback address"
    if "?" in console.oidc_issuer:
        return "console.oidc_issuer: it must have no query"
    if "openid" not in console.oidc_scopes.split():
        return f"console.oidc_scopes = {console.oidc_scopes}: openid must be one of them"
    return None


def scheme_of(console: ConsoleSection) -> str:
    """The scheme that browsers use with it."""
    return "https" if console.certificate_file is not None or console.behind_proxy else "http"
