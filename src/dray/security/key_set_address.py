"""The keys that sign tokens, from an address: fetched again now and then, and when a token names a key that
is not known, at a bounded rate. What was fetched last holds while the address is away."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from dray.runtime import Runtime
from dray.security.https import HttpsAddress, HttpsFailed, ask_https
from dray.security.jwks import LARGEST_KEY_SET, InvalidKeySet, KeySet

_log = structlog.get_logger(__name__)

LEAST_SECONDS: Final = 10.0
"""Between two attempts, whatever tokens clients send: an unknown key must not become a load for others."""

LOOK_SECONDS: Final = 1.0
"""How soon an unknown key is noticed."""

FETCH_SECONDS: Final = 10.0


class KeySetAddress:
    """`fetch` gives the document, or raises `HttpsFailed`."""

    def __init__(
        self, fetch: Callable[[], Awaitable[bytes]], runtime: Runtime, refresh_seconds: float
    ) -> None:
        self._fetch = fetch
        self._runtime = runtime
        self._refresh_seconds = refresh_seconds
        self._newer_wanted = False
        self._failed = False
        self.current: KeySet | None = None
        """None until the first set was fetched: no token is good until then."""

    async def refresh(self) -> None:
        """Fetches once. What goes wrong is one line, and the keys stay."""
        try:
            document = await self._fetch()
            # Parsing loads libraries, the first time.
            self.current = await self._runtime.in_thread(KeySet, document)
        except (HttpsFailed, InvalidKeySet) as error:
            self._failed = True
            _log.error(
                "the key set cannot be fetched: "
                + ("no token is good until it can" if self.current is None else "the last keys hold"),
                setting="oauth.key_set_url",
                error=str(error),
            )
            return
        if self._failed:
            _log.info("the key set was fetched again", keys=len(self.current))
        self._failed = False

    async def follow(self) -> None:
        """Runs for ever."""
        while True:
            self._newer_wanted = False
            await self.refresh()
            fetched = self._runtime.monotonic()
            while not self._is_due(self._runtime.monotonic() - fetched):
                await self._runtime.sleep(LOOK_SECONDS)

    def _is_due(self, age: float) -> bool:
        return age >= (LEAST_SECONDS if self._failed or self._newer_wanted else self._refresh_seconds)

    def want_newer(self) -> None:
        """A token named a key that is not known. Called from any thread."""
        self._newer_wanted = True


def fetch_from(address: HttpsAddress, context: ssl.SSLContext) -> Callable[[], Awaitable[bytes]]:
    async def fetch() -> bytes:
        return await ask_https(address, context, most_bytes=LARGEST_KEY_SET, seconds=FETCH_SECONDS)

    return fetch
