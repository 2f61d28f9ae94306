"""A browser's input, read with bounds: addresses, and the bodies of forms."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request

from dray.kafka.client.records import INT64_MAX

LARGEST_FORM: Final = 1024 * 1024
_MOST_FIELDS: Final = 1000


class BadInput(Exception):
    """Something that was typed cannot be used; the text says why."""


def named(request: Request, parameter: str = "name") -> str:
    """A name in the address, which the gate left quoted."""
    return unquote(request.path_params[parameter], errors="replace")


def whole(text: str | None, what: str, default: int, least: int, most: int) -> int:
    if text is None or not text.strip():
        return default
    digits = text.strip().replace("_", "").replace("\u202f", "")
    try:
        value = int(digits) if len(digits) <= 20 else None
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise BadInput(f"{what} must be a whole number from {least} to {most}, not {text[:40]!r}")
    return value


def moment_ms(text: str) -> int:
    """A time without a zone is UTC; a whole number is milliseconds since 1970."""
    given = text.strip()
    if given.isascii() and given.isdigit():
        return whole(given, "time", 0, 0, INT64_MAX)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError as error:
        raise BadInput(f"time must be such as 2026-01-31T18:00 (UTC), not {given[:40]!r}") from error
    return max(0, round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a form. Of a name that stands twice, the last."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise BadInput("a form is expected")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_FORM:
            raise BadInput(f"a form may have {LARGEST_FORM} bytes")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise BadInput(f"the form cannot be read: {error}") from error
    return dict(fields)
