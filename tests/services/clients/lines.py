"""Records as lines of text, which programs of ours in other languages read and write."""

from __future__ import annotations

from tests.services.clients.contract import Message


def field_of(value: bytes | None) -> str:
    return "-" if value is None else "x" + value.hex()


def value_of(field: str) -> bytes | None:
    return None if field == "-" else bytes.fromhex(field[1:])


def line_of(message: Message) -> str:
    """offset, timestamp, its type, key, value, then key and value of every header, with tabs between."""
    fields = [str(message.offset), str(message.timestamp), message.timestamp_type]
    fields += [field_of(message.key), field_of(message.value)]
    for key, value in message.headers:
        fields += [field_of(key.encode()), field_of(value)]
    return "\t".join(fields)


def message_of(line: str) -> Message:
    offset, timestamp, timestamp_type, key, value, *headers = line.split("\t")
    return Message(
        key=value_of(key),
        value=value_of(value),
        headers=tuple(
            ((value_of(name) or b"").decode(), value_of(held))
            for name, held in zip(headers[::2], headers[1::2], strict=True)
        ),
        timestamp=int(timestamp),
        offset=int(offset),
        timestamp_type=timestamp_type,
    )
