"""Templates, and the answers made of them: each page also as the JSON of its view."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dray.console import text
from dray.inspection.plain import as_plain

STATIC: Final = files("dray.console") / "static"


@dataclass(frozen=True)
class Content:
    """The content of a page: its view, which is also its JSON, and what only its template needs."""

    view: Any
    more: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


Gather: TypeAlias = Callable[[Request], Awaitable[Content]]


class Templates:
    def __init__(self, shared: Mapping[str, Any]) -> None:
        self._environment = Environment(
            loader=PackageLoader("dray.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            number=text.number,
            size=text.size,
            price=text.price,
            duration=text.duration,
            moment=text.moment,
            plural=text.plural,
            path=text.path,
            share=text.share,
        )
        self._environment.globals.update(
            static=static_address, address=address, is_text=lambda value: isinstance(value, str), **shared
        )

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        return self._environment.get_template(name).render(values)


def address(base: str, **parameters: Any) -> str:
    """With the parameters that are given; None and nothing are left out."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{base}?{urlencode(given)}" if given else base


def static_address(name: str) -> str:
    """Changes with the file, so that browsers may keep it for ever."""
    return f"/static/{name}?v={_digest(name)}"


def _digest(name: str) -> str:
    known = _DIGESTS.get(name)
    if known is None:
        known = _DIGESTS[name] = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return known


_DIGESTS: Final[dict[str, str]] = {}


class Pages:
    """Makes routes of pages: `path` is HTML, and `/api` before it JSON."""

    def __init__(self, templates: Templates) -> None:
        self.templates = templates

    def page(self, path: str, template: str, gather: Gather) -> list[Route]:
        async def html(request: Request) -> Response:
            content = await gather(request)
            return self.answer(request, template, content)

        async def plain(request: Request) -> Response:
            content = await gather(request)
            return as_json(content.view, content.status)

        api = f"/api{path}" if path != "/" else "/api/cluster"
        return [Route(path, html, methods=["GET"]), Route(api, plain, methods=["GET"])]

    def answer(self, request: Request, template: str, content: Content) -> Response:
        body = self.templates.render(
            template, {"view": content.view, "here": request.scope["path"], **content.more}
        ).encode(errors="backslashreplace")
        tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        headers = {"Cache-Control": "private, no-store", "ETag": tag}
        if content.status == 200 and request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, content.status, headers, "text/html; charset=utf-8")


def as_json(view: Any, status: int = 200) -> Response:
    return _Json(as_plain(view), status, {"Cache-Control": "private, no-store"})


class _Json(JSONResponse):
    def render(self, content: Any) -> bytes:
        # A lone surrogate from a hostile name is escaped, not a failure.
        return json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode()
