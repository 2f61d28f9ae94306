"""The source of the table of APIs, which is all that headers and look-ups need to know of the messages."""

from __future__ import annotations

from kio.schema.index import api_key_map
from tools.generator.module import HEADING
from tools.generator.schema import Message


def table_source(apis: dict[str, list[Message]], kio_version: str) -> str:
    lines = [
        HEADING.format(
            origin=f"kio {kio_version}",
            summary="The keys of Kafka's APIs, and the versions of those that have messages here.",
        )
    ]
    lines.append("from __future__ import annotations\n")
    lines.append("from enum import IntEnum")
    lines.append("from typing import Final, NamedTuple\n")
    lines.append("from dray.kafka.protocol.message import NEVER_FLEXIBLE\n\n")
    lines.append("class ApiKey(IntEnum):")
    lines.extend(f"    {name.upper()} = {key}" for key, name in sorted(api_key_map.items()))
    lines.append("\n")
    lines.append("class ApiSchema(NamedTuple):")
    lines.append("    module: str")
    lines.append("    name: str")
    lines.append("    first_version: int")
    lines.append("    last_version: int")
    lines.append("    flexible_from: int\n\n")
    lines.append("SCHEMAS: Final[dict[int, ApiSchema]] = {")
    for api, messages in sorted(apis.items(), key=lambda item: item[1][0].api_key or 0):
        request, response = messages
        if request.versions != response.versions or request.flexible != response.flexible:
            raise ValueError(f"request and response of {api} do not agree on their versions")
        flexible = str(min(request.flexible)) if request.flexible else "NEVER_FLEXIBLE"
        lines.append(
            f'    {request.api_key}: ApiSchema("{api}", "{request.name[:-7]}", '
            f"{min(request.versions)}, {max(request.versions)}, {flexible}),"
        )
    lines.append("}")
    return "\n".join(lines) + "\n"
