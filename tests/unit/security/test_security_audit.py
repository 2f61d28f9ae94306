"""The audit log: what is in a line, and how many lines there are."""

from __future__ import annotations

from collections import Counter

import structlog

from dray.security.audit import BURST, LINES_A_SECOND, QUIET_SECONDS, AuditedAct, AuditLog

ACT = AuditedAct(False, "User:alice", "10.0.0.1", "WRITE", "TOPIC", "orders")


class Audited:
    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[tuple[AuditedAct, int, int]] = []
        self.log = AuditLog(lambda: self.now, lambda *line: self.lines.append(line))
        self.counted: Counter[str] = Counter()
        self.log.count = lambda outcome: self.counted.update([outcome])


def test_the_same_again_is_counted() -> None:
    audited = Audited()
    for second in range(int(QUIET_SECONDS)):
        audited.now = float(second)
        audited.log.note(ACT)
    assert audited.lines == [(ACT, 1, 0)]
    audited.now = QUIET_SECONDS
    audited.log.note(ACT)
    assert audited.lines[1:] == [(ACT, int(QUIET_SECONDS), 0)]


def test_many_acts_are_bounded_in_rate_and_the_next_line_tells() -> None:
    audited = Audited()
    for number in range(int(BURST) + 50):
        audited.log.note(ACT._replace(name=str(number)))
    assert len(audited.lines) == BURST
    assert all(left_out == 0 for _, _, left_out in audited.lines)
    audited.now = 1.0
    for number in range(1000):
        audited.log.note(ACT._replace(name=f"later {number}"))
    assert len(audited.lines) == BURST + LINES_A_SECOND
    assert audited.lines[int(BURST)][2] == 50
    assert audited.counted == {"denied": BURST + 1050, "left out": 50 + 1000 - LINES_A_SECOND}


def test_what_clients_choose_is_held_within_bounds() -> None:
    audited = Audited()
    for number in range(20_000):
        audited.now += 1.0
        audited.log.note(ACT._replace(name=f"{number}" + "x" * 100_000))
    assert len(audited.lines) == 20_000
    assert max(len(act.name) for act, _, _ in audited.lines) == 256
    assert len(audited.log._recent) <= 5_000


def test_a_line_says_who_did_what_to_which_resource() -> None:
    log = AuditLog(lambda: 0.0)
    with structlog.testing.capture_logs() as lines:
        log.note(ACT)
        log.note(ACT._replace(allowed=True, operation="DELETE"))
    shown = {"audit": True, "principal": "User:alice", "host": "10.0.0.1", "resource": "TOPIC"}
    shown |= {"name": "orders", "times": 1, "log_level": "info"}
    assert lines == [
        {"event": "denied", "operation": "WRITE", **shown},
        {"event": "allowed", "operation": "DELETE", **shown},
    ]
