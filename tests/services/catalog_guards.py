"""Who asks a catalog, and may they: AWS's signatures and bearer tokens, checked as a server checks them.

The catalog of the tests lets everybody in. These stand before it, in `Interference`, and let in only what is
signed, or carries a token, as it has to be. What they turned away is kept, and why.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.services.iceberg_rest import CatalogRequest

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), "
    r"SignedHeaders=(?P<headers>[^,]+), Signature=(?P<signature>[0-9a-f]{64})"
)
_MOST_SKEW = timedelta(minutes=5)


def refusal(status: int, kind: str, message: str) -> tuple[int, bytes]:
    """An error as REST catalogs tell them."""
    return status, json.dumps({"error": {"message": message, "type": kind, "code": status}}).encode()


@dataclass
class SignatureGuard:
    """Makes the signature of every request again, from the secret and from what came over the wire."""

    access_key: str
    secret_key: str
    region: str
    service: str
    let_in: int = 0
    turned_away: list[str] = field(default_factory=list)

    def __call__(self, request: CatalogRequest) -> tuple[int, bytes] | None:
        reason = self.why_not(request)
        if reason is None:
            self.let_in += 1
            return None
        self.turned_away.append(f"{request.method} {request.path}: {reason}")
        return refusal(403, "ForbiddenException", reason)

    def why_not(self, request: CatalogRequest) -> str | None:
        given = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
        if given is None:
            return "the request is not signed"
        stamp = request.headers.get("X-Amz-Date", "")
        scope = f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"
        if given["key"] != self.access_key:
            return "the access key is not known"
        if given["scope"] != scope:
            return f"signed for {given['scope']}, and not for {scope}"
        made = datetime.strptime(stamp, SIGV4_TIMESTAMP).replace(tzinfo=UTC)
        if abs(datetime.now(UTC) - made) > _MOST_SKEW:
            return "the signature is of another time"
        digest = request.headers.get("X-Amz-Content-SHA256")
        if digest is not None and digest != hashlib.sha256(request.body).hexdigest():
            return "the body is not the one that was signed"
        names = given["headers"].split(";")
        if not {"host", "x-amz-date"} <= set(names):
            return "host and date are not signed"
        if given["signature"] != self._signature(request, names, stamp):
            return "the signature does not match"
        return None

    def _signature(self, request: CatalogRequest, names: list[str], stamp: str) -> str:
        signed = {name: value for name, value in request.headers.items() if name.lower() in names}
        again = AWSRequest(
            method=request.method,
            url=f"http://{request.headers['Host']}{request.path}",
            data=request.body,
            headers=signed,
        )
        again.context["timestamp"] = stamp
        maker = SigV4Auth(Credentials(self.access_key, self.secret_key), self.service, self.region)
        made: str = maker.signature(maker.string_to_sign(again, maker.canonical_request(again)), again)
        return made


@dataclass
class TokenGuard:
    """Gives tokens for a client's secret, as OAuth2 servers do, and lets in who shows one that is good."""

    client: str
    secret: str
    given: int = 0
    expired: set[str] = field(default_factory=set)
    turned_away: list[str] = field(default_factory=list)

    def __call__(self, request: CatalogRequest) -> tuple[int, bytes] | None:
        if request.path == "/v1/oauth/tokens":
            return self._give(parse_qs(request.body.decode()))
        shown = request.headers.get("Authorization", "")
        if shown not in {f"Bearer {token}" for token in self._good()}:
            self.turned_away.append(f"{request.method} {request.path}")
            return refusal(401, "NotAuthorizedException", "the token is not good")
        return None

    def expire_all(self) -> None:
        self.expired |= self._good()

    def _good(self) -> set[str]:
        return {f"token-{number}" for number in range(1, self.given + 1)} - self.expired

    def _give(self, form: dict[str, list[str]]) -> tuple[int, bytes]:
        asked = (form["grant_type"], form["client_id"], form["client_secret"])
        if asked != (["client_credentials"], [self.client], [self.secret]):
            return 401, json.dumps(
                {"error": "invalid_client", "error_description": "no such client"}
            ).encode()
        self.given += 1
        return 200, json.dumps({"access_token": f"token-{self.given}", "token_type": "bearer"}).encode()
