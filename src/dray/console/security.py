"""The checks before every page: which hosts are answered, what may change something, what a page may load.
And the log of what was changed.

Without a login the console listens on loopback alone. A foreign page in the same browser is the attacker that
is left: its requests carry another `Host` (a name that it made point here) or another `Origin`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = structlog.get_logger(__name__)

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
FRAGMENT_POLICY: Final = "dray-page"
"""The one name under which our own script may turn text into markup: pages of ours that it fetched again."""

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        f"trusted-types {FRAGMENT_POLICY}",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


_YEAR_SECONDS: Final = 365 * 24 * 3600

FROM_HERE: Final = frozenset({"same-origin", "none", ""})
"""A page of ours, an address that was typed, or a program: what costs something is done for those alone."""


def came_from(scope: Scope) -> str:
    """In a browser's words: same-origin, same-site, cross-site, or none; empty where it does not say."""
    return Headers(scope=scope).get("sec-fetch-site", "")


def hosts_of(host: str, port: int, named: Sequence[str] = ()) -> frozenset[str]:
    """The names by which a browser on this machine may call a console that listens there, and those that it
    has elsewhere. A name without a port is also that of a proxy."""
    names = {host, "localhost", "127.0.0.1", "::1"}
    bracketed = {f"[{name}]" if ":" in name else name for name in names}
    found = {f"{name}:{port}" for name in bracketed} | (bracketed if port in (80, 443) else set())
    for name in map(str.lower, named):
        found |= {name} if name.rpartition("]")[2].count(":") else {name, f"{name}:{port}"}
    return frozenset(found)


def _is_this_machine(scope: Scope) -> bool:
    """Whether the browser calls it localhost: HSTS holds for all ports of a name."""
    return Headers(scope=scope).get("host", "").lower().partition(":")[0] == "localhost"


class Gate:
    """Refuses what did not come from a page of this console, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], scheme: str = "http") -> None:
        self._app = app
        self._hosts = hosts
        self._scheme = scheme

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither sockets nor anything else is served here
        refused = self._refusal(scope)
        if refused is not None:
            _log.warning("a request was refused", reason=refused, method=scope["method"])
            await PlainTextResponse(f"{refused}\n", 400 if "host" in refused else 403)(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if self._scheme == "https" and not _is_this_machine(scope):
                    headers["Strict-Transport-Security"] = f"max-age={_YEAR_SECONDS}"
            await send(message)

        # Names may hold any character, slashes too: routes see the path as it was sent, and take it apart
        # before anything is unquoted.
        await self._app({**scope, "path": scope["raw_path"].decode("ascii")}, receive, with_headers)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            return "this host is not the console's"
        if scope["method"] in SAFE_METHODS:
            return None
        site = headers.get("sec-fetch-site")
        if site is not None:
            return None if site == "same-origin" else "only pages of this console may change something"
        origin = headers.get("origin", "")
        return (
            None
            if origin == f"{self._scheme}://{host}"
            else "only pages of this console may change something"
        )


# --- a line in the log for everything that was changed here, and what became of it


_audit_log = structlog.get_logger("dray.console.audit")

CONSOLE: Final = "console"
"""The principal where there is no login: the console's own."""


@contextmanager
def note(principal: str, action: str, resource: str, **about: Any) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        _audit_log.warning(
            "console action",
            principal=principal,
            action=action,
            resource=resource,
            outcome=str(error) or repr(error),
            **about,
        )
        raise
    _audit_log.info(
        "console action", principal=principal, action=action, resource=resource, outcome="done", **about
    )
