"""One request over HTTPS, for key sets and tokens: bounded in size and time, and never led elsewhere.

Redirects are not followed: the address that was configured is the one that is believed.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_LONGEST_LINE: Final = 8 << 10
_MOST_HEADERS: Final = 100
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_UNSAFE: Final = frozenset(chr(code) for code in (*range(33), 127))


class HttpsFailed(Exception):
    """One line, without anything that the server sent but its status."""


@dataclass(frozen=True, slots=True)
class HttpsAddress:
    host: str
    port: int
    path: str
    encrypted: bool = True
    """False only for a server on this machine."""

    @property
    def name(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.encrypted else 80) else f"{host}:{self.port}"


def parse_address(url: str, *, plain_here: bool = False) -> HttpsAddress:
    """Raises `ValueError`, one line. `plain_here`: http is taken too, of a loopback address."""
    if not url.isascii() or not _UNSAFE.isdisjoint(url):
        raise ValueError("it has spaces, or letters beyond ASCII")
    parts = urlsplit(url)
    here = plain_here and parts.scheme == "http" and parts.hostname in _LOOPBACK
    if not here and (parts.scheme != "https" or not parts.hostname):
        raise ValueError("it must be https://HOST/PATH")
    assert parts.hostname is not None
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("it must have no user, password or fragment")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return HttpsAddress(parts.hostname, parts.port or (80 if here else 443), path, encrypted=not here)


async def ask_https(
    address: HttpsAddress,
    context: ssl.SSLContext,
    *,
    headers: tuple[tuple[str, str], ...] = (),
    form: bytes | None = None,
    most_bytes: int,
    seconds: float,
) -> bytes:
    """The body of the answer with status 200: GET, or POST where there is a form. Raises `HttpsFailed`."""
    try:
        async with asyncio.timeout(seconds):
            return await _ask(address, context, headers, form, most_bytes)
    except TimeoutError:
        raise HttpsFailed(f"no answer within {seconds:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise HttpsFailed(f"its certificate is not trusted: {error.verify_message.rstrip('.')}") from None
    except ssl.SSLError as error:
        raise HttpsFailed(f"no TLS: {(error.reason or 'it failed').replace('_', ' ').lower()}") from None
    except OSError as error:
        raise HttpsFailed(error.strerror or type(error).__name__) from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        raise HttpsFailed("its answer is no HTTP, or too long") from None


async def _ask(
    address: HttpsAddress,
    context: ssl.SSLContext,
    headers: tuple[tuple[str, str], ...],
    form: bytes | None,
    most_bytes: int,
) -> bytes:
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=context if address.encrypted else None, limit=_LONGEST_LINE
    )
    try:
        lines = [f"{'GET' if form is None else 'POST'} {address.path} HTTP/1.1", f"Host: {address.name}"]
        lines += ["Connection: close", "Accept: application/json", "User-Agent: dray"]
        lines += [f"{name}: {value}" for name, value in headers]
        if form is not None:
            lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(form)}"]
        writer.write("\r\n".join([*lines, "", ""]).encode() + (form or b""))
        status = (await reader.readuntil(b"\n")).split()
        if len(status) < 2 or not status[0].startswith(b"HTTP/1."):
            raise ValueError("no status")
        found = await _headers(reader)
        if status[1] != b"200":
            code = int(status[1])
            led = " (redirects are not followed)" if 300 <= code < 400 else ""
            raise HttpsFailed(f"it answered with status {code}{led}")
        return await _body(reader, found, most_bytes)
    finally:
        writer.transport.abort()


async def _headers(reader: asyncio.StreamReader) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for _ in range(_MOST_HEADERS):
        line = (await reader.readuntil(b"\n")).strip()
        if not line:
            return found
        name, _, value = line.partition(b":")
        found[name.strip().lower()] = value.strip().lower()
    raise ValueError("too many headers")


async def _body(reader: asyncio.StreamReader, headers: dict[bytes, bytes], most_bytes: int) -> bytes:
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise HttpsFailed("it answered with an encoding that was not asked for")
    if b"transfer-encoding" in headers:
        return await _chunks(reader, most_bytes)
    length = headers.get(b"content-length")
    if length is not None:
        size = int(length)
        if not 0 <= size <= most_bytes:
            raise HttpsFailed(f"its answer has more than {most_bytes} bytes")
        return await reader.readexactly(size)
    body = b""
    while data := await reader.read(most_bytes):
        body += data
        if len(body) > most_bytes:
            raise HttpsFailed(f"its answer has more than {most_bytes} bytes")
    return body


async def _chunks(reader: asyncio.StreamReader, most_bytes: int) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\n")).partition(b";")[0].strip(), 16):
        if size < 0 or len(body) + size > most_bytes:
            raise HttpsFailed(f"its answer has more than {most_bytes} bytes")
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    return body
