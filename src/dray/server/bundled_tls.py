"""TLS by the OpenSSL that the package `cryptography` brings along.

It is newer than that of most systems, and decrypts records of TLS in less than half the processor time
(docs/design/0084-tls-speed.md). What is used of it is what `cryptography` binds for pyOpenSSL. Importing this
takes 7 MB: only a broker with a listener that encrypts does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.bindings._rust import _openssl

from dray.server._tls_records import read_records, send_records, take
from dray.server.encryption import EncryptionFailed, PeerEnded
from dray.server.handshakes import meaning_of, verification_failed
from dray.server.tls import context_named

if TYPE_CHECKING:
    from dray.server.connection import Buffer

_lib: Final[Any] = _openssl.lib
_ffi: Final[Any] = _openssl.ffi


def _address(value: Any) -> int:
    return int(_ffi.cast("uintptr_t", value))


_SSL_READ: Final = _address(_ffi.addressof(_lib, "SSL_read"))
_SSL_WRITE: Final = _address(_ffi.addressof(_lib, "SSL_write"))
_BIO_READ: Final = _address(_ffi.addressof(_lib, "BIO_read"))
_WANTS_MORE: Final = (_lib.SSL_ERROR_WANT_READ, _lib.SSL_ERROR_WANT_WRITE)
_OPTIONS: Final = (
    _lib.SSL_OP_NO_COMPRESSION
    | _lib.SSL_OP_CIPHER_SERVER_PREFERENCE
    | _lib.SSL_OP_SINGLE_ECDH_USE
    | _lib.SSL_OP_NO_RENEGOTIATION
)
_SUITES: Final = b"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
"""Of TLS 1.3. OpenSSL's own order has AES-256 first, which takes both ends a tenth longer."""
_CIPHERS: Final = (
    b"@SECLEVEL=2:ECDHE+AES128+AESGCM:ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"
)
"""Of TLS 1.2: those of Python's `ssl` that have forward secrecy, in the same order."""
_SESSIONS: Final = b"dray"
_LARGEST_REASON: Final = 200

VERSION: Final = str(_ffi.string(_lib.OpenSSL_version(_lib.OPENSSL_VERSION)).decode())


class Unusable(Exception):
    """Why a certificate, a key or authorities cannot be used: OpenSSL's words."""


def _reason() -> str:
    """The first error that OpenSSL has noted, in its words; the later ones say what that led to. It forgets
    all of them."""
    code = _lib.ERR_get_error()
    text = _lib.ERR_reason_error_string(code) if code else _ffi.NULL
    _lib.ERR_clear_error()
    return "unknown error" if text == _ffi.NULL else _ffi.string(text, _LARGEST_REASON).decode("latin-1")


def _refuse_password(_buffer: Any, _size: int, _writing: int, _data: Any) -> int:
    """Without this, OpenSSL would ask for the password of a key on the terminal."""
    return -1


_no_password: Final = _ffi.callback("int(char *, int, int, void *)", _refuse_password)


