"""The source of one module of messages."""

from __future__ import annotations

import re

from tools.generator.body import Body, Least, needs_declaration, struct_format
from tools.generator.schema import Message, Struct
from tools.generator.source import Source, annotation, attribute_default, local

HEADING = '''"""Generated from Kafka's schema ({origin}) by tools/generate_messages.py. Do not edit.

{summary}
"""
'''
_WIRE_NAMES = re.compile(
    r"\b(?:(?:read|write|skip|make)_[a-z_]+|ZERO_UUID|Buffer|Records|Cuts|DecodeError|EncodeError)\b"
)
_PACKERS = re.compile(r"\b(pack|unpack)_([a-zA-Z]+)\(")


def module_source(messages: list[Message], origin: str) -> str:
    classes = Source()
    written: dict[str, Struct] = {}
    for message in messages:
        for struct in message.structs:
            if written.get(struct.name) == struct:
                continue
            if struct.name in written:
                raise ValueError(f"two different structs are named {struct.name}")
            written[struct.name] = struct
            _write_class(classes, message, struct)
    return _heading(messages, classes.text(), origin) + classes.text()


def _heading(messages: list[Message], text: str, origin: str) -> str:
    summary = "\n".join(f"{message.name}: {_span(message.versions).lower()}" for message in messages)
    lines = [HEADING.format(origin=origin, summary=summary)]
    lines.append("from __future__ import annotations\n")
    lines.append(
        "from dataclasses import dataclass, field"
        if "= field(" in text
        else "from dataclasses import dataclass"
    )
    packers = sorted(set(_PACKERS.findall(text)), key=lambda pair: (pair[1], pair[0]))
    if packers:
        lines.append("from struct import Struct as Layout")
    if "UUID" in text.replace("ZERO_UUID", ""):
        lines.append("from uuid import UUID")
    bases = {"request": "Request", "response": "Response", "data": "Message"}
    names = {bases[message.direction] for message in messages} | (
        {"Struct"} if "(Struct):" in text else set()
    )
    if "NEVER_FLEXIBLE" in text:
        names.add("NEVER_FLEXIBLE")
    lines.append("")
    lines.append(f"from dray.kafka.protocol.message import {', '.join(sorted(names))}")
    lines.append("from dray.kafka.protocol.wire import (")
    fields = {field.name for message in messages for struct in message.structs for field in struct.fields}
    lines.extend(f"    {name}," for name in sorted(set(_WIRE_NAMES.findall(text)) - fields))
    lines.append(")\n")
    for verb, name in packers:
        method = "pack" if verb == "pack" else "unpack_from"
        lines.append(f'{verb}_{name} = Layout("{struct_format(name)}").{method}')
    return "\n".join(lines) + "\n"


def _span(versions: set[int]) -> str:
    first, last = min(versions), max(versions)
    return f"Version {first}" if first == last else f"Versions {first} to {last}"


def _write_class(source: Source, message: Message, struct: Struct) -> None:
    is_message = struct is message.structs[-1]
    base = "Struct"
    if is_message:
        base = {
            "request": f'Request["{message.name[:-7]}Response"]',
            "response": "Response",
            "data": "Message",
        }[message.direction]
    source.line()
    source.line()
    source.line("@dataclass(slots=True, eq=False, repr=False)")
    with source.block(f"class {struct.name}({base}):"):
        # With a docstring of its own, a class saves dataclasses the slow work of writing one at import.
        part = "" if is_message else f" Part of {message.name}."
        source.line(f'"""{_span(struct.versions)}.{part}"""')
        source.line()
        if is_message:
            if message.api_key is not None:
                source.line(f"API_KEY = {message.api_key}")
            source.line(f"VERSIONS = ({min(message.versions)}, {max(message.versions)})")
            source.line(f"FLEXIBLE_FROM = {min(message.flexible) if message.flexible else 'NEVER_FLEXIBLE'}")
            source.line()
        for field in struct.fields:
            source.line(f"{field.name}: {annotation(field, message.direction)} = {attribute_default(field)}")
        source.line()
        source.line("@staticmethod")
        arguments = "buffer: memoryview, position: int, limit: int, version: int"
        with source.block(f"def read({arguments}) -> tuple[{struct.name}, int]:"):
            for field in struct.fields:
                if needs_declaration(field):
                    source.line(f"{local(field)}: {annotation(field, message.direction)}")
            _bodies(source, message, struct, "read")
        source.line()
        with source.block("def write(self, out: bytearray, version: int, cuts: Cuts) -> None:"):
            _bodies(source, message, struct, "write")


def _bodies(source: Source, message: Message, struct: Struct, verb: str) -> None:
    flexible = struct.versions & message.flexible
    legacy = struct.versions - message.flexible
    least = Least(message)
    if flexible:
        with source.block(f"if version >= {min(message.flexible)}:" if legacy else None):
            getattr(Body(source, struct, flexible, True, least), verb)()
            if legacy and verb == "write" and source.lines[-1].strip() != "return":
                source.line("return")
    if legacy:
        getattr(Body(source, struct, legacy, False, least), verb)()
