"""What a browser sends, read with bounds: addresses, and the bodies of forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request

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
