"""The audit log: who did, or was not allowed to do, what to which resource, and who logged in. One structured
line each, and never more than so many.

Requests that read or write records are noted only if they are refused: a line for each request would cost
more than the request. The same again within a minute is counted, and the number is in a line after that
minute. A client must not fill a disk: lines beyond a rate are left out, and the next one says how many. Nor
must it hide what others do behind its own noise: changes, refusals, logins and failed logins have rates of
their own, in all and of each client. All of them are counted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import structlog

from dray.base.runtime import owner_of

_log = structlog.get_logger("dray.audit")

AUTHENTICATE: Final = "AUTHENTICATE"
"""The operation of a login. No ACL has it."""
LISTENER: Final = "LISTENER"

QUIET_SECONDS: Final = 60.0
_REMEMBERED: Final = 5_000
_MOST_SOURCES: Final = 1_000
_LONGEST_SHOWN: Final = 256
_LONGEST_MADE_UP: Final = 100

NAMES_A_LINE: Final = 100


class _Room(NamedTuple):
    """How many names are listed in a minute."""

    of_all: int
    of_one: int


MADE_UP: Final = _Room(5_000, 1_000)
THERE: Final = _Room(50_000, 10_000)
_MOST_LISTS: Final = 2_000
_MOST_HOSTS: Final = 10


class ListLine(NamedTuple):
    act: AuditedAct
    """Without its host and name:"""
    hosts: Sequence[str]
    names: Sequence[str]
    again: int
    """How often names that were listed within the minute came again."""


class AuditedAct(NamedTuple):
    allowed: bool
    principal: str
    host: str
    operation: str
    resource: str
    name: str
    about: str = ""
    """The changed thing, if the resource is the cluster: a topic, a user, an ACL. Of a login: by what, and
    why it failed."""

    @property
    def is_login(self) -> bool:
        return self.operation == AUTHENTICATE


class LineRate(NamedTuple):
    a_second: float
    burst: float


class LineRates(NamedTuple):
    of_all: LineRate
    of_one: LineRate


CHANGES: Final = LineRates(LineRate(100, 1000), LineRate(20, 200))
OTHERS: Final = LineRates(LineRate(20, 200), LineRate(5, 50))


class _Bucket:
    __slots__ = ("_allowance", "_rate", "_refilled")

    def __init__(self, rate: LineRate, now: float) -> None:
        self._rate = rate
        self._allowance = rate.burst
        self._refilled = now

    def take(self, now: float) -> bool:
        rate = self._rate
        self._allowance = min(rate.burst, self._allowance + (now - self._refilled) * rate.a_second)
        self._refilled = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True


class _Lines:
    """How many lines of one kind there may be: in all, and of each source. Of those the last are known."""

    def __init__(self, rates: LineRates, now: float) -> None:
        self._rates = rates
        self._all = _Bucket(rates.of_all, now)
        self._sources: OrderedDict[str, _Bucket] = OrderedDict()
        self.left_out = 0

    def take(self, source: str, now: float) -> bool:
        own = self._sources.get(source)
        if own is None:
            if len(self._sources) >= _MOST_SOURCES:
                self._sources.popitem(last=False)
            own = self._sources[source] = _Bucket(self._rates.of_one, now)
        self._sources.move_to_end(source)
        return own.take(now) and self._all.take(now)


class _List:
    """One client's refusals or changes, of one kind within a minute, beyond the rate of lines. Of logins that
    fail: who it said it was."""

    __slots__ = ("again", "began", "hosts", "names", "room", "unwritten")

    def __init__(self, now: float) -> None:
        self.began = now
        self.names: set[str] = set()
        self.unwritten: list[str] = []
        self.hosts: list[str] = []
        self.again = 0
        self.room = Counter[_Room]()


class _Lists:
    def __init__(self) -> None:
        self._lists: dict[tuple[str, AuditedAct], _List] = {}
        self._of_all = Counter[_Room]()
        self._of_one = Counter[tuple[str, _Room]]()

    def take(self, act: AuditedAct, source: str, now: float, is_there: bool) -> bool:
        """Whether the act is listed, now or earlier in this minute."""
        room = THERE if is_there else MADE_UP
        name = f"{act.name}: {act.about}" if act.about else act.name
        name = name[: _LONGEST_SHOWN if is_there else _LONGEST_MADE_UP]
        key = source, act._replace(host="", name="", about="")
        found = self._lists.get(key)
        if found is not None and name in found.names:
            found.again += 1
            return True
        if self._of_all[room] >= room.of_all or self._of_one[source, room] >= room.of_one:
            return False
        if found is None:
            if len(self._lists) >= _MOST_LISTS:
                return False
            found = self._lists[key] = _List(now)
        self._count(key, found, room, 1)
        found.names.add(name)
        found.unwritten.append(name)
        if act.host not in found.hosts and len(found.hosts) < _MOST_HOSTS:
            found.hosts.append(act.host)
        return True

    def lines(self, now: float, everything: bool) -> Iterator[ListLine]:
        """The lines that are to be written. Lists whose minute is over are forgotten with it."""
        for key, each in list(self._lists.items()):
            names, each.unwritten = each.unwritten, []
            for start in range(0, len(names), NAMES_A_LINE):
                yield ListLine(key[1], each.hosts, names[start : start + NAMES_A_LINE], 0)
            if everything or now - each.began >= QUIET_SECONDS:
                if each.again:
                    yield ListLine(key[1], each.hosts, [], each.again)
                del self._lists[key]
                for room, taken in each.room.copy().items():
                    self._count(key, each, room, -taken)

    def _count(self, key: tuple[str, AuditedAct], each: _List, room: _Room, more: int) -> None:
        source, _ = key
        each.room[room] += more
        self._of_all[room] += more
        self._of_one[source, room] += more
        if not self._of_one[source, room]:
            del self._of_one[source, room]


class AuditLog:
    """`monotonic` gives seconds; `write` and `write_list` are for tests. `write_counted` is to be called now
    and then."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        write: Callable[[AuditedAct, int, int], None] | None = None,
        write_list: Callable[[ListLine], None] | None = None,
    ) -> None:
        self._monotonic = monotonic
        self._write = write or write_line
        self._write_list = write_list or write_list_line
        self._lists = _Lists()
        self._claimed = _Lists()
        """Of failed logins, for which nobody has to be known: they take no room from what users do."""
        self.is_there: Callable[[AuditedAct], bool] = lambda _: False
        """Whether the resource exists, as far as is known in memory: it is asked within a request."""
        now = monotonic()
        self._changes = _Lines(CHANGES, now)
        self._denials, self._logins, self._failed_logins = (_Lines(OTHERS, now) for _ in range(3))
        # Since when an act is quiet, and how often it came since; oldest first.
        self._recent: OrderedDict[AuditedAct, tuple[float, int]] = OrderedDict()
        self.count: Callable[[str], None] = lambda _: None
        """Called for each act with `allowed`, `denied`, `logged in` or `login failed`, and with `left out`
        for each line that is, for its rate."""

    def note(self, act: AuditedAct) -> None:
        self.count(_outcome(act))
        if max(len(act.principal), len(act.name), len(act.about)) > _LONGEST_SHOWN:
            act = act._replace(
                principal=act.principal[:_LONGEST_SHOWN],
                name=act.name[:_LONGEST_SHOWN],
                about=act.about[:_LONGEST_SHOWN],
            )
        now = self._monotonic()
        recent = self._recent.get(act)
        if recent is not None and now - recent[0] < QUIET_SECONDS:
            self._recent[act] = recent[0], recent[1] + 1
            return
        lines = self._lines(act)
        # A client that fails to log in chooses the name that it uses for that.
        source = owner_of(act.host) if act.is_login and not act.allowed else act.principal
        if not lines.take(source, now):
            if (act.is_login and act.allowed) or not self._is_listed(act, source, now):
                lines.left_out += 1
                self.count("left out")
            return
        self._recent.pop(act, None)
        if len(self._recent) >= _REMEMBERED:
            self._forget_oldest()
        self._recent[act] = now, 0
        left_out, lines.left_out = lines.left_out, 0
        self._write(act, 1 if recent is None else 1 + recent[1], left_out)

    def _is_listed(self, act: AuditedAct, source: str, now: float) -> bool:
        if act.is_login:  # that failed: who was claimed, by host
            claimed = act._replace(principal="", name=act.principal, about="")
            return self._claimed.take(claimed, source, now, False)
        return self._lists.take(act, source, now, act.allowed or self.is_there(act))

    def write_counted(self, everything: bool = False) -> None:
        """Write what was listed, and of acts whose minute is over (or of all) how often they came again."""
        now = self._monotonic()
        for lists in (self._lists, self._claimed):
            for line in lists.lines(now, everything):
                self._write_list(line)
        while self._recent:
            since, _ = next(iter(self._recent.values()))
            if not everything and now - since < QUIET_SECONDS:
                return
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        act, (_, times) = self._recent.popitem(last=False)
        if times:
            self._write(act, times, 0)

    def _lines(self, act: AuditedAct) -> _Lines:
        if act.is_login:
            return self._logins if act.allowed else self._failed_logins
        return self._changes if act.allowed else self._denials


def _outcome(act: AuditedAct) -> str:
    if act.is_login:
        return "logged in" if act.allowed else "login failed"
    return "allowed" if act.allowed else "denied"


def write_line(act: AuditedAct, times: int, left_out: int, log: Any = _log) -> None:
    """The request that it was part of is in the line too: the dispatcher bound it."""
    more: dict[str, object] = {"about": act.about} if act.about else {}
    if left_out:
        more["lines_left_out"] = left_out
    log.info(
        "allowed" if act.allowed else "denied",
        audit=True,
        principal=act.principal,
        host=act.host,
        operation=act.operation,
        resource=act.resource,
        name=act.name,
        times=times,
        **more,
    )


def write_list_line(line: ListLine, log: Any = _log) -> None:
    """In place of a line for each name. Of which requests they were is not known any more."""
    act = line.act
    what: dict[str, object] = {"names": list(line.names)} if line.names else {"listed_again": line.again}
    log.info(
        "allowed" if act.allowed else "denied",
        audit=True,
        principal=act.principal,
        hosts=list(line.hosts),
        operation=act.operation,
        resource=act.resource,
        **what,
    )
