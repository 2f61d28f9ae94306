"""A login with the user's own Kafka identity. The brokers judge it, and all that is asked after it: a session
is the pages over connections of that user, and there are no roles of our own.

The password stays in memory, for the connections of its session. The cookie is a random text that means
nothing elsewhere; what is kept of it is its digest.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from math import ceil
from typing import Final, Literal, Protocol
from urllib.parse import quote

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dray.base.runtime import FairTurns, KeptTask, Places, Runtime, gather_some, keep_running, owner_of
from dray.broker.security.failed_logins import FailedLogins
from dray.console.forms import BadInput, form_of
from dray.console.rendering import Content, Pages
from dray.inspection.brokers import Brokers, BrokerUnreachable
from dray.inspection.groups.lag_history import LagHistory
from dray.kafka.client import AuthenticationFailed, ClientError

_log = structlog.get_logger("dray.console.audit")

MOST_SESSIONS: Final = 100
MOST_OF_A_USER: Final = 5
IDLE_SECONDS: Final = 3600.0
LONGEST_SECONDS: Final = 12 * 3600.0
SWEEP_SECONDS: Final = 20.0
_AT_ONCE: Final = 4
_MOST_WAITING: Final = 20
"""Logins of an address that wait for their turn."""
_LONGEST_NAME: Final = 500

Identify = Callable[[str, str], Awaitable[Brokers]]
"""Connections of a user with that password. Raises `AuthenticationFailed`, or `BrokerUnreachable`."""
MakePages = Callable[[Brokers, str], tuple[ASGIApp, LagHistory]]
"""The pages for a user, over connections of theirs, and the lag that they show."""


class SessionLease(Protocol):
    """How long what a session shows to brokers is good for."""

    @property
    def is_over(self) -> bool: ...

    async def renew(self) -> None:
        """If it is time, and can be done."""


@dataclass
class UserSession:
    user: str
    brokers: Brokers
    pages: ASGIApp
    lags: LagHistory
    begun: float
    used: float
    lease: SessionLease | None = None
    """None where the credential does not expire."""
    ended: bool = False


class Sessions:
    """The sessions of a console, by the digest of their cookie. A user who begins many ends their own."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: dict[str, UserSession] = {}
        self._places: Places[str] = Places(MOST_SESSIONS, MOST_OF_A_USER)
        self._sweeping: KeptTask | None = None

    def start(self) -> None:
        """End sessions when they are over, also while nobody comes."""
        self._sweeping = keep_running(self._runtime, "end sessions that are over", self._sweep)

    async def _sweep(self) -> None:
        while True:
            await self.renew()
            await self.sweep()
            await self._runtime.sleep(SWEEP_SECONDS)

    def __len__(self) -> int:
        return len(self._known)

    async def begin(
        self, user: str, brokers: Brokers, pages: ASGIApp, lags: LagHistory, lease: SessionLease | None = None
    ) -> str:
        """The cookie of a new session. If there are too many, the idlest one of the user who has most
        ends."""
        await self.sweep()
        token = f"{self._runtime.random.getrandbits(256):064x}"
        now = self._runtime.monotonic()
        self._known[digest(token)] = UserSession(user, brokers, pages, lags, now, now, lease)
        lags.start()
        gone = self._places.take(user, digest(token), now)
        if gone is not None:
            await self._end(gone)
        return token

    def find(self, token: str) -> UserSession | None:
        key = digest(token)
        session = self._known.get(key)
        if session is None or self._is_over(session):
            return None
        session.used = self._runtime.monotonic()
        self._places.use(key, session.used)
        return session

    async def end(self, token: str) -> None:
        await self._end(digest(token))

    async def renew(self) -> None:
        """Live views need their connections, though no request comes."""
        leases = [each.lease for each in self._known.values() if each.lease is not None]
        await gather_some(lease.renew() for lease in leases)

    async def sweep(self) -> None:
        for key in [key for key, session in self._known.items() if self._is_over(session)]:
            await self._end(key)

    async def close(self) -> None:
        if self._sweeping is not None:
            await self._sweeping.stop()
            self._sweeping = None
        for key in list(self._known):
            await self._end(key)

    def _is_over(self, session: UserSession) -> bool:
        now = self._runtime.monotonic()
        if session.lease is not None and session.lease.is_over:
            return True
        return now - session.used > IDLE_SECONDS or now - session.begun > LONGEST_SECONDS

    async def _end(self, key: str) -> None:
        session = self._known.pop(key, None)
        self._places.leave(key)
        if session is not None:
            session.ended = True
            await session.lags.stop()
            await session.brokers.close()


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True)
class GateParts:
    """The parts of every login. `secure`: browsers speak TLS. `behind_proxy`: all connections are those of a
    proxy, which says whose they are."""

    make_pages: MakePages
    pages: Pages
    static: BaseRoute
    runtime: Runtime
    secure: bool
    behind_proxy: bool = False