class BundledContext:
    """What connections are made of: a certificate with its key, and what is asked of clients. Reads files."""

    def __init__(
        self,
        certificate_file: Path,
        key_file: Path,
        *,
        client_auth: str = "none",
        client_authorities: Path | None = None,
        checks_revocation: bool = False,
    ) -> None:
        _lib.ERR_clear_error()
        self.pointer: Any = _ffi.gc(_lib.SSL_CTX_new(_lib.TLS_server_method()), _lib.SSL_CTX_free)
        context = self.pointer
        _lib.SSL_CTX_set_options(context, _OPTIONS)
        _lib.SSL_CTX_set_min_proto_version(context, _lib.TLS1_2_VERSION)
        _lib.SSL_CTX_set_mode(
            context, _lib.SSL_MODE_RELEASE_BUFFERS | _lib.SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
        )
        self._done(_lib.SSL_CTX_set_ciphersuites(context, _SUITES))
        self._done(_lib.SSL_CTX_set_cipher_list(context, _CIPHERS))
        _lib.SSL_CTX_set_default_passwd_cb(context, _no_password)
        self._done(_lib.SSL_CTX_use_certificate_chain_file(context, bytes(certificate_file)))
        self._done(_lib.SSL_CTX_use_PrivateKey_file(context, bytes(key_file), _lib.SSL_FILETYPE_PEM))
        self._done(_lib.SSL_CTX_check_private_key(context))
        self._done(_lib.SSL_CTX_set_session_id_context(context, _SESSIONS, len(_SESSIONS)))
        if client_auth != "none":
            mode = _lib.SSL_VERIFY_PEER
            if client_auth == "required":
                mode |= _lib.SSL_VERIFY_FAIL_IF_NO_PEER_CERT
            _lib.SSL_CTX_set_verify(context, mode, _ffi.NULL)
            # A session that is resumed is not verified again: who was revoked could come back for hours.
            _lib.SSL_CTX_set_options(context, _lib.SSL_OP_NO_TICKET)
            _lib.SSL_CTX_set_session_cache_mode(context, _lib.SSL_SESS_CACHE_OFF)
        if client_authorities is not None:
            self._done(
                _lib.SSL_CTX_load_verify_locations(context, bytes(client_authorities), _ffi.NULL),
            )
            if checks_revocation:
                store = _lib.SSL_CTX_get_cert_store(context)
                self._done(_lib.X509_STORE_set_flags(store, _lib.X509_V_FLAG_CRL_CHECK))
        self._choose: Any = None
        self._by_name: Mapping[str, BundledContext] = {}

    def choose_by_name(self, by_name: Mapping[str, BundledContext]) -> None:
        """Clients that ask for one of these names (SNI) get its certificate, all others this one."""

        def choose(connection: Any, _alert: Any, _data: Any) -> int:
            asked = _lib.SSL_get_servername(connection, _lib.TLSEXT_NAMETYPE_host_name)
            if asked != _ffi.NULL:
                found = context_named(self._by_name, _ffi.string(asked).decode("latin-1"))
                if found is not None:
                    _lib.SSL_set_SSL_CTX(connection, found.pointer)
            return int(_lib.SSL_TLSEXT_ERR_OK)

        self._by_name = by_name
        self._choose = _ffi.callback(
            "int(SSL *, int *, void *)", choose, error=_lib.SSL_TLSEXT_ERR_ALERT_FATAL
        )
        _lib.SSL_CTX_set_tlsext_servername_callback(self.pointer, self._choose)

    @staticmethod
    def _done(outcome: int) -> None:
        if outcome != 1:
            raise Unusable(_reason())


