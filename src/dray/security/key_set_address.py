"""The keys that sign tokens, from an address: fetched again now and then, and when a token names a key that is
not known, but never more often than so. What was fetched last holds while the address is away."""

from __future__ import annotations

import asyncio
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

FETCH_SECONDS: Final = 10.0


class KeySetAddress:
    """`fetch` gives the document, or raises `HttpsFailed`."""

    def __init__(
        self, fetch: Callable[[], Awaitable[bytes]], runtime: Runtime, refresh_seconds: float
    ) -> None:
        self._fetch = fetch
        self._runtime = runtime
        self._refresh_seconds = refresh_seconds
        self._wanted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
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
        self._loop = asyncio.get_running_loop()
        while True:
            self._wanted.clear()
            await self.refresh()
            await self._runtime.sleep(LEAST_SECONDS)
            if self._failed:
                continue
            waiting = self._runtime.spawn(self._wanted.wait(), "a token with an unknown key")
            sleeping = self._runtime.spawn(
                self._runtime.sleep(self._refresh_seconds - LEAST_SECONDS), "the next refresh of the key set"
            )
            try:
                await asyncio.wait({waiting, sleeping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                sleeping.cancel()

    def want_newer(self) -> None:
        """A token named a key that is not known. Called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wanted.set)


def fetch_from(address: HttpsAddress, context: ssl.SSLContext) -> Callable[[], Awaitable[bytes]]:
    async def fetch() -> bytes:
        return await ask_https(address, context, most_bytes=LARGEST_KEY_SET, seconds=FETCH_SECONDS)

    return fetch
