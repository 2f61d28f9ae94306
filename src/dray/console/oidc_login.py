"""A login at an OpenID provider. The access token that it gives is what the brokers are shown
(OAUTHBEARER): they judge it, and all that is asked after it.

A login begins with a link, not a form: browsers hold a form's redirects to the page's own origin
(`form-action`). It ends on a page that leads on by itself: the session's cookie is `SameSite=Strict`, so that
a browser would not send it where the provider's page led, but does where ours leads.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from dray.base.runtime import Places, Runtime
from dray.broker.security.oidc import Granted, LoginAttempt, OidcFailed, OpenIdProvider
from dray.broker.security.sasl import REFUSAL_DELAY_SECONDS
from dray.console.login import GateParts, LoginGate, cookie_in, digest, local_address
from dray.console.rendering import Content
from dray.console.security import FROM_HERE, came_from
from dray.inspection.brokers import Brokers, BrokerUnreachable
from dray.kafka.client import AuthenticationFailed, ClientError
from dray.kafka.client.tokens import HeldToken

_log = structlog.get_logger("dray.console.audit")

BEGIN: Final = "/login/begin"
CALLBACK: Final = "/login/callback"
END: Final = "/login/end"
MOST_UNDER_WAY: Final = 1000
LONGEST_LOGIN: Final = 600.0
RENEWED_BEFORE: Final = 60.0
"""How many seconds before its end a token is renewed."""
RENEWAL_PAUSE: Final = 10.0
"""Between two renewals, at least: of one that failed, too."""
_LONGEST_CODE: Final = 8192
_REFUSALS: Final = {
    "access_denied": "The provider refused the login: access denied.",
    "invalid_scope": "The provider refused the login: it does not give console.oidc_scopes.",
    "unauthorized_client": "The provider refused the login: this client may not ask for it.",
    "server_error": "The provider failed. Try again later.",
    "temporarily_unavailable": "The provider is busy. Try again later.",
}
_NOT_BEGUN: Final = "This login was not begun in this browser, or too long ago: begin again."

IdentifyToken = Callable[[HeldToken], Awaitable[Brokers]]
"""Connections of who has the token. Raises `AuthenticationFailed`, or `BrokerUnreachable`."""


@dataclass(frozen=True)
class _UnderWay:
    attempt: LoginAttempt
    cookie: str
    """The digest of what the browser has."""
    after: str
    begun: float


class LoginsUnderWay:
    """By their state. If there are too many, the oldest of the address that has most is forgotten. Each ends
    once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: dict[str, _UnderWay] = {}
        self._places: Places[str] = Places(MOST_UNDER_WAY)

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, attempt: LoginAttempt, after: str, address: str) -> str:
        """The cookie that the browser is to bring back."""
        cookie = f"{self._runtime.random.getrandbits(256):064x}"
        begun = self._runtime.monotonic()
        key = digest(attempt.state)
        self._known[key] = _UnderWay(attempt, digest(cookie), after, begun)
        gone = self._places.take(address, key, begun)
        if gone is not None:
            del self._known[gone]
        return cookie

    def end(self, state: str, cookie: str) -> _UnderWay | None:
        """None where this browser did not begin it. Then it stays: another cannot end it for its owner."""
        key = digest(state)
        found = self._known.get(key)
        if found is None or not hmac.compare_digest(found.cookie, digest(cookie)):
            return None
        del self._known[key]
        self._places.leave(key)
        return found if self._runtime.monotonic() - found.begun <= LONGEST_LOGIN else None


class TokenLease:
    """A session lasts as long as its token, and as newer ones are given for it."""

    def __init__(self, held: HeldToken, granted: Granted, provider: OpenIdProvider, runtime: Runtime) -> None:
        self._held = held
        self._granted = granted
        self._provider = provider
        self._runtime = runtime
        self._until = runtime.monotonic() + granted.seconds
        self._not_before = float("-inf")
        self._renewing = False

    @property
    def is_over(self) -> bool:
        return self._runtime.monotonic() >= self._until

    @property
    def _is_due(self) -> bool:
        now = self._runtime.monotonic()
        near = self._until - now < RENEWED_BEFORE
        return near and self._granted.refresh_token is not None and now >= self._not_before

    async def renew(self) -> None:
        """If it is time. A failure is one line, and the token holds until its end."""
        if self._renewing or not self._is_due:
            return
        asked = self._runtime.monotonic()
        self._not_before = asked + RENEWAL_PAUSE
        self._renewing = True  # a refresh token is often good once
        try:
            self._granted = await self._provider.refresh(self._granted)
        except OidcFailed as error:
            user = f"User:{self._granted.user}"
            _log.warning("console action", principal=user, action="renew the token", outcome=str(error))
            return
        finally:
            self._renewing = False
        self._held.text = self._granted.access_token
        self._until = asked + self._granted.seconds


