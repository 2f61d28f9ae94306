"""A broker that asks its clients who they are, and what they may do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.services.dray import DrayProcess, drayd_path
from tests.services.process import free_port

PASSWORD = "correct-horse-battery"
AS_WRITTEN = """\
broker: {listeners: {SECURE: {address: "127.0.0.1:9093", protocol: SASL_PLAINTEXT, \
mechanisms: [SCRAM-SHA-512, PLAIN]}}}
security: {authorization: acls, super_users: ["User:admin"]}
"""


class AuthorizingProcess(DrayProcess):
    """It has a listener that asks, `secure`, beside the one that does not."""

    secure: str

    @classmethod
    def with_users(cls, directory: Path, *users: str) -> AuthorizingProcess:
        """Not started yet. The user `admin` may do everything."""
        secure = f"127.0.0.1:{free_port()}"
        config = directory / "c.yaml"
        config.write_text(AS_WRITTEN.replace("127.0.0.1:9093", secure))
        process = cls(directory, subcommand="up", arguments=["--config", str(config)])
        process.secure = secure
        secret = directory / "password"
        secret.write_text(PASSWORD)
        for user in users:
            process.admin("user", "add", user, "--password-file", str(secret))
        return process

    def client(self, user: str, **options: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.secure,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        } | {name.replace("_", "."): value for name, value in options.items()}

    def admin(self, *arguments: str) -> str:
        """Straight in the store: no broker is asked."""
        command = [str(drayd_path()), "admin", *arguments, "--data-dir", str(self.data_directory)]
        environment = {**os.environ, **self.environment()}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, env=environment, check=True
        )
        return done.stdout
