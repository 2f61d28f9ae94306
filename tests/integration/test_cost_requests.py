"""The cost of one request: for every API in the registry, the most expensive ones that its schema allows.

Sent by a stranger, by a user without rights and by one with all of them. No turn of the broker's loop may
take 100 ms (`no_turn_is_long`, for each test), another client is served all the while, and the memory comes
back. An API that is new is here by itself.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from bench.harness import resident_bytes_of
from confluent_kafka.admin import AdminClient, NewTopic
from tests.services.authorizing import PASSWORD, AuthorizingProcess
from tests.services.costly_requests import frames, frames_of_tags
from tests.services.marks import longer
from tests.services.target import ON_KAFKA
from tests.services.turns import slowness

from dray.broker.api.registry import HANDLERS
from dray.broker.api.shared import Handler
from dray.kafka.protocol import Request, RequestHeader, encode_request_header
from dray.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from dray.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest

pytestmark = pytest.mark.skipif(ON_KAFKA, reason="it is about Dray's own limits")

MIB: Final = 1 << 20
LONGEST_TURNS: Final = {"test_no_request_costs_others_anything": 0.1}
"""Not yet of crowds: in that of FindCoordinator turns of 110 ms were seen."""
MOST_ELEMENTS: Final = 20_000
"""`limits.request_elements`, as it is by default."""
IN_ORDER: Final = sorted(HANDLERS, key=lambda handler: "Delete" in handler.name)
"""What requests are about is there until the end."""
FAT_MEMBER: Final = JoinGroupRequest(
    group_id="existing",
    session_timeout_ms=30 * 60 * 1000,
    rebalance_timeout_ms=1000,
    protocol_type="consumer",
    protocols=[JoinGroupRequestProtocol("range", bytes(900_000))],
)
"""Of the group that requests name over and over: to describe it takes much room."""
LONGEST_WAIT: Final = 20.0
"""Seconds. Other clients wait some milliseconds; this is for machines that stand still."""


def framed(request: Request[Any], version: int) -> bytes:
    header = encode_request_header(RequestHeader(request.API_KEY, version, 7, "costly"))
    return header + b"".join(bytes(part) for part in request.encode(version))


def framed_whole(request: Request[Any], version: int) -> bytes:
    frame = framed(request, version)
    return struct.pack(">i", len(frame)) + frame


class Peer:
    """A connection. `user`: who logs in on it, on the listener that asks."""

    def __init__(self, broker: AuthorizingProcess, user: str | None = None, asks: bool = True) -> None:
        port = int(broker.secure.rpartition(":")[2]) if asks else broker.port
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.settimeout(60)
        if user is not None:
            token = f"\0{user}\0{PASSWORD}".encode()
            assert self.ask(framed(SaslHandshakeRequest(mechanism="PLAIN"), 1))
            assert self.ask(framed(SaslAuthenticateRequest(auth_bytes=token), 2))

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, frame: bytes) -> int:
        """The bytes of the answer; 0 where the connection was closed instead."""
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            return self.received()
        except (BrokenPipeError, ConnectionResetError):
            return 0

    def begin(self, data: bytes) -> threading.Thread:
        """Send it, however long that takes."""
        thread = threading.Thread(target=self._send, args=(data,))
        thread.start()
        return thread

    def _send(self, data: bytes) -> None:
        with suppress(OSError):
            self._socket.sendall(data)

    def received(self) -> int:
        head = self._socket.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            return 0
        left = size = struct.unpack(">i", head)[0]
        while left:
            some = len(self._socket.recv(min(left, MIB)))
            if not some:
                return 0
            left -= some
        return int(size)


class Bystander:
    """Another client, which asks for something small all the time: how long it waited for each answer, by the
    clock on the wall and by what the broker's loop worked meanwhile."""

    def __init__(self, broker: AuthorizingProcess) -> None:
        self._broker = broker
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.waits: list[float] = []
        self.work: list[float] = []
        self._late: list[float] = []
        self.is_served = True

    @property
    def p99(self) -> float:
        return _p99(self.waits)

    @property
    def lateness(self) -> float:
        """How late the machine wakes who sleeps. A wait has two of that: the broker's, and the client's."""
        return 2 * _p99(self._late)

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        asked = framed(DescribeClusterRequest(), 0)
        with Peer(self._broker, asks=False) as peer:
            asleep = time.monotonic()
            while not self._done.wait(0.01):
                worked, began = loop_seconds(self._broker.pid), time.monotonic()
                self._late.append(began - asleep - 0.01)
                self.is_served = self.is_served and peer.ask(asked) > 0
                asleep = time.monotonic()
                self.waits.append(asleep - began)
                self.work.append(loop_seconds(self._broker.pid) - worked)


