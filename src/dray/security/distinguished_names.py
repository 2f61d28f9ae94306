"""The name in a certificate, written as Java's `X500Principal.getName()` writes it: RFC 2253, and what that
leaves open as Java decides it, since Kafka's mapping rules and ACLs are written for such names.

The certificate has been verified: its encoding is good. It is still read with bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_TEXTS: Final = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads the bytes of all of
them as UTF-8; where they are not, there is no name here."""
_ESCAPED: Final = ',=+<>#;"\\'
_BLANK: Final = " \r"


class UnreadableCertificate(ValueError):
    """It is no certificate as RFC 5280 has it."""


def distinguished_name(certificate: bytes) -> str:
    """Of the subject of a certificate in DER. Raises `UnreadableCertificate`."""
    try:
        _, signed, _ = _element(certificate, 0)
        _, body, _ = _element(signed, 0)
        parts = _elements(body)
        tag, _, _ = next(parts)
        for _ in range(4 if tag == _VERSION else 3):  # up to the validity; the subject follows
            next(parts)
        tag, subject, _ = next(parts)
        if tag != _SEQUENCE:
            raise ValueError
        sets = [
            "+".join(_attribute(value) for _, value, _ in _elements(group))
            for _, group, _ in _elements(subject)
        ]
    except (IndexError, StopIteration, ValueError):
        raise UnreadableCertificate("the certificate is not understood") from None
    return ",".join(reversed(sets))


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag, content, and where the next one begins."""
    tag, length, position = data[position], data[position + 1], position + 2
    if length & 0x80:
        size = length & 0x7F
        length, position = int.from_bytes(data[position : position + size]), position + size
    if position + length > len(data):
        raise IndexError
    return tag, data[position : position + length], position + length


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Tag, content, and all of it."""
    position = 0
    while position < len(data):
        begin = position
        tag, content, position = _element(data, position)
        yield tag, content, data[begin:position]


def _attribute(data: bytes) -> str:
    (_, kind, _), (tag, content, whole) = _elements(data)
    number = _object_identifier(kind)
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or number}=#{whole.hex()}"
    return f"{keyword}={_escaped(content.decode())}"


def _object_identifier(data: bytes) -> str:
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    """Blanks at both ends are escaped, and what has a meaning in a name."""
    plain = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    begin = len(plain) - len(plain.lstrip(_BLANK))
    end = max(begin, len(plain.rstrip(_BLANK)))
    return (
        "".join(f"\\{each}" for each in plain[:begin])
        + plain[begin:end]
        + "".join(f"\\{each}" for each in plain[end:])
    )
