"""Conversations with tokens (OAUTHBEARER): good ones, and every way in which one is not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.referee.sasl_dialogue import CLOSED, METADATA, Talk, dialogue

OAUTHBEARER = "OAUTHBEARER"
AUDIENCE, ISSUER = "dray", "https://login.example"
KID = "one"
KEY = rsa.generate_private_key(65537, 2048)
STRANGER = rsa.generate_private_key(65537, 2048)


def write_keys(directory: Path) -> Path:
    """The set of keys that both sides verify tokens with."""
    public = {**RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": KID, "use": "sig"}
    file = directory / "keys.json"
    file.write_text(json.dumps({"keys": [public]}))
    return file


def claims(**changed: Any) -> dict[str, Any]:
    """Good for ten hours, so that a session is as long as the listener has it. None leaves a claim out."""
    now = int(time.time())
    good = {"sub": "alice", "aud": AUDIENCE, "iss": ISSUER, "iat": now, "exp": now + 36_000}
    return {name: value for name, value in {**good, **changed}.items() if value is not None}


def signed(key: Any = KEY, algorithm: str = "RS256", kid: str = KID, **changed: Any) -> str:
    return jwt.encode(claims(**changed), key, algorithm, {"kid": kid})


def first(token: str, authorization: str = "", extensions: str = "") -> bytes:
    return f"n,{authorization},\1auth=Bearer {token}\1{extensions}\1".encode()


async def brought(talk: Talk, token: bytes, version: int = 2) -> bool:
    """Whether the server answered with a challenge, which is noted: then it waits to be told that this was
    understood."""
    answer = await talk.token(token, version)
    said = "" if answer is None else bytes(answer.auth_bytes).decode()
    talk.notes.append(said)
    return bool(said)


@dialogue
async def oauth(talk: Talk) -> None:
    await talk.handshake(OAUTHBEARER)
    await brought(talk, first(signed()))
    await talk.say(METADATA, 9)


@dialogue
async def oauth_in_the_first_version(talk: Talk) -> None:
    await talk.handshake(OAUTHBEARER)
    await brought(talk, first(signed()), 0)
    await talk.say(METADATA, 9)


@dialogue
async def oauth_raw(talk: Talk) -> None:
    await talk.handshake(OAUTHBEARER, 0)
    answer = await talk.raw(first(signed()))
    talk.notes.append(CLOSED if answer is None else answer.hex())
    await talk.say(METADATA, 9)


@dialogue
async def oauth_again(talk: Talk) -> None:
    await talk.handshake(OAUTHBEARER)
    await brought(talk, first(signed()))
    await talk.handshake(OAUTHBEARER)
    await brought(talk, first(signed()))
    await talk.say(METADATA, 9)


@dialogue
async def oauth_again_of_another_user(talk: Talk) -> None:
    await talk.handshake(OAUTHBEARER)
    await brought(talk, first(signed()))
    await talk.handshake(OAUTHBEARER)
    await brought(talk, first(signed(sub="bob")))
    await talk.say(METADATA, 9)


@dialogue
async def oauth_again_that_is_bad(talk: Talk) -> None:
    await talk.handshake(OAUTHBEARER)
    await brought(talk, first(signed()))
    await talk.handshake(OAUTHBEARER)
    if await brought(talk, first(signed(STRANGER))):
        await brought(talk, b"\1")
    await talk.say(METADATA, 9)


def _good(name: str, message: Any) -> None:
    async def good(talk: Talk) -> None:
        await talk.handshake(OAUTHBEARER)
        await brought(talk, message())
        await talk.say(METADATA, 9)

    good.__name__ = f"oauth_{name}"
    dialogue(good)


def _bad(name: str, message: Any) -> None:
    """Refused at once, or after the challenge was answered."""

    async def bad(talk: Talk) -> None:
        await talk.handshake(OAUTHBEARER)
        if await brought(talk, message()):
            await brought(talk, b"\1")
        await talk.say(METADATA, 9)

    bad.__name__ = f"oauth_{name}"
    dialogue(bad)


def _now() -> int:
    return int(time.time())


_good("with_the_same_authorization_id", lambda: first(signed(), "a=alice"))
_good("with_an_extension", lambda: first(signed(), extensions="traceId=123\1"))
_good("with_several_audiences", lambda: first(signed(aud=["other", AUDIENCE])))
_good("with_a_small_word", lambda: first(signed()).replace(b"Bearer", b"bearer"))

for _name, _message in {
    "of_a_stranger": lambda: first(signed(STRANGER)),
    "of_an_unknown_key": lambda: first(signed(kid="two")),
    "without_a_signature": lambda: first(jwt.encode(claims(), "", "none", {"kid": KID})),
    "signed_with_a_shared_secret": lambda: first(signed("k" * 32, "HS256")),
    "with_another_audience": lambda: first(signed(aud="other")),
    "without_an_audience": lambda: first(signed(aud=None)),
    "of_another_issuer": lambda: first(signed(iss="https://other.example")),
    "without_an_issuer": lambda: first(signed(iss=None)),
    "expired": lambda: first(signed(exp=_now() - 3600)),
    "not_yet_good": lambda: first(signed(nbf=_now() + 3600)),
    "issued_in_the_future": lambda: first(signed(iat=_now() + 3600, exp=_now() + 7200)),
    "without_a_subject": lambda: first(signed(sub=None)),
    "with_an_empty_subject": lambda: first(signed(sub="")),
    "without_an_end": lambda: first(signed(exp=None)),
    "without_a_beginning": lambda: first(signed(iat=None)),
    "that_is_none": lambda: first("abc"),
    "of_three_parts_that_are_none": lambda: first("a.b.c"),
    "with_another_authorization_id": lambda: first(signed(), "a=bob"),
    "with_no_bearer": lambda: b"n,,\1auth=Basic YQ==\1\1",
    "missing": lambda: b"n,,\1host=here\1\1",
    "of_no_form": lambda: b"hello",
    "empty": lambda: b"",
    "of_one_byte": lambda: b"\1",
}.items():
    _bad(_name, _message)