def loop_seconds(pid: int) -> float:
    """The processor time of the thread of its loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * len(seconds))] if seconds else 0.0


class Broker:
    """One for all tests, with what it took before them."""

    def __init__(self, process: AuthorizingProcess) -> None:
        self.process = process
        self.before = resident_bytes_of(process.pid)
        self.work: list[float] = []  # of its loop, for each wait of another client

    @contextmanager
    def bystander(self) -> Iterator[Bystander]:
        """Served all the while."""
        with Bystander(self.process) as bystander:
            yield bystander
        assert self.process.alive
        assert bystander.is_served
        assert max(bystander.waits, default=0.0) < LONGEST_WAIT
        self.work += bystander.work

    def sent(self, user: str | None, frames_: Iterable[tuple[str, bytes]]) -> dict[str, int]:
        """The size of the answer to each."""
        answers = {}
        for label, frame in frames_:
            with Peer(self.process, user) as peer:
                answers[label] = peer.ask(frame)
        return answers


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    process = AuthorizingProcess.with_users(tmp_path_factory.mktemp("cost"), "admin", "stranger")
    process.settings |= {"DRAY_TOPICS__AUTO_CREATE": "false"}
    # Then memory is given back to the system.
    process.settings["DRAY_TEST_KNOB__LOG__CACHE_IDLE_SECONDS"] = "10"
    with process:
        admin = AdminClient(process.client("admin"))
        admin.create_topics([NewTopic("existing", 100)])["existing"].result(60)
        with Peer(process, "admin") as member:  # which stays one for half an hour
            assert member.ask(framed(FAT_MEMBER, 3))
        yield Broker(process)


def most_of(handler: Handler) -> int:
    return min(handler.most_elements, MOST_ELEMENTS)


def expensive(handler: Handler, *labels: str) -> Iterator[tuple[str, bytes]]:
    """Requests of 1 MB, or of as many elements as are taken. With `labels`, only some of these kinds."""
    most = most_of(handler)
    yield from frames(handler.request, handler.last, "existing", most, MIB, *labels)
    yield from frames_of_tags(handler.request, handler.last, MIB)


@pytest.mark.parametrize("labels", [("distinct", "repeated"), longer(())], ids=["some", "all"])
@pytest.mark.parametrize("handler", IN_ORDER, ids=lambda handler: handler.name)
def test_no_request_costs_others_anything(broker: Broker, handler: Handler, labels: tuple[str, ...]) -> None:
    costly = list(expensive(handler, *labels))
    with broker.bystander() as bystander:
        answers = [broker.sent(user, costly) for user in ("admin", "stranger", None)]
    assert max(size for each in answers for size in each.values()) <= 16 * MIB
    if not labels:
        assert bystander.p99 < 0.1 * slowness() + bystander.lateness


def test_what_the_members_of_a_group_say_is_read_in_no_long_turn(broker: Broker) -> None:
    """Eight members, each with half a million topics without a name, held the loop for a second."""
    count = 500_000
    with ExitStack() as stack:
        members = [stack.enter_context(Peer(broker.process, "admin")) for _ in range(8)]
        for number, member in enumerate(members):
            named = struct.pack(">hi", 0, count - number) + bytes(2 * (count - number)) + b"\xff\xff\xff\xff"
            join = replace(
                FAT_MEMBER,
                group_id="read",
                session_timeout_ms=6000,
                protocols=[JoinGroupRequestProtocol("range", named)],
            )
            stack.callback(member.begin(framed_whole(join, 3)).join)
        assert all(member.received() > 0 for member in members)


@pytest.mark.parametrize("name", ["DescribeGroups", "OffsetFetch", "DescribeConfigs", "FindCoordinator"])
def test_a_name_that_is_repeated_costs_no_more_than_once(broker: Broker, name: str) -> None:
    """1,223 bytes of DescribeGroups, with a group like the one that is here, became 1.2 GB."""
    [handler] = [handler for handler in HANDLERS if handler.name == name]
    repeated = (each for each in expensive(handler) if each[0].split()[1] == "repeated")
    answers = broker.sent("admin", repeated)
    assert 0 < max(answers.values()) < 2 * MIB


@pytest.mark.parametrize("name", ["DescribeGroups", "FindCoordinator", "Metadata"])
def test_more_elements_than_are_taken_are_refused(broker: Broker, name: str) -> None:
    """100,000 names took seconds and hundreds of MiB."""
    [handler] = [handler for handler in HANDLERS if handler.name == name]
    many = frames(handler.request, handler.last, "existing", 5 * MOST_ELEMENTS, 2 * MIB, "distinct")
    answers = broker.sent("admin", many)
    assert max(answers.values()) < 200


def test_the_memory_comes_back(broker: Broker) -> None:
    """Of all requests before this one, which came one after the other."""
    _comes_back(broker, 50 * MIB)


@pytest.mark.parametrize("name", ["Produce", "Fetch"])
def test_many_requests_at_once_share_the_turns(broker: Broker, name: str) -> None:
    """Each of them held the loop for some thirty milliseconds at the most, and all that came together for
    seconds: no turn of it is long here either."""
    _come_in_a_crowd(broker, name)


def test_a_crowd_leaves_its_fetch_sessions_at_most(broker: Broker) -> None:
    """They outlive their connections: 250,000 partitions of all together, some 100 MiB."""
    _comes_back(broker, 150 * MIB)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["ListOffsets", "Metadata", "FindCoordinator"])
def test_many_slower_requests_share_the_turns(broker: Broker, name: str) -> None:
    """Their memory is not judged: the heap keeps some 200 MiB of what they took together."""
    _come_in_a_crowd(broker, name)


def _come_in_a_crowd(broker: Broker, name: str) -> None:
    [handler] = [handler for handler in HANDLERS if handler.name == name]
    all_frames = frames(handler.request, handler.last, "existing", most_of(handler), MIB)
    costly = [
        each for label, each in all_frames if label.split()[1] == "distinct" and "forgotten" not in label
    ]
    sent = struct.pack(">i", len(costly[-1])) + costly[-1]
    with broker.bystander(), ExitStack() as stack:
        crowd = [stack.enter_context(Peer(broker.process, "admin")) for _ in range(20)]
        for peer in crowd:
            stack.callback(peer.begin(2 * sent).join)
        assert all(peer.received() > 0 for peer in crowd)


def test_others_wait_for_little_work(broker: Broker) -> None:
    """The seconds of waits are judged in `make soak`; here what the loop did in them. Of one in a hundred the
    machine may have woken the client late."""
    assert _p99(broker.work) < 0.1


def _comes_back(broker: Broker, most: int) -> None:
    ends = time.monotonic() + 60
    while (grown := resident_bytes_of(broker.process.pid) - broker.before) > most:
        assert time.monotonic() < ends, f"{grown / MIB:.0f} MiB more than before"
        time.sleep(0.1)
