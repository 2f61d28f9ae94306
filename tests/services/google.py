"""A double of Google Cloud Storage, for what the object store's client sends there.

No emulator that a registry has speaks it: fake-gcs-server 1.56 answers neither puts nor uploads in parts of
the XML interface, and gcp-storage-emulator 2026.7 neither HEAD nor lists. That interface is S3's but for the
credentials and the precondition of a put. So these are checked and translated here, and moto's S3 does the
rest, in memory.
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.request
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "draybucket"
ACCOUNT = "dray@project.iam.gserviceaccount.com"
AWS = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=any"


class GoogleStore:
    """In this process. It knows one service account, by its key."""

    def __init__(self) -> None:
        self._s3: Any = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        self._thread = threading.Thread(target=self._server.serve_forever, name="google", daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def options(self) -> dict[str, str]:
        """`objects.options` of a store on this server."""
        return {"endpoint": self.endpoint}

    def secrets(self) -> dict[str, str]:
        """`objects.secrets`, as the docs show them."""
        private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        key = {
            "type": "service_account",
            "client_email": ACCOUNT,
            "private_key_id": "1",
            "private_key": _key().private_bytes(*private).decode(),
        }
        return {"service_account_key": json.dumps(key)}

    def __enter__(self) -> Self:
        self._thread.start()
        request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        request.add_header("Authorization", f"Bearer {token()}")
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60).close()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _answer(self, asked: dict[str, Any], begin: Callable[..., Any]) -> Iterable[bytes]:
        if not is_signed(asked.get("HTTP_AUTHORIZATION", "")):
            begin("401 Unauthorized", [])
            return [b"<Error><Code>AuthenticationRequired</Code></Error>"]
        asked["HTTP_AUTHORIZATION"] = AWS
        if asked.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
            asked["HTTP_IF_NONE_MATCH"] = "*"
        found: Iterable[bytes] = self._s3(asked, begin)
        return found


def is_signed(authorization: str) -> bool:
    """By the key of the account: what a service account sends is a token that it signed itself."""
    kind, _, token = authorization.partition(" ")
    signed, _, signature = token.rpartition(".")
    if kind != "Bearer" or not signed:
        return False
    try:
        _key().public_key().verify(_bytes(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return bool(json.loads(_bytes(signed.partition(".")[2]))["iss"] == ACCOUNT)


def token() -> str:
    head, claims = (json.dumps(each).encode() for each in ({"alg": "RS256"}, {"iss": ACCOUNT}))
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (head, claims))
    signature = _key().sign(signed, padding.PKCS1v15(), hashes.SHA256())
    return f"{signed.decode()}.{base64.urlsafe_b64encode(signature).decode()}"


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@cache
def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class _Quiet(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        pass
