"""The audit log: what is in a line, and how many lines there are."""

from __future__ import annotations

from collections import Counter

import pytest
import structlog

from dray.broker.security.audit import (
    AUTHENTICATE,
    CHANGES,
    LISTENER,
    MADE_UP,
    NAMES_A_LINE,
    OTHERS,
    QUIET_SECONDS,
    THERE,
    AuditedAct,
    AuditLog,
    ListLine,
)

ACT = AuditedAct(False, "User:alice", "10.0.0.1", "WRITE", "TOPIC", "orders")


class Audited:
    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[tuple[AuditedAct, int, int]] = []
        self.listed: list[ListLine] = []
        self.log = AuditLog(lambda: self.now, lambda *line: self.lines.append(line), self.listed.append)
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


def test_logins_are_bounded_in_rate_and_the_next_line_tells() -> None:
    rates = OTHERS.of_one
    audited = Audited()
    for number in range(int(rates.burst) + 50):
        audited.log.note(LOGIN._replace(name=str(number)))
    assert len(audited.lines) == rates.burst
    assert all(left_out == 0 for _, _, left_out in audited.lines)
    audited.now = 1.0
    for number in range(1000):
        audited.log.note(LOGIN._replace(name=f"later {number}"))
    assert len(audited.lines) == rates.burst + rates.a_second
    assert audited.lines[int(rates.burst)][2] == 50
    assert audited.counted == {"logged in": rates.burst + 1050, "left out": 50 + 1000 - rates.a_second}
    audited.log.write_counted(everything=True)
    assert not audited.listed


@pytest.mark.parametrize("allowed", [True, False])
def test_beyond_the_rate_each_name_is_listed_once_a_minute(allowed: bool) -> None:
    burst = int((CHANGES if allowed else OTHERS).of_one.burst)
    act = ACT._replace(allowed=allowed)
    audited = Audited()
    for _ in range(3):
        for number in range(burst + 250):
            audited.log.note(act._replace(name=str(number), host=f"10.0.0.{number % 5}"))
    assert len(audited.lines) == burst
    audited.log.write_counted()
    audited.log.write_counted()
    names = [name for line in audited.listed for name in line.names]
    assert names == [str(number) for number in range(burst, burst + 250)]
    assert max(len(line.names) for line in audited.listed) == NAMES_A_LINE
    assert audited.listed[0].act == act._replace(host="", name="")
    assert sorted(audited.listed[0].hosts) == [f"10.0.0.{number}" for number in range(5)]
    audited.listed.clear()
    audited.now = QUIET_SECONDS
    audited.log.write_counted()
    assert [(line.names, line.again) for line in audited.listed] == [([], 500)]
    assert audited.counted["left out"] == 0
    for number in range(1000):
        audited.log.note(act._replace(name=str(number)))
    audited.log.write_counted(everything=True)
    listed = {name for line in audited.listed for name in line.names}
    single = {act.name for act, *_ in audited.lines[burst:]}
    assert listed | single == {str(number) for number in range(1000)}, "in the next minute, again"


def test_nobody_keeps_his_own_refusal_out_by_noise() -> None:
    audited = Audited()
    audited.log.is_there = lambda act: act.name == "payroll"
    for number in range(100_000):
        audited.log.note(ACT._replace(name=f"noise {number}" + "x" * 300))
    audited.log.note(ACT._replace(operation="READ", name="payroll"))
    audited.log.note(ACT._replace(name="payroll"))
    audited.log.write_counted()
    found = {line.act.operation for line in audited.listed if "payroll" in line.names}
    assert found == {"READ", "WRITE"}
    shown = [name for line in audited.listed for name in line.names]
    assert len(shown) == MADE_UP.of_one + 2
    assert max(map(len, shown)) == 100
    assert audited.counted["left out"] == 100_000 - OTHERS.of_one.burst - MADE_UP.of_one


def test_nobody_hides_whom_he_guesses_at_behind_other_names() -> None:
    """A client chooses the name of a login that fails. Hosts do not take each other's room."""
    audited = Audited()
    failed = LOGIN._replace(allowed=False, about="PLAIN: wrong password")
    for number in range(200):
        audited.log.note(failed._replace(principal=f"User:noise {number}"))
    audited.log.note(failed._replace(principal="User:admin", about="PLAIN: the user is not known"))
    audited.log.note(failed._replace(principal="User:admin"))
    for number in range(10_000):
        audited.log.note(failed._replace(principal=f"User:more {number}", host="10.0.0.9"))
    audited.log.note(failed._replace(principal="User:bob"))
    audited.log.write_counted()
    found = [line for line in audited.listed if "User:admin" in line.names]
    assert [(line.act.principal, list(line.hosts)) for line in found] == [("", [failed.host])]
    assert any("User:bob" in line.names for line in audited.listed)
    of_another = sum(len(line.names) for line in audited.listed if "10.0.0.9" in line.hosts)
    assert of_another == MADE_UP.of_one
    audited.log.write_counted(everything=True)
    assert not audited.log._claimed._of_one


def test_failed_logins_from_many_addresses_hide_no_refusal_of_a_user() -> None:
    """Each of them has a list, and there are so many lists: anybody could take them all."""
    audited = Audited()
    for number in range(10_000):
        login = AuditedAct(
            False, f"User:{number}", f"10.{number >> 8}.{number & 255}.1", AUTHENTICATE, LISTENER, "S"
        )
        audited.log.note(login)
    for number in range(100):
        audited.log.note(ACT._replace(name=f"noise-{number}"))
    audited.log.note(ACT._replace(name="payroll"))
    audited.log.write_counted()
    assert "payroll" in {name for line in audited.listed for name in line.names}


def test_a_network_of_ipv6_is_one_source_of_failed_logins() -> None:
    audited = Audited()
    for number in range(100):
        audited.log.note(
            AuditedAct(False, "User:a", f"2001:db8::{number:x}", AUTHENTICATE, LISTENER, f"{number}")
        )
    assert len(audited.lines) == OTHERS.of_one.burst


def test_lists_have_a_bound_whoever_fills_them() -> None:
    audited = Audited()
    audited.log.is_there = lambda act: act.name.startswith("there")
    for minute in range(3):
        audited.now = minute * QUIET_SECONDS
        audited.listed.clear()
        for number in range(150_000):
            principal = f"User:{number % 5000}"
            kind = "there" if number % 2 else "made up"
            audited.log.note(ACT._replace(principal=principal, name=f"{kind} {number}"))
        audited.log.write_counted(everything=True)
        assert sum(len(line.names) for line in audited.listed) <= MADE_UP.of_all + THERE.of_all
        assert len({line.act for line in audited.listed}) == 2_000
    assert not audited.log._lists._of_one


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
