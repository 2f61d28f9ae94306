"""A client that logs in with tokens: its properties, where it has them from, and what it says."""

from __future__ import annotations

import json
import pickle
from base64 import b64encode
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from tests.services.authorities import Authority
from tests.services.https import answering, json_answer

from dray.base.runtime import SystemRuntime
from dray.kafka.client.errors import AuthenticationFailed
from dray.kafka.client.properties import PropertiesRefused, parse_security
from dray.kafka.client.tokens import BearerTokenFile, TokenCredential, TokenEndpoint, Tokens
from dray.kafka.sasl.client import ServerNotTrusted, TokenClient

SECRET = "client:secret/ä"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
TOKEN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
CLIENT = {
    ENDPOINT: "https://tokens.example/token",
    "sasl.oauthbearer.client.id": "app",
    "sasl.oauthbearer.client.secret": SECRET,
}
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def source_of(**given: str) -> BearerTokenFile | TokenEndpoint:
    credential = parse_security({**TOKEN, **given}).credential
    assert isinstance(credential, TokenCredential)
    assert isinstance(credential.source, BearerTokenFile | TokenEndpoint)
    return credential.source


def test_a_token_in_a_file() -> None:
    assert source_of(**{ENDPOINT: "file:///run/my%20token"}) == BearerTokenFile(Path("/run/my token"))


def test_an_endpoint_by_the_names_of_java_and_of_librdkafka(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    expected = source_of(**CLIENT)
    assert isinstance(expected, TokenEndpoint)
    assert (expected.address.host, expected.client_id, expected.client_secret) == (
        "tokens.example",
        "app",
        SECRET,
    )
    java = {
        ENDPOINT: CLIENT[ENDPOINT],
        "sasl.oauthbearer.client.credentials.client.id": "app",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
        "OAuthBearerLoginCallbackHandler",
    }
    older = {
        ENDPOINT: CLIENT[ENDPOINT],
        "sasl.jaas.config": f'{MODULE} required clientId="app" clientSecret="{SECRET}";',
    }
    ours = {
        ENDPOINT: CLIENT[ENDPOINT],
        "sasl.oauthbearer.client.id": "app",
        "sasl.oauthbearer.method": "oidc",
        "client.secret.file": str(secret),
    }
    for given in (java, older, ours):
        assert source_of(**given) == expected
    assert source_of(**{**older, "sasl.jaas.config": f"{MODULE} required;"} | CLIENT) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "sasl.oauthbearer.token.endpoint.url: is needed"),
        ({ENDPOINT: "http://x/"}, "it must be https://"),
        ({ENDPOINT: "https://x/"}, "sasl.oauthbearer.client.id: is needed"),
        ({**CLIENT, "client.secret.file": "/x"}, "not both"),
        ({**CLIENT, "sasl.oauthbearer.method": "default"}, "must be oidc"),
        ({**CLIENT, "sasl.login.callback.handler.class": "mine"}, "must be Kafka's"),
        ({**CLIENT, "username": "x"}, "has no effect"),
        ({**CLIENT, "sasl.oauthbearer.client.credentials.client.id": "b"}, "give one of them"),
        ({**CLIENT, "sasl.oauthbearer.unknown": "x"}, "is not known here"),
        (
            {**CLIENT, "sasl.jaas.config": f'{MODULE} required password="{SECRET}";'},
            "password: the options are",
        ),
        ({**CLIENT, "sasl.mechanism": "SCRAM-SHA-512"}, "has no effect, since sasl.mechanism is SCRAM"),
        ({**CLIENT, "security.protocol": "SASL_PLAINTEXT"}, "would send the token in clear"),
        ({**CLIENT, "https.ca.location": "/no/file"}, "cannot read"),
    ],
)
def test_a_mistake_is_one_line_without_the_secret(given: dict[str, str], words: str) -> None:
    with pytest.raises(PropertiesRefused) as refused:
        parse_security({**TOKEN, **given})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_secret_is_not_shown_and_travels() -> None:
    security = parse_security({**TOKEN, **CLIENT})
    assert SECRET not in repr(security)
    assert pickle.loads(pickle.dumps(security)) == security


class Clock(SystemRuntime):
    now = 100.0

    def monotonic(self) -> float:
        return self.now


async def test_a_token_of_an_endpoint_is_used_for_most_of_its_life(authority: Authority) -> None:
    asked: list[bytes] = []
    answer = json_answer(json.dumps({"access_token": "a.b-c", "expires_in": 100}).encode())
    clock = Clock(threads=1)
    async with answering(authority, answer, asked) as address:
        source = TokenEndpoint(address, "app", SECRET, "read write", authority.file.read_text())
        tokens = Tokens(TokenCredential(source), clock)
        assert [await tokens.token() for _ in range(3)] == ["a.b-c"] * 3
        assert len(asked) == 1
        clock.now += 80
        assert await tokens.token() == "a.b-c"
        assert len(asked) == 2
    head, _, form = asked[0].decode().partition("\r\n\r\n")
    assert head.startswith("POST /keys?x=1 HTTP/1.1\r\n")
    basic = b64encode(b"app:client%3Asecret%2F%C3%A4").decode()
    assert f"Authorization: Basic {basic}" in head
    assert parse_qs(form) == {"grant_type": ["client_credentials"], "scope": ["read write"]}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (json_answer(b"[]"), "its answer has no access_token"),
        (json_answer(b'{"access_token": 7}'), "holds no token"),
        (json_answer(b'{"access_token": "a\\nb"}'), "holds no token"),
        (json_answer(b'{"access_token": ""}'), "holds no token"),
        (b"HTTP/1.1 401 No\r\n\r\n" + SECRET.encode(), "it answered with status 401"),
    ],
)
async def test_an_endpoint_without_a_token_is_one_line(
    authority: Authority, answer: bytes, words: str
) -> None:
    async with answering(authority, answer, []) as address:
        source = TokenEndpoint(address, "app", SECRET, None, authority.file.read_text())
        with pytest.raises(AuthenticationFailed) as failed:
            await Tokens(TokenCredential(source), SystemRuntime(threads=1)).token()
    assert words in str(failed.value)
    assert SECRET not in str(failed.value)


async def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    tokens = Tokens(TokenCredential(BearerTokenFile(path)), SystemRuntime(threads=1))
    with pytest.raises(AuthenticationFailed, match="No such file"):
        await tokens.token()
    for text in ("one.two", "three.four"):
        path.write_text(text + "\n")
        assert await tokens.token() == text
    path.write_bytes(b"\xff")
    with pytest.raises(AuthenticationFailed, match="holds no token"):
        await tokens.token()


def test_what_a_client_says() -> None:
    good = TokenClient("a.b")
    assert good.begin() == b"n,,\1auth=Bearer a.b\1\1"
    assert good.answer(b"") is None
    assert good.is_complete
    bad = TokenClient("a.b")
    bad.begin()
    assert bad.answer(b'{"status":"invalid_token"}') == b"\1"
    with pytest.raises(ServerNotTrusted):
        bad.answer(b"again")
    assert not bad.is_complete
