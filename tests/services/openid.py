"""A small OpenID provider: discovery, codes with PKCE, tokens signed with RS256, and a knob for each thing
that a provider may do wrong. Without a socket, or as a server on this machine."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

_KEYS = {name: rsa.generate_private_key(65537, 2048) for name in ("one", "two")}
SECRET = "s3cret-of-the-client"


class OpenIdServer:
    def __init__(self, issuer: str, client_id: str = "dray-console", secret: str | None = SECRET) -> None:
        self.issuer = issuer
        self.client_id = client_id
        self.secret = secret
        self.user = "app"
        self.now = time.time
        self.down = False
        self.seconds = 300.0
        self.refreshes = False
        self.signed_by = "one"
        self.published = ["one"]
        self.algorithm = "RS256"
        self.said: dict[str, Any] = {}
        """Put over what the id token says; of None, it says nothing."""
        self.discovered: dict[str, Any] = {}
        self.answered: dict[str, Any] = {}
        self.asks_user = False
        """Whether a page comes first, with a link to agree. Otherwise its user agrees at once."""
        self.scopes: list[str] = []
        self.asked: list[str] = []
        self.given: list[str] = []
        """Access and refresh tokens, and codes."""
        self._codes: dict[str, Mapping[str, str]] = {}
        self._refresh: str | None = None

    def key_set(self) -> bytes:
        public = [{**_jwk(name), "kid": name} for name in self.published]
        return json.dumps({"keys": public}).encode()

    def authorize(self, address: str) -> str:
        """Where a browser that was sent here, and whose user agreed, is sent back to."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["client_id"] == self.client_id
        assert asked["code_challenge_method"] == "S256"
        self.scopes.append(asked["scope"])
        code = f"code-{len(self.given)}"
        self.given.append(code)
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def answer(self, path: str, form: bytes | None, authorization: str | None) -> tuple[int, bytes]:
        self.asked.append(path)
        if self.down:
            return 503, b"<b>down</b>"
        if path == "/.well-known/openid-configuration":
            places = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
            document = {"issuer": self.issuer} | {name: self.issuer + at for name, at in places.items()}
            return 200, json.dumps(document | self.discovered).encode()
        if path == "/keys":
            return 200, self.key_set()
        if path == "/token" and form is not None:
            return self._token(
                {name: values[0] for name, values in parse_qs(form.decode()).items()}, authorization
            )
        return 404, b""

    def _token(self, form: Mapping[str, str], authorization: str | None) -> tuple[int, bytes]:
        if self.secret is not None:
            pair = f"{self.client_id}:{self.secret}"
            posted = f"{form.get('client_id')}:{form.get('client_secret')}"
            basic = b64decode((authorization or "").removeprefix("Basic ")).decode()
            taken = self.discovered.get("token_endpoint_auth_methods_supported")
            if pair != (posted if taken == ["client_secret_post"] else basic):
                return 401, b'{"error": "invalid_client"}'
        elif form.get("client_id") != self.client_id:
            return 401, b'{"error": "invalid_client"}'
        nonce = None
        if form["grant_type"] == "authorization_code":
            begun = self._codes.pop(form["code"], None)  # a code is good once
            proof = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
            if (
                begun is None
                or begun["redirect_uri"] != form["redirect_uri"]
                or begun["code_challenge"] != proof
            ):
                return 400, b'{"error": "invalid_grant", "error_description": "<script>"}'
            nonce = begun["nonce"]
        elif form.get("refresh_token") != self._refresh or self._refresh is None:
            return 400, b'{"error": "invalid_grant"}'
        now = int(self.now())
        times = {"iat": now, "exp": now + int(self.seconds)}
        access = self.signed(
            {"iss": self.issuer, "sub": self.user, "aud": "dray", "n": len(self.given), **times}
        )
        claims = {"iss": self.issuer, "sub": self.user, "aud": self.client_id, **times}
        claims |= {} if nonce is None else {"nonce": nonce}
        claims = {name: value for name, value in (claims | self.said).items() if value is not None}
        answer = {"access_token": access, "token_type": "Bearer", "expires_in": self.seconds}
        answer["id_token"] = self.signed(claims, self.algorithm)
        if self.refreshes:
            self._refresh = answer["refresh_token"] = f"refresh-{len(self.given)}"
            self.given.append(self._refresh)
        self.given.append(access)
        return 200, json.dumps(answer | self.answered).encode()

    def signed(self, claims: Mapping[str, Any], algorithm: str = "RS256") -> str:
        key: Any = (
            _KEYS[self.signed_by] if algorithm == "RS256" else "x" * 32 if algorithm == "HS256" else None
        )
        return jwt.encode(dict(claims), key, algorithm, {"kid": self.signed_by})


def _jwk(name: str) -> dict[str, Any]:
    return dict(RSAAlgorithm.to_jwk(_KEYS[name].public_key(), as_dict=True))


@contextmanager
def serving_openid() -> Iterator[OpenIdServer]:
    """On a loopback address, without TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/authorize?"):
                if provider.asks_user:
                    page = f'<a href="{escape(provider.authorize(self.path))}">Agree</a>'.encode()
                    self._send_answer(200, page, "text/html")
                    return
                self.send_response(302)
                self.send_header("Location", provider.authorize(self.path))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self._send(None)

        def do_POST(self) -> None:
            self._send(self.rfile.read(int(self.headers["Content-Length"])))

        def _send(self, form: bytes | None) -> None:
            answer = provider.answer(self.path, form, self.headers.get("Authorization"))
            self._send_answer(*answer, "application/json")

        def _send_answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = OpenIdServer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
