"""Where a console may listen: others reach it only with a login, and over TLS."""

from __future__ import annotations

from dray.config.console import ConsoleSection


def why_not_there(console: ConsoleSection) -> str | None:
    """What is against the console's address, in one line that says what to do."""
    if (console.certificate_file is None) != (console.key_file is None):
        return "console.certificate_file, console.key_file: give both of them, or none"
    if console.listen.is_loopback:
        return None
    where = f"console.listen = {console.listen}"
    if console.auth == "none":
        return (
            f"{where}: without a login (console.auth: sasl) it must be a loopback address; forward the port "
            "to reach it from elsewhere (ssh -L)"
        )
    if console.certificate_file is None and not console.behind_proxy:
        return (
            f"{where}: passwords would go in clear; give console.certificate_file and console.key_file, or "
            "console.behind_proxy where a proxy has the certificate"
        )
    return None


def scheme_of(console: ConsoleSection) -> str:
    """What browsers speak to it."""
    return "https" if console.certificate_file is not None or console.behind_proxy else "http"