class OidcGate(LoginGate):
    def __init__(self, provider: OpenIdProvider, identify: IdentifyToken, parts: GateParts) -> None:
        self._provider = provider
        self._identify = identify
        self.under_way = LoginsUnderWay(parts.runtime)
        # `Lax`: the browser comes back to us from the provider's page.
        self._login_cookie = "__Host-dray-login" if parts.secure else "dray-login"
        super().__init__(parts, {BEGIN, CALLBACK, END})

    def _routes(self) -> list[BaseRoute]:
        return [
            Route("/login", self._ask, methods=["GET"]),
            Route(BEGIN, self._begin, methods=["GET"]),
            Route(CALLBACK, self._come_back, methods=["GET"]),
            Route(END, self._end, methods=["GET"]),
        ]

    _after_logout = "/login?left=1"

    def _view(self) -> dict[str, object]:
        return {"provider": self._provider.name}

    async def _ask(self, request: Request) -> Response:
        if request.query_params.get("left"):
            return self._page(request, "", None, 200, left=True)
        return await super()._ask(request)

    async def _end(self, request: Request) -> Response:
        """The session here is over; this ends the one at the provider, which asks its user. A link leads
        here, as to the login: a form may not be redirected to another site."""
        if came_from(request.scope) not in FROM_HERE:
            return self._page(request, "", None, 200, left=True)
        try:
            address = await self._provider.end_address(self._own(request, "/login"))
        except OidcFailed as error:
            return self._page(request, "", f"No logout is possible there: {error}", 503, left=True)
        answer = RedirectResponse(address, 303)
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def _own(self, request: Request, path: str) -> str:
        """Of this console, as the browser calls it: the gate has looked at the `Host`."""
        return f"{'https' if self._secure else 'http'}://{request.headers['host'].lower()}{path}"

    async def _begin(self, request: Request) -> Response:
        after = request.query_params.get("next", "")
        if came_from(request.scope) not in FROM_HERE:
            return self._page(request, after, None, 200)
        attempt = self._provider.new_attempt(self._own(request, CALLBACK))
        try:
            address = await self._provider.address_for(attempt)
        except OidcFailed as error:
            return self._page(request, after, f"No login is possible: {error}", 503)
        cookie = self.under_way.begin(attempt, local_address(after), self._address(request))
        answer = RedirectResponse(address, 303)
        answer.headers["Cache-Control"] = "no-store"
        answer.set_cookie(
            self._login_cookie,
            cookie,
            max_age=int(LONGEST_LOGIN),
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )
        return answer

    async def _come_back(self, request: Request) -> Response:
        given = request.query_params
        state, code, refusal = given.get("state", ""), given.get("code", ""), given.get("error")
        address = self._address(request)
        hurried = self._why_not_now(address)
        if hurried is not None:
            return self._page(request, "", hurried, 429)
        found = self.under_way.end(state, cookie_in(request.scope, self._login_cookie))
        if found is None:
            return self._page(request, "", _NOT_BEGUN, 400)
        if refusal is not None or not 0 < len(code) <= _LONGEST_CODE:
            known = _REFUSALS.get(refusal or "", "The provider refused the login.")
            return await self._failed(request, found.after, known, known, 401)
        try:
            async with self._turns.turn(address):
                granted = await self._provider.exchange(code, found.attempt)
                held = HeldToken(granted.access_token)
                brokers = await self._identify(held)
        except OidcFailed as error:
            return await self._failed(request, found.after, f"The login failed: {error}.", str(error), 401)
        except AuthenticationFailed as error:
            refused = "The cluster refused the provider's token. The console's log says more."
            return await self._failed(request, found.after, refused, str(error), 401)
        except (ClientError, BrokerUnreachable) as error:
            return self._page(request, found.after, f"The cluster does not answer: {error}", 503)
        lease = TokenLease(held, granted, self._provider, self._runtime)
        view = {"next": found.after}
        answer = self._pages.answer(request, "logged_in.html", Content(view, {"bare": True}, 200))
        answer.headers["Cache-Control"] = "no-store"
        self._forget(answer, self._login_cookie, "lax")
        await self._begin_session(answer, granted.user, brokers, lease)
        return answer

    async def _failed(self, request: Request, after: str, shown: str, logged: str, status: int) -> Response:
        """Each is a line of the log, and nobody has to be known for it: so they take turns and their time, as
        at a broker."""
        address = self._address(request)
        self._failures.failed(address)
        async with self._turns.turn(address):
            await self._runtime.sleep(REFUSAL_DELAY_SECONDS)
        _log.warning("console action", principal="unknown", action="log in", outcome=logged)
        return self._page(request, after, shown, status)
