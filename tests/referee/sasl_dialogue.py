"""Conversations with a listener that asks, byte by byte: the same for Kafka and for Dray."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import struct
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from typing import Any

from dray.kafka.protocol import (
    DecodeError,
    Request,
    RequestHeader,
    encode_request_header,
    parse_response_header,
    response_class,
)
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest

SECONDS = 60.0
USER, PASSWORD = "alice", "correct-horse"
PLAIN = f"\0{USER}\0{PASSWORD}".encode()
VERSIONS = ApiVersionsRequest(client_software_name="referee", client_software_version="1")
METADATA = MetadataRequest(topics=[])
CLOSED = "connection closed"

Dialogue = Callable[["Talk"], Awaitable[None]]
DIALOGUES: dict[str, Dialogue] = {}


def dialogue(function: Dialogue) -> Dialogue:
    DIALOGUES[getattr(function, "__name__", "").replace("_", "-")] = function
    return function


class Talk:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.notes: list[Any] = []

    async def raw(self, payload: bytes, announced: int | None = None) -> bytes | None:
        """The answer to one frame; None where the connection was closed instead."""
        size = len(payload) if announced is None else announced
        try:
            self.writer.write(struct.pack(">i", size) + payload)
            await self.writer.drain()
            async with asyncio.timeout(SECONDS):
                (length,) = struct.unpack(">i", await self.reader.readexactly(4))
                return await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def say(self, request: Request[Any], version: int) -> Any:
        """Ask, and note the answer's error, its texts and its tokens; None where there was none."""
        header = RequestHeader(request.API_KEY, version, 7, "referee")
        answer = await self.raw(encode_request_header(header) + b"".join(request.encode(version)))
        if answer is None:
            self.notes.append([type(request).__name__, version, CLOSED])
            return None
        view = memoryview(answer)
        try:
            _, position = parse_response_header(view, request.API_KEY, version)
            response, _ = response_class(request.API_KEY).decode(view, position, version)
        except DecodeError:
            response, _ = response_class(request.API_KEY).decode(view, 4, 0)
        noted: list[Any] = [type(request).__name__, version, getattr(response, "error_code", 0)]
        if isinstance(request, SaslHandshakeRequest):
            noted.append(sorted(response.mechanisms))  # type: ignore[attr-defined]
        if isinstance(request, SaslAuthenticateRequest):
            noted += [response.error_message or None, response.session_lifetime_ms]  # type: ignore[attr-defined]
        self.notes.append(noted)
        return response

    async def handshake(self, mechanism: str, version: int = 1) -> Any:
        return await self.say(SaslHandshakeRequest(mechanism=mechanism), version)

    async def token(self, token: bytes, version: int = 2) -> Any:
        return await self.say(SaslAuthenticateRequest(auth_bytes=token), version)

    async def scram(self, mechanism: str, password: str, version: int = 2, name: str = USER) -> None:
        hash_name = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        bare = f"n={name},r=referee"
        first = await self.token(b"n,," + bare.encode(), version)
        if first is None or first.error_code:
            return
        challenge = bytes(first.auth_bytes).decode()
        fields = dict(part.split("=", 1) for part in challenge.split(","))
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{bare},{challenge},{without_proof}".encode()
        stored_key = hashlib.new(hash_name, client_key).digest()
        signature = hmac.digest(stored_key, message, hash_name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        last = await self.token(f"{without_proof},p={b64encode(proof).decode()}".encode(), version)
        if last is not None and not last.error_code:
            expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), message, hash_name)
            self.notes.append(bytes(last.auth_bytes) == b"v=" + b64encode(expected))


async def hold(name: str, address: str) -> list[Any]:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    talk = Talk(reader, writer)
    try:
        await DIALOGUES[name](talk)
    finally:
        writer.close()
    return talk.notes


@dialogue
async def plain(talk: Talk) -> None:
    await talk.say(VERSIONS, 3)
    await talk.handshake("PLAIN")
    await talk.token(PLAIN)
    await talk.say(METADATA, 9)
    await talk.token(PLAIN)
    await talk.say(VERSIONS, 3)


@dialogue
async def plain_without_asking_for_versions(talk: Talk) -> None:
    await talk.handshake("PLAIN")
    for version in (0,):
        await talk.token(PLAIN, version)
    await talk.say(METADATA, 9)


def _refused(name: str, token: bytes) -> None:
    async def refused(talk: Talk) -> None:
        await talk.handshake("PLAIN")
        await talk.token(token)
        await talk.say(METADATA, 9)

    refused.__name__ = f"plain_{name}"
    dialogue(refused)


for _name, _token in {
    "wrong_password": b"\0alice\0wrong",
    "unknown_user": b"\0nobody\0wrong",
    "no_user": b"\0\0wrong",
    "no_password": b"\0alice\0",
    "two_tokens": b"alice\0wrong",
    "four_tokens": b"\0alice\0a\0b",
    "empty": b"",
    "another_authorization_id": f"root\0{USER}\0{PASSWORD}".encode(),
}.items():
    _refused(_name, _token)


