"""The pages of groups: their list, one of them, and a reset with its preview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dray.console.forms import BadInput, form_of, moment_ms, named, whole
from dray.console.rendering import Content, as_json
from dray.console.security import note
from dray.console.text import curve_points, path
from dray.inspection.groups.resets import (
    ChosenPartitions,
    OffsetMove,
    ResetTarget,
    Target,
    find_bounds,
    plan_moves,
)
from dray.inspection.groups.views import GroupDetail, group_calls, group_view, groups_page
from dray.kafka.client import RequestFailed
from dray.kafka.client.cluster import Place
from dray.kafka.client.groups import GroupCalls, refuse_live
from dray.kafka.client.records import INT64_MAX

if TYPE_CHECKING:
    from dray.console.app import Console

AIMS: Final = {
    "earliest": ResetTarget.EARLIEST,
    "latest": ResetTarget.LATEST,
    "offset": ResetTarget.OFFSET,
    "shift": ResetTarget.SHIFT,
    "time": ResetTarget.TIME,
}


@dataclass(frozen=True)
class LagCurve:
    points: str
    """Of a line, in a drawing as wide as there are values, and 100 high."""
    width: int
    least: int
    most: int


def _curve(values: Sequence[int | None]) -> LagCurve | None:
    """None where there are too few to draw."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    return LagCurve(curve_points(values, max(known)), max(len(values) - 1, 1), min(known), max(known))


@dataclass(frozen=True)
class ResetView:
    group: GroupDetail
    moves: list[OffsetMove]
    """Empty until it was said where to."""
    read_again: int
    """Records that will be read a second time,"""
    passed_over: int
    """and records that will never be."""


def routes(console: Console) -> list[Route]:
    pages = _GroupPages(console)
    page = console.pages.page
    return [
        *page("/groups", "groups.html", pages.listing),
        *page("/groups/{name}", "group.html", pages.group),
        *page("/groups/{name}/reset", "group_reset.html", pages.reset),
        Route("/api/groups/{name}/lag", pages.history, methods=["GET"]),
    ]


def changing_routes(console: Console) -> list[Route]:
    pages = _GroupPages(console)
    return [
        Route("/groups/{name}/reset", pages.do_reset, methods=["POST"]),
        Route("/groups/{name}/delete", pages.do_delete, methods=["POST"]),
    ]


class _GroupPages:
    def __init__(self, console: Console) -> None:
        self._lags = console.lags
        self._brokers = console.brokers
        self._principal = console.principal
        self._stored = console.stored

    async def listing(self, request: Request) -> Content:
        query = request.query_params
        page = whole(query.get("page"), "page", 1, 1, 10**6)
        view = await groups_page(self._brokers, query.get("filter", "")[:249], page)
        curves = {row.name: _curve([point.lag for point in self._lags.points(row.name)]) for row in view.rows}
        sampled = {row.name: self._lags.points(row.name) for row in view.rows}
        behind = {name: points[-1].lag_ms if points else None for name, points in sampled.items()}
        return Content(view, {"curves": curves, "behind": behind})

    async def group(self, request: Request) -> Content:
        view = await self._view(named(request))
        if any(row.lag is not None for row in view.partitions):
            self._lags.seen(view.name, view.lag, view.lag_ms)
        points = self._lags.points(view.name)
        return Content(
            view,
            {
                "points": points,
                "lag_curve": _curve([point.lag for point in points]),
                "age_curve": _curve([point.lag_ms for point in points]),
            },
        )

    async def history(self, request: Request) -> Response:
        """The curves of a group's page as numbers."""
        view = await self._view(named(request))
        return as_json({"group": view.name, "points": self._lags.points(view.name)})

    async def _view(self, name: str) -> GroupDetail:
        return await group_view(self._brokers, name, None if self._stored is None else self._stored.time_of)

    async def reset(self, request: Request) -> Content:
        """Only ever a preview: nothing is changed by looking at it."""
        query = dict(request.query_params)
        group = await self._view(named(request))
        moves = await self._plan(group, query) if query.get("to") else []
        again = sum(max(0, (move.old or 0) - move.new) for move in moves if move.old is not None)
        passed = sum(max(0, move.new - (move.old or 0)) for move in moves if move.old is not None)
        return Content(
            ResetView(group, moves, again, passed),
            {"asked": dict.fromkeys(("topic", "to", "time", "offset", "by"), "") | query},
        )

    async def _plan(self, group: GroupDetail, query: Mapping[str, str]) -> list[OffsetMove]:
        calls = group_calls(self._brokers)
        committed = await calls.committed(group.name)
        target = _target(query)
        topic = query.get("topic", "")
        chosen = [ChosenPartitions(topic, None)] if topic else None
        bounds = await find_bounds(chosen, committed, target, self._brokers.cluster())
        return plan_moves(target, bounds, committed)

    async def do_reset(self, request: Request) -> Response:
        """Commits exactly the offsets that the preview showed; each that has moved meanwhile is refused, so
        that nothing happens that was not seen."""
        name, form = named(request), await form_of(request)
        moves = _moves_in(form)
        if form.get("confirm") != name:
            raise BadInput("type the group's name to confirm the reset")
        async with self._brokers.own_cluster() as cluster:
            calls = GroupCalls(cluster)
            found = await calls.describe_if_any(name)
            if found is not None and found.state != "Empty":
                refuse_live(name, found.state, len(found.members))
            before = await calls.committed(name)
            for place, (old, _) in moves.items():
                if before.get(place, -1) != old:
                    raise RequestFailed(
                        f"group {name} moved in {place[0]}-{place[1]} since the preview: look at it again"
                    )
            after = {place: new for place, (_, new) in moves.items()}
            previous = {f"{topic}-{number}": before.get((topic, number)) for topic, number in after}
            wanted = {f"{topic}-{number}": offset for (topic, number), offset in after.items()}
            with note(self._principal, "reset group", name, before=previous, after=wanted):
                await calls.commit(name, after)
        return RedirectResponse(f"/groups/{path(name)}", 303)

    async def do_delete(self, request: Request) -> Response:
        name, form = named(request), await form_of(request)
        if form.get("confirm") != name:
            raise BadInput("type the group's name to confirm that it is deleted")
        async with self._brokers.own_cluster() as cluster:
            calls = GroupCalls(cluster)
            with note(self._principal, "delete group", name):
                await calls.delete(name)
        return RedirectResponse("/groups", 303)


def _target(query: Mapping[str, str]) -> Target:
    aim = AIMS.get(query.get("to", ""))
    match aim:
        case None:
            raise BadInput(f"a reset goes to one of {', '.join(AIMS)}")
        case ResetTarget.OFFSET:
            return aim, whole(query.get("offset"), "offset", 0, 0, INT64_MAX)
        case ResetTarget.SHIFT:
            return aim, whole(query.get("by"), "distance", 0, -INT64_MAX, INT64_MAX)
        case ResetTarget.TIME:
            return aim, moment_ms(query.get("time", ""))
        case _:
            return aim, 0


def _moves_in(form: Mapping[str, str]) -> dict[Place, tuple[int, int]]:
    """Fields `move.N` of the form, each `partition:old:new:topic`; old is -1 where nothing was committed."""
    moves: dict[Place, tuple[int, int]] = {}
    for name, value in form.items():
        if not name.startswith("move."):
            continue
        try:
            partition, old, new, topic = value.split(":", 3)
            moves[topic, int(partition)] = int(old), int(new)
        except ValueError as error:
            raise BadInput("the preview cannot be read: look at it again") from error
    if not moves:
        raise BadInput("there is nothing to reset")
    return moves
