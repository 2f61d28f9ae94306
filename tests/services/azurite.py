"""A server that speaks Azure's blob storage: Azurite (MIT), from npm."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from pathlib import Path

from tests.services.process import ServerProcess, free_port
from tests.services.tools import cache_directory, exclusively, missing, require_tool

VERSION = "3.35.0"
DOWNLOAD_SECONDS = 600

ACCOUNT = "drayaccount"
KEY = base64.b64encode(b"a key that only tests know, 48 bytes long, or so").decode()
CONTAINER = "dray-container"


def require_azurite() -> Path:
    """The server's script, or the end of the test."""
    for tool in ("node", "npm"):
        require_tool(tool)
    home = cache_directory() / f"azurite-{VERSION}"
    script = home / "installed" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    with exclusively(home):
        if script.exists():
            return script
        fresh = home / "installing"
        shutil.rmtree(fresh, ignore_errors=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev"]
        command += [f"--prefix={fresh}", f"azurite@{VERSION}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            missing(f"npm did not fetch Azurite in {DOWNLOAD_SECONDS} s")
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no output"]
            missing(f"npm could not fetch Azurite: {lines[-1]}")
        os.rename(fresh, home / "installed")
    return script


class AzuriteProcess(ServerProcess):
    """It has one account with one container, and keeps its data over kill and restart."""

    def __init__(self, directory: Path) -> None:
        super().__init__("azurite", directory)
        self.script = require_azurite()
        self.port = free_port()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def options(self) -> dict[str, str]:
        """`objects.options` of a store on this server."""
        return {"endpoint": self.endpoint, "account_name": ACCOUNT}

    def secrets(self) -> dict[str, str]:
        """`objects.secrets`, as the docs show them."""
        return {"access_key": KEY}

    def command(self) -> Sequence[str]:
        command = ["node", str(self.script), "--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        command += ["--location", str(self.directory / "data"), "--silent", "--disableTelemetry"]
        return [*command, "--skipApiVersionCheck"]

    def environment(self) -> Mapping[str, str]:
        return os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}

    def is_ready(self) -> bool:
        """It is when the container is there."""
        request = urllib.request.Request(f"{self.endpoint}/{CONTAINER}?restype=container", method="PUT")
        date = formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
        signed = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in headers.items())
        signed += f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        headers["Content-Length"] = "0"
        for name, value in headers.items():
            request.add_header(name, value)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=2) as answer:
                return bool(answer.status == 201)
        except urllib.error.HTTPError as error:
            return error.code == 409  # from before a restart
        except OSError:
            return False
