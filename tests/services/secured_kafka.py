"""A Kafka whose clients log in: SASL over TLS, and nobody may do what no ACL allows."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.services.authorities import Authority
from tests.services.kafka import KafkaProcess
from tests.services.process import free_port

_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Alter": AclOperation.ALTER,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "All": AclOperation.ALL,
}
_RESOURCES = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--cluster": ResourceType.BROKER,
}


class SecuredKafka(KafkaProcess):
    """Whoever is on its plain listener is a super user: brokers, and who sets up a test."""

    def __init__(self, directory: Path, users: Iterable[str]) -> None:
        self._authority = Authority(directory / "certificates")
        self._users = tuple(users)
        self.secure_port = free_port()
        super().__init__(directory)

    def _write_properties(self, settings: Mapping[str, str]) -> None:
        both = self._authority.issue("CN=127.0.0.1", ("127.0.0.1",)).both
        plain, secure = f"PLAINTEXT://127.0.0.1:{self.port}", f"SASL_SSL://{self.secure}"
        known = " ".join(f'user_{name}="{password_of(name)}"' for name in self._users)
        login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
        protocols = ("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", "SASL_SSL:SASL_SSL")
        super()._write_properties(
            {
                **settings,
                "listeners": f"{plain},{secure},CONTROLLER://127.0.0.1:{self.controller_port}",
                "advertised.listeners": f"{plain},{secure}",
                "listener.security.protocol.map": ",".join(protocols),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(both),
                "auto.create.topics.enable": "false",
                "group.initial.rebalance.delay.ms": "0",
            }
        )

    @property
    def secure(self) -> str:
        return f"127.0.0.1:{self.secure_port}"

    def client(self, user: str) -> dict[str, Any]:
        """For librdkafka."""
        return {
            "bootstrap.servers": self.secure,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._authority.file),
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": password_of(user),
        }

    def command_config(self, user: str, file: Path, brokers: str | None = None) -> dict[str, str]:
        """As an entry of `upstream.clusters`, with a file of properties as Kafka's own tools read it.
        `brokers`: the user with which they pass on what clients produce."""
        found = {"bootstrap": self.secure, "command_config": self._properties_of(user, file)}
        if brokers is not None:
            found["forward_config"] = self._properties_of(brokers, file.with_suffix(".brokers"))
        return found

    def _properties_of(self, user: str, file: Path) -> str:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        file.write_text(
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=PLAIN\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self._authority.file}\n"
            f'sasl.jaas.config={module} required username="{user}" password="{password_of(user)}";\n'
        )
        return str(file)

    def allow(self, *commands: str) -> None:
        """What `kafka-acls --add --allow-principal` does, read word for word."""
        wanted = [binding for command in commands for binding in _bindings(command)]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for done in admin.create_acls(wanted).values():
            done.result(60)

    @contextmanager
    def allowing(self, *commands: str) -> Iterator[None]:
        """For a while: what a right opens is open to every test that comes after it."""
        self.allow(*commands)
        yield
        given = [
            AclBindingFilter(
                each.restype,
                each.name,
                each.resource_pattern_type,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            for command in commands
            for each in _bindings(command)
        ]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for taken in admin.delete_acls(given).values():
            taken.result(60)

    def acls(self, topic: str) -> list[tuple[str, str]]:
        """Operation and permission of all on this very topic that are for everybody."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wanted = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:*",
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        found = admin.describe_acls(wanted).result(60)
        return sorted((each.operation.name, each.permission_type.name) for each in found)


def password_of(user: str) -> str:
    return f"secret of {user}"


def _bindings(command: str) -> list[AclBinding]:
    words = shlex.split(command)
    principal = words[words.index("--allow-principal") + 1]
    [flag] = [word for word in words if word in _RESOURCES]
    name = "kafka-cluster" if flag == "--cluster" else words[words.index(flag) + 1]
    operations = [words[place + 1] for place, word in enumerate(words) if word == "--operation"]
    assert operations, command
    return [
        AclBinding(
            _RESOURCES[flag],
            name,
            ResourcePatternType.LITERAL,
            principal,
            "*",
            _OPERATIONS[operation],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