class BundledEncryption:
    """An `Encryption`. What is received is read where it lies."""

    __slots__ = (
        "_context",
        "_copied",
        "_ending",
        "_held",
        "_incoming",
        "_more",
        "_outgoing",
        "_outgoing_address",
        "_place",
        "_ssl",
        "_ssl_address",
    )

    def __init__(self, context: BundledContext) -> None:
        self._context = context  # with its callbacks
        self._ssl = _ffi.gc(_lib.SSL_new(context.pointer), _lib.SSL_free)
        self._ssl_address = _address(self._ssl)
        _lib.SSL_set_accept_state(self._ssl)
        self._outgoing = _lib.BIO_new(_lib.BIO_s_mem())  # the connection's, as the incoming one
        self._outgoing_address = _address(self._outgoing)
        self._held: Any = None  # what the incoming BIO lies in
        self._copied = 0  # the size of that, where it is our own copy
        self._incoming: Any = None
        self._place = _ffi.new("char *[1]")
        self._read_copy(b"")
        self._more = False
        self._ending: Exception | None = None  # what came behind bytes that were read

    def _read_from(self, held: Any, size: int) -> None:
        """Have OpenSSL read what lies there. The BIO before is freed with all that it had."""
        incoming = _lib.BIO_new_mem_buf(held, size)
        _lib.BIO_set_mem_eof_return(incoming, -1)
        _lib.SSL_set_bio(self._ssl, incoming, self._outgoing)
        self._incoming = incoming
        self._held = held

    def receive(self, data: memoryview) -> None:
        self._more = True
        rest = self._rest()
        if rest:
            self._read_copy(rest + data)
        else:
            self._read_from(_ffi.from_buffer(data), len(data))
            self._copied = 0

    def _read_copy(self, data: bytes) -> None:
        self._read_from(_ffi.from_buffer(data), len(data))
        self._copied = len(data)

    def _rest_size(self) -> int:
        return max(0, int(_lib.BIO_get_mem_data(self._incoming, self._place)))

    def _rest(self) -> bytes:
        size = self._rest_size()
        return bytes(_ffi.buffer(self._place[0], size)) if size else b""

    def let_go(self) -> int:
        size = self._rest_size()
        if not size and not self._copied:
            self._held = None  # OpenSSL looks at it no more
        elif not self._copied or size * 2 <= self._copied:
            # What is a copy already is copied again when half of it was read: no byte more than twice.
            self._read_copy(self._rest())
        return self._copied

    def shake_hands(self) -> bool:
        _lib.ERR_clear_error()
        outcome = _lib.SSL_do_handshake(self._ssl)
        if outcome == 1:
            return True
        failure = self._failure(outcome)
        if failure is None:
            return False
        raise failure

    def _failure(self, outcome: int) -> Exception | None:
        """What an answer of OpenSSL means. None: the peer has to say more."""
        kind = _lib.SSL_get_error(self._ssl, outcome)
        if kind in _WANTS_MORE:
            return None
        if kind == _lib.SSL_ERROR_ZERO_RETURN:
            return PeerEnded()
        reason = _reason()
        verified = _lib.SSL_get_verify_result(self._ssl)
        if verified:  # it stays at 0 without a certificate, and with a good one
            words = _ffi.string(_lib.X509_verify_cert_error_string(verified)).decode()
            return EncryptionFailed(verification_failed(words))
        return EncryptionFailed(meaning_of(reason))

    @property
    def has_more(self) -> bool:
        return self._more

    def read_into(self, buffer: memoryview) -> int:
        if self._ending is not None:
            raise self._ending
        _lib.ERR_clear_error()
        count, last = read_records(_SSL_READ, self._ssl_address, buffer)
        if last <= 0:
            self._ending = self._failure(last)
            self._more = self._ending is not None
            if self._ending is not None and not count:
                raise self._ending
        return count

    def write(self, data: Buffer) -> None:
        if not len(data):  # to OpenSSL a failure, and in an answer nothing special
            return
        _lib.ERR_clear_error()
        if _lib.SSL_write(self._ssl, _ffi.from_buffer(data), len(data)) <= 0:
            raise EncryptionFailed(meaning_of(_reason()))

    def take(self) -> bytes:
        size = _lib.BIO_get_mem_data(self._outgoing, self._place)
        return take(_BIO_READ, self._outgoing_address, size) if size > 0 else b""

    def send(
        self, descriptor: int, buffers: list[Buffer], limit: int, scratch: memoryview
    ) -> tuple[int, bytes]:
        _lib.ERR_clear_error()
        done, left, failed = send_records(
            _SSL_WRITE,
            self._ssl_address,
            _BIO_READ,
            self._outgoing_address,
            descriptor,
            buffers,
            limit,
            scratch,
        )
        if failed:
            raise EncryptionFailed(meaning_of(_reason()))
        return done, left

    def peer_certificate(self) -> bytes | None:
        certificate = _lib.SSL_get_peer_certificate(self._ssl)
        if certificate == _ffi.NULL:
            return None
        written = _lib.BIO_new(_lib.BIO_s_mem())
        try:
            if _lib.i2d_X509_bio(written, certificate) != 1:
                raise EncryptionFailed(meaning_of(_reason()))
            size = _lib.BIO_get_mem_data(written, self._place)
            return bytes(_ffi.buffer(self._place[0], size))
        finally:
            _lib.BIO_free(written)
            _lib.X509_free(certificate)

    def end(self) -> None:
        _lib.ERR_clear_error()
        _lib.SSL_shutdown(self._ssl)
        _lib.ERR_clear_error()
