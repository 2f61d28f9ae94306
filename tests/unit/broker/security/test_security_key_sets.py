"""Keys from an address, over a server of our own that follows a script."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from tests.services.authorities import Authority
from tests.services.https import answering, trust

from dray.base.https import HttpsFailed, ask_https, parse_address
from dray.base.runtime import SystemRuntime
from dray.broker.security.jwks import LEAST_SECONDS, KeySetAddress

PUBLIC = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)


def keys_of(*names: str) -> bytes:
    return json.dumps({"keys": [{**PUBLIC, "kid": name} for name in names]}).encode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


OK = b"HTTP/1.1 200 OK\r\n"
GOOD = {
    "by length": OK + b"Content-Length: 5\r\n\r\nhello",
    "to the end": OK + b"\r\nhello",
    "in chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
}
BAD = {
    "a redirect": (b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n", "status 302 (redirects are not"),
    "an error": (b"HTTP/1.1 503 Away\r\n\r\n", "it answered with status 503"),
    "too long": (OK + b"Content-Length: 101\r\n\r\n" + b"x" * 101, "has more than 100 bytes"),
    "too long to the end": (OK + b"\r\n" + b"x" * 101, "has more than 100 bytes"),
    "too long in chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101, "more than 100"),
    "a negative length": (OK + b"Content-Length: -1\r\n\r\n", "has more than 100 bytes"),
    "no number": (OK + b"Content-Length: many\r\n\r\n", "is no HTTP, or too long"),
    "cut off": (OK + b"Content-Length: 5\r\n\r\nhel", "is no HTTP, or too long"),
    "no HTTP": (b"hello\r\n\r\n", "is no HTTP, or too long"),
    "a long line": (OK + b"X: " + b"x" * 9000 + b"\r\n\r\n", "is no HTTP, or too long"),
    "many headers": (OK + b"X: y\r\n" * 101 + b"\r\n", "is no HTTP, or too long"),
    "zipped": (OK + b"Content-Encoding: gzip\r\n\r\nx", "an encoding that was not asked for"),
    "silence": (b"HTTP/1.1 200 OK\r\nHANG", "no answer within 0.3 s"),
}


@pytest.mark.parametrize("kind", GOOD)
async def test_an_answer_is_read_however_it_ends(authority: Authority, kind: str) -> None:
    asked: list[bytes] = []
    async with answering(authority, GOOD[kind], asked) as address:
        assert await ask_https(address, trust(authority), most_bytes=100, seconds=10) == b"hello"
    assert asked[0].startswith(f"GET /keys?x=1 HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\n".encode())


@pytest.mark.parametrize("kind", BAD)
async def test_any_other_answer_is_one_line(authority: Authority, kind: str) -> None:
    answer, words = BAD[kind]
    seconds = 0.3 if kind == "silence" else 10
    async with answering(authority, answer, []) as address:
        with pytest.raises(HttpsFailed) as failed:
            await ask_https(address, trust(authority), most_bytes=100, seconds=seconds)
    assert words in str(failed.value)
    assert "\n" not in str(failed.value)


async def test_a_server_that_is_not_trusted_is_not_asked(authority: Authority) -> None:
    asked: list[bytes] = []
    async with answering(authority, GOOD["by length"], asked) as address:
        with pytest.raises(HttpsFailed, match="its certificate is not trusted"):
            await ask_https(address, ssl.create_default_context(), most_bytes=100, seconds=10)
    with pytest.raises(HttpsFailed, match="Connect call failed"):
        await ask_https(address, trust(authority), most_bytes=100, seconds=10)
    assert asked == []


@pytest.mark.parametrize(
    "url",
    [
        "http://x/",
        "ftp://x/",
        "file:///x",
        "https://",
        "https://u:p@x/",
        "https://x/#y",
        "https://x/ y",
        "https://x/\r\nHost: y",
        "https://x/ä",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^it [^\n]+$"):
        parse_address(url)


class Clock(SystemRuntime):
    """Time passes when the test says so."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.now = 1000.0
        self._passed = asyncio.Condition()
        self._sleeping = 0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        end = self.now + seconds
        self._sleeping += 1
        async with self._passed:
            await self._passed.wait_for(lambda: self.now >= end)
        self._sleeping -= 1

    async def passes(self, seconds: float) -> None:
        """Second by second, each once the follower sleeps."""
        for _ in range(int(seconds)):
            await _until(lambda: self._sleeping > 0)
            async with self._passed:
                self.now += 1
                self._passed.notify_all()
            await asyncio.sleep(0)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - plain state
        await asyncio.sleep(0.001)


