"""Linking and switching many topics: shown together, asked for once; what fails does not hold up the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from tests.services.two_builds import MIGRATION
from typer.testing import CliRunner

from dray.cli.main import app
from dray.daemons.assembly.failures import Failure
from dray.daemons.migrator import links
from dray.migration.attach.found import MigrationRefused
from dray.migration.live.link import LinkPlan
from dray.migration.live.moving_topic import UsersLook
from dray.migration.record import MigrationRecord, MigrationState
from dray.migration.source.source import Leadership, SourceEnd

RECORD = replace(
    MIGRATION, state=MigrationState.MIRRORING, upstream="old", source_topic_id=UUID(int=6), attempt=0
)
END = SourceEnd(Leadership(1, 0), 0, 9, 9, 9)


@dataclass
class Moves:
    """What the commands ask for."""

    at_source: list[str] = field(default_factory=lambda: ["orders.a", "orders.b", "orders.c"])
    states: dict[str, MigrationState] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    users: dict[str, UsersLook] = field(default_factory=dict)
    done: list[tuple[str, ...]] = field(default_factory=list)

    def names_at(self, _: object, upstream: str, pattern: str, __: object) -> list[str]:
        assert (upstream, pattern) == ("old", "orders.*")
        return self.at_source

    def linked(self, _: object, pattern: str = "*") -> dict[str, MigrationState]:
        assert pattern in ("*", "orders.*")
        return self.states

    def preview(self, _: object, request: links.LinkRequest) -> links.LinkPreview:
        self._check("preview", request.topic)
        plan = LinkPlan(request.topic, UUID(int=6), {0: END}, {0: 1 << 20}, ["g"], (), ["the source is old"])
        return links.LinkPreview(plan, None, {})

    def link(self, _: object, request: links.LinkRequest, approve: Callable[[Any], bool]) -> MigrationRecord:
        self._check("link", request.topic)
        assert approve(None)
        self.done.append(("link", request.topic, str(request.open_to_all)))
        return RECORD

    def switch(
        self, _: object, topic: str, fence: str, approve: Callable[[Any], bool], *__: object, **said: object
    ) -> MigrationRecord | None:
        self._check("switch", topic)
        look = links.SwitchPreview(
            RECORD, {0: 3}, users=self.users.get(topic, UsersLook()), pause_seconds=0.4
        )
        if not approve(look):
            return None
        self.done.append(("switch", topic, fence, str(said["allows"])))
        return replace(RECORD, state=MigrationState.PENDING)

    def wait_switched(self, _: object, topic: str, *__: object) -> MigrationRecord:
        self._check("wait", topic)
        self.done.append(("wait", topic))
        return RECORD

    def _check(self, step: str, topic: str) -> None:
        if why := self.broken.get(f"{step} {topic}"):
            raise MigrationRefused(why)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Moves:
    made = Moves()
    for name in ("names_at", "linked", "preview", "link", "switch", "wait_switched"):
        monkeypatch.setattr(links, name, getattr(made, name))
    return made


def drayd(*arguments: str) -> tuple[str, str]:
    """What is said, and how it fails."""
    done = CliRunner().invoke(app, ["migrate", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        assert isinstance(done.exception, Failure), done.exception
        return done.stdout + done.stderr, str(done.exception)
    return done.stdout, ""


LINK = ("link", "orders.*", "--from-cluster", "old")


def test_all_topics_of_a_pattern_that_are_not_linked_yet(moves: Moves) -> None:
    moves.states = {"orders.b": MigrationState.MOVED}
    said, failure = drayd(*LINK, "--open-to-all", "--execute")
    assert failure == ""
    assert moves.done == [("link", "orders.a", "True"), ("link", "orders.c", "True")]
    assert "orders.a: the source is old" in said
    assert "1 topics are linked already" in said


def test_without_execute_nothing_is_done(moves: Moves) -> None:
    assert drayd(*LINK) == drayd(*LINK, "--look")
    said, failure = drayd(*LINK)
    assert "orders.a: the source is old" in said
    assert failure == ""
    assert moves.done == []
    moves.at_source = []
    assert "no topic of old that is not linked yet is named by 'orders.*'" in drayd(*LINK, "--execute")[1]


def test_a_topic_that_fails_does_not_hold_up_the_others(moves: Moves) -> None:
    moves.broken = {"preview orders.a": "it has no leader", "link orders.b": "topic orders.b exists here"}
    said, failure = drayd(*LINK, "--execute")
    assert moves.done == [("link", "orders.c", "False")]
    assert failure == "2 topics failed: see above"
    assert {"topic orders.a: it has no leader", "topic orders.b exists here"} <= {*said.splitlines()}


def mirrored(moves: Moves) -> None:
    moves.states = {
        "orders.a": MigrationState.MIRRORING,
        "orders.b": MigrationState.SWITCHED,
        "orders.c": MigrationState.MIRRORING,
    }


@pytest.mark.parametrize("which", ["--all", "orders.*"])
def test_all_that_are_mirrored_are_switched(moves: Moves, which: str) -> None:
    mirrored(moves)
    said, failure = drayd("switch", which, "--fence", "size", "--consumers-stopped", "--wait", "--execute")
    assert failure == ""
    allowed = "('assigning',)"
    assert moves.done == [
        ("switch", "orders.a", "size", allowed),
        ("switch", "orders.c", "size", allowed),
        ("wait", "orders.a"),
        ("wait", "orders.c"),
    ]
    assert "0.4 s" in said


def test_none_is_switched_where_one_is_refused(moves: Moves) -> None:
    mirrored(moves)
    moves.users = {"orders.c": UsersLook(["ledger"])}
    _, failure = drayd("switch", "--all", "--execute")
    assert moves.done == []
    assert failure.startswith("nothing was done: transactions are written to orders.c")
    assert drayd("switch", "--all", "--without-transactions", "--execute")[1] == ""
    assert len(moves.done) == 2


def test_a_switch_that_goes_back_is_named_and_the_others_go_on(moves: Moves) -> None:
    mirrored(moves)
    moves.broken = {"wait orders.a": "topic orders.a: the switch went back"}
    _, failure = drayd("switch", "--all", "--wait", "--execute")
    assert failure == "topic orders.a: the switch went back"
    assert moves.done[-1] == ("wait", "orders.c")


def test_which_topics_are_meant_has_to_be_said(moves: Moves) -> None:
    for arguments in ((), ("orders", "--all")):
        assert "which topic?" in drayd("switch", *arguments, "--execute")[1]
    assert "no topic that is mirrored is meant" in drayd("switch", "--all", "--execute")[1]
