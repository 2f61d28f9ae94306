"""What etcd's errors mean, its messages, and which servers are warned of."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from tools import generate_etcd

from dray.base.config.kinds import Secret
from dray.metadata.etcd.calls import Fault
from dray.metadata.etcd.settings import EtcdSettings
from dray.metadata.etcd.store import revokes_wrongly

ROOT = Path(__file__).parents[3]
CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "text", "passing", "hopeless"),
    [
        (CODE.UNAVAILABLE, "etcdserver: no leader", True, False),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: too many requests", True, False),
        (CODE.UNAUTHENTICATED, "etcdserver: invalid auth token", True, False),
        (CODE.INVALID_ARGUMENT, "etcdserver: request is too large", False, True),
        (CODE.PERMISSION_DENIED, "etcdserver: permission denied", False, True),
        # Those that leave open whether a write happened.
        (CODE.UNAVAILABLE, "etcdserver: leader changed", False, False),
        (CODE.UNAVAILABLE, "etcdserver: request timed out", False, False),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", False, False),
        (CODE.UNAVAILABLE, "etcdserver: server stopped", False, False),
        (CODE.UNAVAILABLE, "Socket closed", False, False),
        (CODE.DEADLINE_EXCEEDED, "Deadline Exceeded", False, False),
        (CODE.CANCELLED, "", False, False),
        (CODE.UNKNOWN, "anything", False, False),
        (CODE.INTERNAL, "anything", False, False),
    ],
)
def test_what_an_error_means(code: grpc.StatusCode, text: str, passing: bool, hopeless: bool) -> None:
    fault = Fault(code, text)
    assert (fault.passing, fault.hopeless) == (passing, hopeless)


def test_an_error_says_what_to_do() -> None:
    full = Fault(CODE.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
    assert "compact and defragment" in str(full)
    assert "--max-request-bytes" in str(Fault(CODE.INVALID_ARGUMENT, "etcdserver: request is too large"))


@pytest.mark.parametrize(
    ("version", "warned"),
    [
        ("3.4.23", True),
        ("3.4.31", False),
        ("3.5.12", True),
        ("3.5.13", False),
        ("3.6.0", False),
        ("4.0.0", False),
        ("3.5.0-rc.1", True),
        ("something", False),
    ],
)
def test_servers_that_revoke_leases_of_others(version: str, warned: bool) -> None:
    assert revokes_wrongly(version) == warned


def test_settings_print_no_secret() -> None:
    settings = EtcdSettings(
        endpoints=["127.0.0.1:2379"],
        user="me",
        secrets={"password": Secret("hidden-1"), "token": Secret("hidden-2")},
    )
    assert "hidden" not in repr(settings)


def test_the_messages_are_those_of_the_generator() -> None:
    for name, text in generate_etcd.generate().items():
        assert (generate_etcd.WIRE / name).read_text() == text, "run python -m tools.generate_etcd"