class Script:
    """What each fetch gives; the last one for ever."""

    def __init__(self, *documents: bytes | Exception) -> None:
        self.documents = list(documents)
        self.fetches = 0

    async def __call__(self) -> bytes:
        self.fetches += 1
        document = self.documents.pop(0) if len(self.documents) > 1 else self.documents[0]
        if isinstance(document, Exception):
            raise document
        return document


@asynccontextmanager
async def following(script: Script, refresh: float = 3600.0) -> AsyncIterator[tuple[KeySetAddress, Clock]]:
    clock = Clock()
    keys = KeySetAddress(script, clock, refresh)
    task = asyncio.create_task(keys.follow())
    try:
        yield keys, clock
    finally:
        task.cancel()
        await asyncio.wait([task])
        clock.close()


def held(keys: KeySetAddress) -> int:
    return 0 if keys.current is None else len(keys.current)


async def test_keys_are_fetched_again_by_time() -> None:
    script = Script(keys_of("one"), keys_of("one", "two"))
    async with following(script, 60) as (keys, clock):
        await _until(lambda: held(keys) == 1)
        await clock.passes(59)
        assert script.fetches == 1
        await clock.passes(1)
        await _until(lambda: held(keys) == 2)


async def test_an_unknown_key_has_them_fetched_at_a_bounded_rate() -> None:
    script = Script(keys_of("one"), keys_of("one", "two"))
    async with following(script) as (keys, clock):
        await _until(lambda: held(keys) == 1)
        for _ in range(1000):
            await asyncio.to_thread(keys.want_newer)
        await clock.passes(LEAST_SECONDS - 1)
        assert script.fetches == 1, "not before its time"
        await clock.passes(1)
        await _until(lambda: held(keys) == 2)
        await clock.passes(100)
        assert script.fetches == 2, "a thousand tokens, one fetch"
        keys.want_newer()
        await clock.passes(1)
        await _until(lambda: script.fetches == 3)


@pytest.mark.parametrize("fault", [HttpsFailed("away"), b"{}", b"", keys_of("one")[:40]])
async def test_the_last_keys_hold_while_the_address_is_away(fault: bytes | Exception) -> None:
    script = Script(keys_of("one"), fault, fault, keys_of("one", "two"))
    with structlog.testing.capture_logs() as lines:
        async with following(script, 60) as (keys, clock):
            await _until(lambda: held(keys) == 1)
            await clock.passes(60)
            for _ in range(2):
                await clock.passes(LEAST_SECONDS - 1)
                assert held(keys) == 1
                await clock.passes(1)
            assert script.fetches == 4
            await _until(lambda: held(keys) == 2)
    told = [line["event"] for line in lines if line["log_level"] == "error"]
    assert told == ["the key set cannot be fetched: the last keys hold"] * 2


async def test_without_keys_no_token_is_good_and_a_broker_tries_on() -> None:
    script = Script(HttpsFailed("away"), keys_of("one"))
    with structlog.testing.capture_logs() as lines:
        async with following(script) as (keys, clock):
            await clock.passes(LEAST_SECONDS - 1)
            assert keys.current is None
            await clock.passes(1)
            await _until(lambda: held(keys) == 1)
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert "no token is good until it can" in line["event"]


def test_an_address_is_taken_apart() -> None:
    found = parse_address("https://[::1]/x")
    assert (found.host, found.port, found.path, found.name) == ("::1", 443, "/x", "[::1]")