@dialogue
async def same_authorization_id(talk: Talk) -> None:
    await talk.handshake("PLAIN")
    await talk.token(f"{USER}\0{USER}\0{PASSWORD}".encode())
    await talk.say(METADATA, 9)


@dialogue
async def scram_256(talk: Talk) -> None:
    await talk.handshake("SCRAM-SHA-256")
    await talk.scram("SCRAM-SHA-256", PASSWORD)
    await talk.say(METADATA, 9)


@dialogue
async def scram_512(talk: Talk) -> None:
    await talk.handshake("SCRAM-SHA-512")
    await talk.scram("SCRAM-SHA-512", PASSWORD, 1)
    await talk.say(METADATA, 9)


@dialogue
async def scram_wrong_password(talk: Talk) -> None:
    await talk.handshake("SCRAM-SHA-256")
    await talk.scram("SCRAM-SHA-256", "wrong")
    await talk.say(METADATA, 9)


@dialogue
async def scram_unknown_user(talk: Talk) -> None:
    await talk.handshake("SCRAM-SHA-512")
    await talk.scram("SCRAM-SHA-512", PASSWORD, name="nobody")


@dialogue
async def scram_another_authorization_id(talk: Talk) -> None:
    await talk.handshake("SCRAM-SHA-256")
    await talk.token(f"n,a=root,n={USER},r=x".encode())


@dialogue
async def scram_no_message(talk: Talk) -> None:
    await talk.handshake("SCRAM-SHA-256")
    await talk.token(b"hello")


@dialogue
async def unknown_mechanism(talk: Talk) -> None:
    await talk.say(VERSIONS, 3)
    await talk.handshake("GSSAPI")
    await talk.handshake("PLAIN")


@dialogue
async def nothing_but_a_handshake(talk: Talk) -> None:
    await talk.say(METADATA, 9)


@dialogue
async def token_without_a_handshake(talk: Talk) -> None:
    await talk.token(PLAIN)


@dialogue
async def versions_twice(talk: Talk) -> None:
    await talk.say(VERSIONS, 3)
    await talk.say(VERSIONS, 3)


@dialogue
async def versions_again_after_a_refusal(talk: Talk) -> None:
    await talk.say(ApiVersionsRequest(client_software_name="-", client_software_version="-"), 3)
    await talk.say(VERSIONS, 3)
    await talk.handshake("PLAIN")
    await talk.token(PLAIN)


@dialogue
async def versions_in_the_middle(talk: Talk) -> None:
    await talk.handshake("PLAIN")
    await talk.say(VERSIONS, 3)


@dialogue
async def handshake_in_the_middle(talk: Talk) -> None:
    await talk.handshake("PLAIN")
    await talk.handshake("PLAIN")


@dialogue
async def raw_tokens(talk: Talk) -> None:
    await talk.handshake("PLAIN", 0)
    answer = await talk.raw(PLAIN)
    talk.notes.append(None if answer is None else answer.hex())
    await talk.say(METADATA, 9)


@dialogue
async def raw_tokens_wrong_password(talk: Talk) -> None:
    await talk.handshake("PLAIN", 0)
    answer = await talk.raw(b"\0alice\0wrong")
    talk.notes.append(None if answer is None else answer.hex())


@dialogue
async def large_frame(talk: Talk) -> None:
    answer = await talk.raw(b"\0" * 100, announced=(512 << 10) + 1)
    talk.notes.append(None if answer is None else "answered")


@dialogue
async def again(talk: Talk) -> None:
    await talk.handshake("PLAIN")
    await talk.token(PLAIN)
    await talk.handshake("PLAIN")
    await talk.token(PLAIN)
    await talk.say(METADATA, 9)
    await talk.handshake("PLAIN")  # within a second of the one before
    await talk.say(METADATA, 9)


@dialogue
async def again_with_another_mechanism(talk: Talk) -> None:
    await talk.handshake("PLAIN")
    await talk.token(PLAIN)
    await talk.handshake("SCRAM-SHA-256")
    await talk.token(b"n,,n=alice,r=x")


@dialogue
async def again_as_another_user(talk: Talk) -> None:
    await talk.handshake("SCRAM-SHA-256")
    await talk.scram("SCRAM-SHA-256", PASSWORD)
    await talk.handshake("SCRAM-SHA-256")
    await talk.scram("SCRAM-SHA-256", PASSWORD, name="bob")


@dialogue
async def again_with_a_wrong_password(talk: Talk) -> None:
    await talk.handshake("PLAIN")
    await talk.token(PLAIN)
    await talk.handshake("PLAIN")
    await talk.token(b"\0alice\0wrong")


@dialogue
async def again_and_a_request_between(talk: Talk) -> None:
    await talk.handshake("PLAIN")
    await talk.token(PLAIN)
    await talk.handshake("PLAIN")
    await talk.say(METADATA, 9)
