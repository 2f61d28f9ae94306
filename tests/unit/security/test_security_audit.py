"""The audit log: what is in a line, and how many lines there are."""

from __future__ import annotations

from collections import Counter

import pytest
import structlog

from dray.security.audit import AUTHENTICATE, CHANGES, OTHERS, QUIET_SECONDS, AuditedAct, AuditLog

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


def test_the_count_is_written_when_the_minute_is_over_and_nothing_comes_any_more() -> None:
    audited = Audited()
    other = ACT._replace(name="other")
    for act in (ACT, other, ACT, ACT):
        audited.log.note(act)
    audited.now = QUIET_SECONDS - 1
    audited.log.write_counted()
    assert audited.lines == [(ACT, 1, 0), (other, 1, 0)]
    audited.now = QUIET_SECONDS
    audited.log.write_counted()
    audited.log.write_counted()
    assert audited.lines[2:] == [(ACT, 2, 0)], "and nothing for what came once"
    audited.log.note(ACT)
    audited.log.note(ACT)
    audited.log.write_counted(everything=True)
    assert audited.lines[3:] == [(ACT, 1, 0), (ACT, 1, 0)], "a broker that ends says all it knows"
    assert not audited.log._recent


@pytest.mark.parametrize("allowed", [True, False])
def test_many_acts_are_bounded_in_rate_and_the_next_line_tells(allowed: bool) -> None:
    rates = (CHANGES if allowed else OTHERS).of_one
    act = ACT._replace(allowed=allowed)
    audited = Audited()
    for number in range(int(rates.burst) + 50):
        audited.log.note(act._replace(name=str(number)))
    assert len(audited.lines) == rates.burst
    assert all(left_out == 0 for _, _, left_out in audited.lines)
    audited.now = 1.0
    for number in range(1000):
        audited.log.note(act._replace(name=f"later {number}"))
    assert len(audited.lines) == rates.burst + rates.a_second
    assert audited.lines[int(rates.burst)][2] == 50
    outcome = "allowed" if allowed else "denied"
    assert audited.counted == {outcome: rates.burst + 1050, "left out": 50 + 1000 - rates.a_second}


def test_many_clients_together_are_bounded_too() -> None:
    audited = Audited()
    for number in range(20_000):
        audited.log.note(ACT._replace(principal=f"User:{number}"))
    assert len(audited.lines) == OTHERS.of_all.burst
    assert len(audited.log._denials._sources) <= 1_000


LOGIN = AuditedAct(True, "User:alice", "10.0.0.1", AUTHENTICATE, "LISTENER", "SECURE", "SCRAM-SHA-512")
CHANGE = AuditedAct(True, "User:admin", "10.0.0.9", "ALTER", "CLUSTER", "kafka-cluster")


@pytest.mark.parametrize("noise", [ACT, LOGIN, LOGIN._replace(allowed=False)])
def test_nobody_hides_what_an_administrator_changes_behind_its_own_noise(noise: AuditedAct) -> None:
    audited = Audited()
    for number in range(100):
        audited.now = number / 10
        for more in range(300):
            audited.log.note(noise._replace(name=f"{number} {more}", principal=f"User:{more}"))
        audited.log.note(CHANGE._replace(about=f"add ACL {number}"))
    assert sum(act.operation == "ALTER" for act, _, _ in audited.lines) == 100


def test_a_client_does_not_hide_refusals_of_others_nor_their_logins() -> None:
    audited = Audited()
    for number in range(100):
        audited.now = number * 1.0
        for more in range(300):
            audited.log.note(ACT._replace(name=f"{number} {more}"))
            audited.log.note(LOGIN._replace(allowed=False, principal=f"User:{number}-{more}"))
        audited.log.note(ACT._replace(principal="User:mallory", name=f"secret {number}"))
        audited.log.note(LOGIN._replace(name=f"{number}"))
        audited.log.note(LOGIN._replace(allowed=False, host="10.0.0.2", name=f"{number}"))
    written = [act for act, _, _ in audited.lines]
    assert sum(act.principal == "User:mallory" for act in written) == 100
    assert sum(act.is_login and act.allowed for act in written) == 100
    assert sum(act.host == "10.0.0.2" for act in written) == 100
    assert audited.counted["login failed"] == 30_100


def test_what_clients_choose_is_held_within_bounds() -> None:
    audited = Audited()
    for number in range(20_000):
        audited.now += 1.0
        name = f"{number}" + "x" * 100_000
        audited.log.note(ACT._replace(name=name, principal=name, about=name))
    assert len(audited.lines) == 20_000
    assert max(len(text) for act, _, _ in audited.lines for text in act[1:]) == 256
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
