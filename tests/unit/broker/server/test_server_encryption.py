"""One connection's TLS in memory: what is read, where it ends, and what is kept."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from dray.broker.server.tls.encryption import Encryption, EncryptionFailed, PeerEnded
from dray.broker.server.tls.listener import ServerCertificate

PEM = Path(__file__).with_name("loopback.pem")


class Peer:
    """A client, and the server's side of its connection."""

    def __init__(self, version: ssl.TLSVersion | None = None) -> None:
        context = ssl.create_default_context(cafile=str(PEM))
        if version is not None:
            context.minimum_version = context.maximum_version = version
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        self.server: Encryption = ServerCertificate(PEM, PEM).encryption()
        done = False
        while not done:
            with suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.deliver()
            done = self.server.shake_hands()
            self.server.let_go()
            self.incoming.write(self.server.take())
        self.client.do_handshake()

    def deliver(self) -> None:
        """In memory that is used for something else right after."""
        scratch = bytearray(self.outgoing.read())
        if scratch:
            self.server.receive(memoryview(scratch))

    def sent(self, *pieces: bytes) -> bytearray:
        for piece in pieces:
            self.client.write(piece)
        scratch = bytearray(self.outgoing.read())
        self.server.receive(memoryview(scratch))
        return scratch

    def read(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.server.read_into(memoryview(buffer))])

    def decrypted(self) -> bytes:
        self.incoming.write(self.server.take())
        found = b""
        with suppress(ssl.SSLWantReadError):
            while data := self.client.read(1 << 20):
                found += data
        return found


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_there_and_back(version: ssl.TLSVersion) -> None:
    peer = Peer(version)
    peer.sent(b"a" * 40_000)
    assert peer.read(100_000) == b"a" * 40_000
    for piece in (b"b" * 100_000, b"", memoryview(b"c" * 5), memoryview(b""), bytearray(b"d")):
        peer.server.write(piece)
    assert peer.decrypted() == b"b" * 100_000 + b"cccccd"
    assert peer.server.take() == b""


def test_many_small_records_are_read_at_once() -> None:
    peer = Peer()
    peer.sent(*(b"%04d" % number for number in range(1000)))
    assert peer.read(10_000) == b"".join(b"%04d" % number for number in range(1000))
    assert not peer.server.has_more or not peer.read(1)
    assert not peer.server.has_more


def test_what_is_not_read_is_kept_when_the_memory_is_used_again() -> None:
    peer = Peer()
    scratch = peer.sent(*[b"x" * 1000] * 50)
    assert peer.read(10_500) == b"x" * 10_500
    peer.server.let_go()
    scratch[:] = bytes(len(scratch))
    assert peer.server.has_more
    assert peer.read(5_000) == b"x" * 5_000
    again = peer.sent(b"y" * 100)
    found = peer.read(100_000)
    assert found == b"x" * 34_500 + b"y" * 100
    peer.server.let_go()
    again[:] = bytes(len(again))
    assert not peer.server.has_more


def test_what_is_held_is_told_and_given_back_once_it_is_read() -> None:
    peer = Peer()
    scratch = peer.sent(*[b"x" * 10_000] * 40)
    assert peer.read(1_000) == b"x" * 1_000
    assert len(scratch) * 0.9 < peer.server.let_go() <= len(scratch)
    scratch[:] = bytes(len(scratch))
    held = [peer.server.let_go()]
    for _ in range(39):
        assert peer.read(10_000) == b"x" * 10_000
        held.append(peer.server.let_go())
    assert held == sorted(held, reverse=True)
    assert held[20] <= len(scratch) * 0.6
    assert peer.read(9_000) == b"x" * 9_000
    assert peer.server.let_go() == 0


def test_the_memory_is_the_callers_again() -> None:
    peer = Peer()
    for part in (b"x" * 10, b"x" * 20_000, b""):
        scratch = peer.sent(b"x" * 20_000)
        if part:
            peer.read(len(part))
        peer.server.let_go()
        scratch.clear()  # which it cannot be while anything points into it
        peer.read(40_000)
        peer.server.let_go()


def test_large_pieces_leave_no_large_buffers_behind() -> None:
    """Python's buffers in memory never shrink: they would be as large as what was once received at a time."""
    peer = Peer()
    sent = 0
    for _ in range(40):
        peer.client.write(b"x" * 16_000)
        sent += 16_000
    peer.deliver()
    largest = 0
    while sent:
        sent -= len(peer.read(1_000))
        largest = max(largest, peer.server._incoming.pending)
    assert largest <= 64 << 10
    assert not peer.server.has_more or not peer.read(1)


def test_a_record_that_arrives_in_parts() -> None:
    peer = Peer()
    peer.client.write(b"z" * 3000)
    whole = peer.outgoing.read()
    for part in (whole[:3], whole[3:1000], whole[1000:-1]):
        peer.server.receive(memoryview(bytearray(part)))
        assert peer.read(10_000) == b""
        assert not peer.server.has_more
        peer.server.let_go()
    peer.server.receive(memoryview(whole[-1:]))
    assert peer.read(10_000) == b"z" * 3000


def test_the_end_comes_behind_what_was_sent_before() -> None:
    peer = Peer()
    peer.client.write(b"last")
    with suppress(ssl.SSLWantReadError):
        peer.client.unwrap()
    peer.deliver()
    assert peer.read(100) == b"last"
    assert peer.server.has_more, "it is yet to be told"
    for _ in range(2):
        with pytest.raises(PeerEnded):
            peer.read(100)


def test_a_record_that_was_changed_on_its_way_fails_behind_the_good_ones() -> None:
    peer = Peer()
    peer.client.write(b"good")
    good = peer.outgoing.read()
    peer.client.write(b"changed")
    changed = bytearray(peer.outgoing.read())
    changed[-1] ^= 1
    peer.server.receive(memoryview(good + changed))
    assert peer.read(100) == b"good"
    for _ in range(2):
        with pytest.raises(EncryptionFailed, match="decryption failed or bad record mac"):
            peer.read(100)
    other = Peer()  # what OpenSSL noted about one connection is not another's
    other.sent(b"fine")
    assert other.read(100) == b"fine"


def test_what_is_no_tls_is_one_line() -> None:
    encryption = ServerCertificate(PEM, PEM).encryption()
    encryption.receive(memoryview(b"GET / HTTP/1.1\r\n\r\n"))
    with pytest.raises(EncryptionFailed, match="the client speaks HTTP, and this listener TLS"):
        encryption.shake_hands()


def test_the_end_is_said() -> None:
    peer = Peer()
    peer.server.end()
    peer.incoming.write(peer.server.take())
    assert peer.client.read(1) == b"", "it would wait for more"
