"""One event being worked on: the state so far, and what goes out with it."""

from __future__ import annotations

from dataclasses import replace

from dray.groups.classic.events import (
    Answer,
    CancelTimer,
    Effect,
    Reply,
    Result,
    ScheduleTimer,
    TimerKind,
)
from dray.groups.classic.settings import ClassicGroupSettings
from dray.groups.classic.state import ClassicGroup, GroupState, Member, Token

GROUP_WIDE = ""


class Step:
    """Lives as long as one call of `handle`: the only thing here that changes, and nobody else sees it."""

    __slots__ = ("_effects", "_replies", "group", "now_ms", "persist", "settings")

    def __init__(
        self, group: ClassicGroup, now_ms: int, settings: ClassicGroupSettings, persist: bool = False
    ) -> None:
        self.group = group
        self.now_ms = now_ms
        self.settings = settings
        self.persist = persist
        self._replies: list[Reply] = []
        self._effects: list[Effect] = []

    def enter(self, state: GroupState) -> None:
        self.group = replace(self.group, state=state, since_ms=self.now_ms)

    def reply(self, token: Token | None, answer: Answer) -> None:
        """Without effect where no request is parked."""
        if token is not None:
            self._replies.append(Reply(token, answer))

    def schedule(self, kind: TimerKind, member_id: str, after_ms: int) -> None:
        self._effects.append(ScheduleTimer(kind, member_id, self.now_ms + after_ms))

    def cancel(self, kind: TimerKind, member_id: str = GROUP_WIDE) -> None:
        self._effects.append(CancelTimer(kind, member_id))

    def start_session(self, member: Member) -> None:
        self.schedule(TimerKind.SESSION, member.member_id, member.session_timeout_ms)

    def result(self) -> Result:
        return Result(self.group, tuple(self._replies), self.persist, tuple(self._effects))
