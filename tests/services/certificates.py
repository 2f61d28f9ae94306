"""A certificate for servers on loopback, of an authority that only the tests know."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.services.tools import require_tool

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
FOR_A_DAY = ("-days", "1")
EXTENSIONS = "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n"


@dataclass(frozen=True)
class Certificates:
    authority: Path
    certificate: Path
    key: Path


def make_certificates(directory: Path) -> Certificates:
    """For 127.0.0.1 and localhost, valid for a day, usable by a server and by a client."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Certificates(directory / "authority.pem", directory / "server.pem", directory / "server.key")
    authority_key, request = directory / "authority.key", directory / "server.request"
    extensions = directory / "extensions"
    extensions.write_text(EXTENSIONS)
    name, authority_name = ("-subj", "/CN=127.0.0.1"), ("-subj", "/CN=Dray tests")
    signed_by = ("-CA", made.authority, "-CAkey", authority_key, "-CAcreateserial")
    openssl(
        "req",
        "-x509",
        *NEW_KEY,
        "-keyout",
        authority_key,
        "-out",
        made.authority,
        *FOR_A_DAY,
        *authority_name,
    )
    openssl("req", *NEW_KEY, "-keyout", made.key, "-out", request, *name)
    openssl(
        "x509",
        "-req",
        "-in",
        request,
        *signed_by,
        *FOR_A_DAY,
        "-extfile",
        extensions,
        "-out",
        made.certificate,
    )
    return made


def openssl(*arguments: str | Path) -> None:
    command = [str(require_tool("openssl")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