class LoginGate(ABC):
    """Nothing but the login itself, and the files that it needs, is served without a session."""

    def __init__(self, parts: GateParts, addresses: Set[str] = frozenset()) -> None:
        """`addresses`: those of the login beside /login."""
        self.sessions = Sessions(parts.runtime)
        self._make_pages = parts.make_pages
        self._pages = parts.pages
        self._runtime = parts.runtime
        self._secure = parts.secure
        # A browser takes a cookie of that prefix only over TLS, and from no other host.
        self._cookie = "__Host-dray" if parts.secure else "dray-session"
        self._behind_proxy = parts.behind_proxy
        self._failures = FailedLogins(parts.runtime.monotonic)
        self._turns = FairTurns(_AT_ONCE, lambda each: 1 if self._failures.is_failing(each) else _AT_ONCE)
        self._addresses = {"/login", *addresses}
        routes = [*self._routes(), parts.static]
        self._open = Starlette(routes=routes, exception_handlers={BadInput: self._mistaken})

    @abstractmethod
    def _routes(self) -> list[BaseRoute]:
        """Those of the login."""

    @abstractmethod
    def _view(self) -> dict[str, object]:
        """The values that the login's page shows beside the error."""

    _after_logout = "/login"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path in self._addresses or path.startswith("/static/"):
            await self._open(scope, receive, send)
            return
        token = cookie_in(scope, self._cookie)
        session = self.sessions.find(token)
        if session is None:
            await self._refused(path, scope)(scope, receive, send)
            return
        if path == "/logout" and scope["method"] == "POST":
            await self.sessions.end(token)
            _log.info("console action", principal=f"User:{session.user}", action="log out", outcome="done")
            answer = RedirectResponse(self._after_logout, 303)
            self._forget(answer, self._cookie, "strict")
            await answer(scope, receive, send)
            return
        found = session
        if found.lease is not None:
            await found.lease.renew()

        async def while_it_lasts(message: Message) -> None:
            if found.ended:
                raise OSError("the session has ended")  # a live view ends with it
            await send(message)

        await found.pages(scope, receive, while_it_lasts)

    def _refused(self, path: str, scope: Scope) -> Response:
        if path.startswith("/api/"):
            reason = "log in on the page first"
            return JSONResponse({"error": "There is no session", "reason": reason}, 401)
        wanted = path + ("?" + scope["query_string"].decode("latin-1") if scope["query_string"] else "")
        after = "" if wanted == "/" or scope["method"] != "GET" else f"?next={quote(wanted, safe='')}"
        return RedirectResponse(f"/login{after}", 303)

    async def _ask(self, request: Request) -> Response:
        return self._page(request, request.query_params.get("next", ""), None, 200)

    async def _mistaken(self, request: Request, error: Exception) -> Response:
        return self._page(request, "", str(error), 400)

    async def _begin_session(
        self, answer: Response, user: str, brokers: Brokers, lease: SessionLease | None = None
    ) -> None:
        token = await self.sessions.begin(user, brokers, *self._make_pages(brokers, user), lease)
        _log.info("console action", principal=f"User:{user}", action="log in", outcome="done")
        answer.set_cookie(
            self._cookie, token, path="/", secure=self._secure, httponly=True, samesite="strict"
        )

    def _forget(self, answer: Response, cookie: str, site: Literal["lax", "strict"]) -> None:
        answer.delete_cookie(cookie, secure=self._secure, httponly=True, samesite=site)

    def _address(self, request: Request) -> str:
        """Of the browser. A proxy appends what it sees to what it was told, some as a header of its own."""
        told = ",".join(request.headers.getlist("x-forwarded-for")).rpartition(",")[2].strip()
        here = request.client.host if request.client is not None else ""
        return owner_of(told if self._behind_proxy and told else here)

    def _why_not_now(self, address: str, user: str = "") -> str | None:
        """Whoever fails waits, at that address and as that user, and nobody else does."""
        pause = self._failures.pause(f"{address} {user}") if user else 0.0
        if pause:
            return f"Too many logins of this user failed from here: try again in {ceil(pause)} s."
        if self._turns.waiting_of(address) >= _MOST_WAITING:
            return "Too many logins from here at once: try again in a moment."
        return None

    def _page(
        self, request: Request, after: str, refused: str | None, status: int, *, left: bool = False
    ) -> Response:
        """`left`: the user has just logged out."""
        view = {"next": local_address(after), "refused": refused, "left": left, **self._view()}
        answer = self._pages.answer(request, "login.html", Content(view, {"bare": True}, status))
        answer.headers["Cache-Control"] = "no-store"
        return answer


class PasswordGate(LoginGate):
    """With a user and a password of the cluster."""

    def __init__(self, identify: Identify, parts: GateParts) -> None:
        self._identify = identify
        super().__init__(parts)

    def _routes(self) -> list[BaseRoute]:
        return [
            Route("/login", self._ask, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
        ]

    def _view(self) -> dict[str, object]:
        return {"provider": None}

    async def _login(self, request: Request) -> Response:
        form = await form_of(request)
        user, password = form.get("user", ""), form.get("password", "")
        after = form.get("next", "")
        if not user or not password or "\0" in user + password:
            raise BadInput("a user and a password are needed")
        if len(user) > _LONGEST_NAME or len(password) > _LONGEST_NAME:
            raise BadInput(f"users and passwords have at most {_LONGEST_NAME} characters")
        address = self._address(request)
        hurried = self._why_not_now(address, user)
        if hurried is not None:
            return self._page(request, after, hurried, 429)
        try:
            async with self._turns.turn(address):
                brokers = await self._identify(user, password)
        except AuthenticationFailed as error:
            self._failures.failed(address)
            self._failures.failed(f"{address} {user}")
            _log.warning("console action", principal=f"User:{user}", action="log in", outcome=str(error))
            refused = "The cluster refused this user or password. The console's log says more."
            return self._page(request, after, refused, 401)
        except (ClientError, BrokerUnreachable) as error:
            return self._page(request, after, f"The cluster does not answer: {error}", 503)
        self._failures.succeeded(f"{address} {user}")
        answer = RedirectResponse(local_address(after), 303)
        await self._begin_session(answer, user, brokers)
        return answer


def cookie_in(scope: Scope, wanted: str) -> str:
    for name, value in scope["headers"]:
        if name == b"cookie":
            try:
                found = SimpleCookie(value.decode("latin-1")).get(wanted)
            except CookieError:
                continue
            if found is not None:
                return found.value
    return ""


def local_address(address: str) -> str:
    """An address of this console, and of no other."""
    plain = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if plain and address.isprintable() and address != "/logout" else "/"
